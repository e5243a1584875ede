"""Idempotency-Key in the store: one claim, one response; and the test detects a known fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold.core.accounts import idempotency
from sixfold.core.accounts.idempotency import ClaimedRequest, RequestInProgress, StoredReply
from sixfold.core.database import Database
from sixfold.errors import IdempotencyMismatch
from tests.harness import databases

SCOPE = idempotency.scope_id("acct", "POST", "/api/ra1", "key")


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened_database:
        yield opened_database


async def _race(database: Database) -> list[object]:
    claims = (database.write(idempotency.begin(SCOPE, b"body", "boot")) for _ in range(20))
    return await asyncio.gather(*claims, return_exceptions=True)


async def test_one_of_many_concurrent_requests_claims_the_key(database: Database) -> None:
    verdicts = await _race(database)
    assert [type(verdict) for verdict in verdicts].count(ClaimedRequest) == 1
    assert [type(verdict) for verdict in verdicts].count(RequestInProgress) == 19


async def test_another_body_for_the_same_key_is_refused(database: Database) -> None:
    await database.write(idempotency.begin(SCOPE, b"body", "boot"))
    with pytest.raises(IdempotencyMismatch):
        await database.write(idempotency.begin(SCOPE, b"other", "boot"))
    assert isinstance(await database.write(idempotency.begin(SCOPE, b"body", "boot")), RequestInProgress)


async def test_stored_response_is_replayed_and_unstored_frees_the_key(database: Database) -> None:
    await database.write(idempotency.begin(SCOPE, b"body", "boot"))
    await database.write(idempotency.finish(SCOPE, StoredReply(200, {"content-type": "x"}, b"{}")))
    assert await database.write(idempotency.begin(SCOPE, b"body", "boot")) == StoredReply(
        200, {"content-type": "x"}, b"{}"
    )
    other = idempotency.scope_id("acct", "POST", "/api/ra1", "other")
    await database.write(idempotency.begin(other, b"body", "boot"))
    await database.write(idempotency.finish(other, StoredReply(402, {}, b"{}")))
    assert isinstance(await database.write(idempotency.begin(other, b"another", "boot")), ClaimedRequest)


async def test_claim_of_a_dead_server_is_reassigned_once(database: Database) -> None:
    await database.write(idempotency.begin(SCOPE, b"body", "old boot"))
    verdicts = await _race(database)
    assert [type(verdict) for verdict in verdicts].count(ClaimedRequest) == 1


async def test_repeated_end_of_a_claim_keeps_a_newer_claim(database: Database) -> None:
    """A commit whose result is unknown is repeated, while another request may have claimed the key."""
    begin, reply = idempotency.begin(SCOPE, b"body", "boot"), StoredReply(200, {}, b"old")
    first = await database.write(begin)
    assert isinstance(first, ClaimedRequest)
    await database.write(idempotency.forget(SCOPE, first))
    second = await database.write(idempotency.begin(SCOPE, b"other", "boot"))
    assert isinstance(second, ClaimedRequest)
    await database.write(idempotency.forget(SCOPE, first))
    await database.write(idempotency.finish(SCOPE, reply, None, first))
    await database.write(idempotency.abandon(SCOPE, first))
    in_progress = await database.write(idempotency.begin(SCOPE, b"other", "boot"))
    assert in_progress == RequestInProgress(second)
    await database.write(idempotency.finish(SCOPE, reply, None, second))
    await database.write(idempotency.forget(SCOPE, second))
    assert await database.write(idempotency.begin(SCOPE, b"other", "boot")) == reply


async def test_abandoned_claim_is_adopted_for_the_same_content(database: Database) -> None:
    first = await database.write(idempotency.begin(SCOPE, b"body", "boot"))
    assert isinstance(first, ClaimedRequest)
    await database.write(idempotency.abandon(SCOPE, first))
    with pytest.raises(IdempotencyMismatch):
        await database.write(idempotency.begin(SCOPE, b"other", "boot"))
    second = await database.write(idempotency.begin(SCOPE, b"body", "boot 2"))
    assert second == ClaimedRequest("boot 2", first.claimed_at)


@pytest.mark.parametrize("backend", databases.BACKENDS)
@pytest.mark.parametrize("claimed", ["boot = :boot", "body_hash = :body_hash"])
async def test_store_that_ignores_key_conflicts_is_detected(
    backend: str, tmp_path: Path, claimed: str
) -> None:
    async with databases.running_database(backend, tmp_path) as database:
        mutant: Any = database
        queries = dict(mutant.queries)
        claim = queries["idempotency_insert"]
        sql = claim.sql.replace("ON CONFLICT DO NOTHING", f"ON CONFLICT (id) DO UPDATE SET {claimed}")
        assert sql != claim.sql
        mutant.queries = {**queries, "idempotency_insert": replace(claim, sql=sql)}
        verdicts = await _race(database)
        assert [type(verdict) for verdict in verdicts].count(ClaimedRequest) != 1


def test_key_applies_to_one_account_method_and_path() -> None:
    requests = ("acct_1", "POST", "/api/ra1", "key")
    others = [
        (*requests[:index], f"{requests[index]}2", *requests[index + 1 :]) for index in range(len(requests))
    ]
    assert len({idempotency.scope_id(*each) for each in (requests, *others)}) == 5
