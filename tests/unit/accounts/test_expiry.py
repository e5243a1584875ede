"""Expiring records are valid before their expiry time and invalid from it on, on both databases."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.authentication import auth_challenges, login_sessions, oauth
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.clock import DAY_US, HOUR_US, MINUTE_US
from sixfold.core.database import Query, Transaction, one
from tests.harness import databases

BEGAN = 1_764_500_000_000_000
BACK = "http://127.0.0.1/back"
VERIFIER = "v" * 43
AUTHORIZATION_REQUEST = {
    "response_type": "code",
    "code_challenge_method": "S256",
    "code_challenge": base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest())
    .decode()
    .rstrip("="),
}
# Identifiers of a created record, as its user needs them.
Given = tuple[str, ...]


def _key(account_id: str) -> Transaction[Given]:
    return ((yield from keys.create(account_id, expires_at=BEGAN + HOUR_US)).api_key,)


def _link(account_id: str) -> Transaction[Given]:
    return ((yield from login_sessions.new_link(account_id, BEGAN)),)


def _session(account_id: str) -> Transaction[Given]:
    return ((yield from login_sessions.new_session(account_id, BEGAN, LoginDetails("password"))),)


def _ceremony(account_id: str) -> Transaction[Given]:
    yield from auth_challenges.create("passkey", account_id, {"challenge": "c"})
    return "passkey", account_id


def _upload(account_id: str) -> Transaction[Given]:
    about = {"account_id": account_id, "blob": "b", "kind": "upload", "content_type": "image/png", "size": 1}
    of = {"sha256": None, "prediction_id": None, "upload_id": account_id, "expires_at": BEGAN + HOUR_US}
    of["credential_id"] = None
    yield Query("media_insert", {"name": account_id, **about, **of})
    return (account_id,)


def _code(account_id: str) -> Transaction[Given]:
    client = yield from oauth.register("a program", [BACK])
    code = yield from oauth.grant(
        account_id, oauth.parse_authorization_request(client, BACK, AUTHORIZATION_REQUEST, ())
    )
    return code, client.id, BACK, VERIFIER


def _refresh(account_id: str) -> Transaction[Given]:
    inputs = yield from _code(account_id)
    tokens = yield from oauth.exchange(*inputs)
    assert tokens is not None
    return tokens.refresh_token, inputs[1]


def _take_link(token: str) -> Transaction[str]:
    return (yield from login_sessions.take_link(token, BEGAN))


def _call(account_id: str) -> Transaction[Given]:
    yield Query("gateway_call_once_put", {"id": account_id, "call_id": "call_1"})
    return (account_id,)


def _insert_earlier_request(name: str) -> Transaction[Any]:
    return (yield from one("gateway_call_once_get", id=name, life=DAY_US))


def _media(name: str) -> Transaction[Any]:
    return (yield from one("media_by_name", name=name))


LASTING: dict[str, tuple[int, Callable[[str], Transaction[Given]], Callable[..., Transaction[Any]]]] = {
    "a key": (HOUR_US, _key, keys.authenticate),
    "a link": (HOUR_US, _link, _take_link),
    "a session": (30 * DAY_US, _session, login_sessions.session),
    "a ceremony": (10 * MINUTE_US, _ceremony, auth_challenges.consume),
    "an upload": (HOUR_US, _upload, _media),
    "a call's Idempotency-Key": (DAY_US, _call, _insert_earlier_request),
    "a grant's code": (5 * MINUTE_US, _code, oauth.exchange),
    "a refresh token": (30 * DAY_US, _refresh, oauth.refresh),
}


@pytest.mark.parametrize("backend", databases.BACKENDS)
@pytest.mark.parametrize("name", LASTING)
async def test_record_is_valid_before_its_expiry_and_invalid_at_it(
    tmp_path: Path, backend: str, name: str
) -> None:
    life, begin, use = LASTING[name]
    moment = BEGAN
    async with databases.running_database(backend, tmp_path, lambda: moment) as database:
        people = [await database.write(accounts.create(f"{who}@example.com")) for who in ("ada", "ben")]
        early, late = [await database.write(begin(account.id)) for account in people]
        moment = BEGAN + life - 1
        assert await database.write(use(*early))
        moment = BEGAN + life
        with contextlib.suppress(errors.Unauthenticated, errors.BadRequest):
            assert not await database.write(use(*late))
