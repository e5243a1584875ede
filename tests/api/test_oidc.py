"""Login with an OpenID provider: account linking, and every invalid response."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from sixfold import settings
from sixfold.core.accounts import accounts
from sixfold.core.accounts.authentication import login_sessions, oidc_identities
from sixfold.core.accounts.organizations import members, organizations
from sixfold.settings import InvalidSetting
from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.api.test_pages import signed_in
from tests.fakes.oidc import CLIENT, SECRET, OpenId, provider

AppAndProvider = tuple[AppFixture, OpenId]


@pytest.fixture
async def app_and_provider(tmp_path: Path) -> AsyncIterator[AppAndProvider]:
    async with provider() as result, app_with_provider(tmp_path, result) as app:
        yield app, result


def app_with_provider(folder: Path, found: OpenId, **changes: Any) -> AbstractAsyncContextManager[AppFixture]:
    """Run a server that trusts a provider."""
    changes |= {"oidc_issuer": found.issuer, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    return running_app(folder, oidc_name="Example", **changes)


async def login_redirect(visitor: httpx.AsyncClient, following: str = "") -> str:
    response = await visitor.get("/signin/oidc", params={"next": following})
    assert response.status_code == 303
    return response.headers["Location"]


async def sign_in(app: AppFixture, provider: OpenId) -> httpx.Response:
    """Complete a login in a new browser."""
    visitor = app.visitor()
    return await visitor.get(provider.grant(await login_redirect(visitor)))


async def test_verified_email_signs_in_and_returns_to_the_page(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    assert "Sign in with Example" in (await app.visitor().get("/signin?next=/gallery")).text
    visitor = app.visitor()
    url = await login_redirect(visitor, "/gallery")
    request = dict(parse_qsl(urlsplit(url).query))
    assert request["redirect_uri"] == f"{ORIGIN}/signin/oidc/callback"
    assert (request["code_challenge_method"], request["scope"]) == ("S256", "openid email")
    back = await visitor.get(result.grant(url))
    assert (back.status_code, back.headers["Location"]) == (303, "/gallery")
    assert "ada@example.com" in (await visitor.get("/account")).text
    result.claims |= {"email": "ada@elsewhere.example", "email_verified": False}
    # The account is linked to the identity, whatever its e-mail address is now.
    assert (await sign_in(app, result)).status_code == 303


async def test_unverified_email_cannot_sign_in(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    for claims in (
        {"email_verified": False},
        {"email_verified": None},
        {"email_verified": "yes"},
        {"email": None},
        {"email": "nobody@example.com"},
        # The account of the operator.
        {"email": "local@localhost"},
    ):
        result.lies = claims
        assert (await sign_in(app, result)).status_code == 403, claims
    assert await app.database.read(oidc_identities.of_account(app.account.id)) == ()


async def test_email_may_come_from_userinfo_of_the_same_subject(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    result.lies = {"email": None, "email_verified": None}
    result.info = {"sub": "another", "email": "ada@example.com", "email_verified": True}
    assert (await sign_in(app, result)).status_code == 403
    result.info["sub"] = "ada-1"
    assert (await sign_in(app, result)).status_code == 303


@pytest.mark.parametrize(
    ("token", "info", "status"),
    [
        # The address of one document with the verification of the other.
        ({"email": None, "email_verified": True}, {"email": "ada@example.com"}, 403),
        ({"email_verified": None}, {"email": "eve@example.com", "email_verified": True}, 403),
        ({"email_verified": None}, {"email_verified": True}, 403),
        ({"email_verified": None}, {"email": "ada@example.com", "email_verified": True}, 303),
        ({}, {"email": "ada@example.com"}, 303),
    ],
)
async def test_verification_applies_to_the_address_of_its_document(
    token: dict[str, Any], info: dict[str, Any], status: int, either: Path
) -> None:
    # The rule causes userinfo to be read for the groups.
    rules = {"groups": {"media": {"organization": "acme"}}}
    async with provider() as result, app_with_provider(either, result, tables={"sign_in": rules}) as app:
        result.claims = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True}
        result.lies, result.info = token, {"sub": "ada-1", **info}
        assert (await sign_in(app, result)).status_code == status


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": -600},
        {"exp": None},
        {"iat": 600},
        {"sub": ""},
        {"sub": None},
    ],
)
async def test_token_with_invalid_claims_does_not_sign_in(
    app_and_provider: AppAndProvider, lie: dict[str, Any]
) -> None:
    app, result = app_and_provider
    # Computed in the test instead of at collection: in a long run, the difference would exceed the tolerance.
    now = int(time.time())
    result.lies = {name: now + value if isinstance(value, int) else value for name, value in lie.items()}
    assert (await sign_in(app, result)).status_code == 401


@pytest.mark.parametrize(
    "lie",
    [
        {"auth_time": math.inf},
        {"auth_time": math.nan},
        {"exp": math.inf},
        {"sub": "\ud800"},
        {"nonce": "\ud800"},
        {"email": "\ud800@example.com"},
    ],
    ids=str,
)
async def test_claims_that_cannot_be_stored_do_not_sign_in(
    app_and_provider: AppAndProvider, lie: dict[str, Any]
) -> None:
    app, result = app_and_provider
    result.lies = lie
    assert (await sign_in(app, result)).status_code == 401


async def test_access_token_that_is_no_header_does_not_sign_in(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    result.lies = {"email": None, "email_verified": None}
    for token in ("t\u00f6ken", "a\r\nX: b"):
        result.access_token = token
        assert (await sign_in(app, result)).status_code == 502, token


async def test_token_with_an_invalid_signature_does_not_sign_in(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    result.signing_key = ec.generate_private_key(ec.SECP256R1())
    assert (await sign_in(app, result)).status_code == 401
    result.signing_key, result.headers = None, {"kid": "unknown"}
    assert (await sign_in(app, result)).status_code == 401
    result.headers, result.algorithm, result.signing_key = (
        {},
        "HS256",
        "the public key, as some would have it.....",
    )
    assert (await sign_in(app, result)).status_code == 401
    result.algorithm, result.signing_key = "none", ""
    assert (await sign_in(app, result)).status_code == 401


async def test_callback_is_valid_once_and_in_the_browser_that_began(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    visitor, other_client = app.visitor(), app.visitor()
    there = result.grant(await login_redirect(visitor))
    # This browser has not begun a sign-in.
    assert (await other_client.get(there)).status_code == 400
    await login_redirect(other_client)
    # The state belongs to the sign-in of another browser.
    assert (await other_client.get(there)).status_code == 401
    assert (await visitor.get(there)).status_code == 303
    assert (await visitor.get(there)).status_code == 400
    for query in ("", "?error=access_denied", "?code=x", f"?code=x&state={'y' * 5000}"):
        await login_redirect(visitor)
        assert (await visitor.get(f"/signin/oidc/callback{query}")).status_code in (400, 401)
    url = await login_redirect(visitor)
    assert (await visitor.get(f"{result.grant(url)}&iss=https://evil.example")).status_code == 401


def linked_url(response: httpx.Response) -> str:
    """Return the URL of the provider to which the page for linking redirects."""
    return response.text.partition('content="0;url=')[2].partition('"')[0].replace("&amp;", "&")


async def test_user_links_and_unlinks_an_identity(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    result.claims = {"sub": "stranger", "email": "else@where.example", "email_verified": False}
    form = {"csrf": await signed_in(app)}
    assert (await app.client.post("/account/identities", data={"csrf": "x"})).status_code == 403
    away = await app.client.post("/account/identities", data=form)
    there = result.grant(linked_url(away))
    ticket = {"sixfold_signin": app.client.cookies["sixfold_signin"]}
    assert (await app.visitor().get(there, headers={"Cookie": f"sixfold_signin={ticket}"})).status_code == 400
    assert (await app.client.get(there)).headers["Location"] == "/account/security?done=linked"
    assert "else@where.example" in (await app.client.get("/account/security")).text
    assert (await sign_in(app, result)).status_code == 303
    removal = await app.client.post("/account/identities/remove", data=form)
    assert removal.headers["Location"] == "/account/security?done=unlinked"
    assert (await sign_in(app, result)).status_code == 403


async def test_unlinking_an_identity_ends_its_sessions(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    by_identity = app.visitor()
    assert (await by_identity.get(result.grant(await login_redirect(by_identity)))).status_code == 303
    assert (await by_identity.get("/account")).status_code == 200
    form = {"csrf": await signed_in(app)}
    removal = await app.client.post("/account/identities/remove", data=form)
    assert removal.headers["Location"] == "/account/security?done=unlinked"
    assert (await by_identity.get("/account")).status_code == 303
    assert (await app.client.get("/account")).status_code == 200


async def test_former_owner_links_no_identity_to_an_organization(either: Path) -> None:
    """An identity that the organization itself has would sign in with all rights, also after a removal."""
    async with provider() as result, app_with_provider(either, result) as app:
        csrf = await signed_in(app)
        started = await app.client.post("/account/identities", data={"csrf": csrf})
        write, read = app.database.write, app.database.read
        ben = await read(accounts.by_email("ben@example.com"))
        await write(accounts.set_password_hash(app.account.id, "hash"))
        heir = await write(members.add(app.account.id, ben.id, "admin", "invitation"))
        await write(organizations.transfer(app.account.id, heir.id, "acme"))
        refused = await app.client.get(result.grant(linked_url(started)))
        assert refused.status_code == 403
        assert await read(oidc_identities.of_account(app.account.id)) == ()
        # An identity from before is of no use either.
        identity = oidc_identities.Identity(result.issuer, "ada-1", "", verified=False)
        await write(oidc_identities.link(app.account.id, identity))
        assert (await sign_in(app, result)).status_code == 403


async def test_linked_identity_and_foreign_link_request_are_refused(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    result.claims = {"sub": "ben-1", "email": "ben@example.com", "email_verified": True}
    assert (await sign_in(app, result)).status_code == 303
    form = {"csrf": await signed_in(app)}
    for left in (False, True):
        away = await app.client.post("/account/identities", data=form)
        url = linked_url(away)
        if left:
            del app.client.cookies["sixfold_session"]
        assert (await app.client.get(result.grant(url))).status_code == (403 if left else 409)


async def test_unknown_user_gets_an_account_when_signup_is_allowed(tmp_path: Path) -> None:
    async with provider() as result, app_with_provider(tmp_path, result, oidc_signup="allow") as app:
        result.claims = {"sub": "new", "email": "New@example.com", "email_verified": True}
        assert (await sign_in(app, result)).status_code == 303
        account = await app.database.read(accounts.by_email("new@example.com"))
        assert (account.posted, account.kind) == (0, "customer")


async def test_provider_with_wrong_metadata_is_refused(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    for metadata in (
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"issuer": 5},
        *({"token_endpoint": f"https://{host}"} for host in ("", "[", "a b", "a:99999", "a\r\nb")),
    ):
        result.metadata = metadata
        assert (await app.visitor().get("/signin/oidc")).status_code == 502
    result.metadata = {}
    assert (await sign_in(app, result)).status_code == 303


async def test_oidc_login_is_404_without_a_provider(app: AppFixture) -> None:
    assert (await app.client.get("/signin/oidc")).status_code == 404
    wrong_settings: tuple[dict[str, Any], ...] = (
        {"oidc_issuer": "http://evil.example", "oidc_client_id": "x"},
        {"oidc_issuer": "https://a.example"},
    )
    for wrong in wrong_settings:
        with pytest.raises(InvalidSetting, match="oidc_issuer"):
            settings.load({}, **wrong)


async def test_login_session_has_the_auth_time_of_the_provider(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    visitor = app.visitor()
    url = await login_redirect(visitor)
    assert dict(parse_qsl(urlsplit(url).query))["max_age"] == "600"
    result.claims["auth_time"] = int(time.time()) - 500
    assert (await visitor.get(result.grant(url))).status_code == 303
    account = await app.database.read(accounts.by_id(app.account.id))
    (session,) = await app.database.read(login_sessions.of_account(account.id, ""))
    assert abs(session["created_at"] // 1_000_000 - result.claims["auth_time"]) <= 1
    result.claims["auth_time"] = int(time.time()) - 700
    assert (await sign_in(app, result)).status_code == 401


async def test_signing_in_again_asks_for_the_password_again(app_and_provider: AppAndProvider) -> None:
    app, result = app_and_provider
    assert "again=1" in (await app.visitor().get("/signin?again=1")).text
    result.metadata["claims_supported"] = ["sub", "auth_time"]
    for seconds_ago, status in ((5, 303), (300, 401), (None, 401), (True, 401)):
        visitor = app.visitor()
        url = (await visitor.get("/signin/oidc", params={"again": "1"})).headers["Location"]
        request = dict(parse_qsl(urlsplit(url).query))
        assert (request["prompt"], request["max_age"]) == ("login", "0")
        known = isinstance(seconds_ago, int) and not isinstance(seconds_ago, bool)
        result.lies["auth_time"] = int(time.time()) - int(seconds_ago or 0) if known else seconds_ago
        assert (await visitor.get(result.grant(url))).status_code == status, seconds_ago


async def test_sign_ins_share_a_discovery_in_progress(app_and_provider: AppAndProvider) -> None:
    app, provider = app_and_provider
    provider.metadata = {"issuer": "https://other.example"}
    provider.discoveries = 0
    responses = await asyncio.gather(*(app.visitor().get("/signin/oidc") for _ in range(12)))
    assert {response.status_code for response in responses} == {502}
    assert provider.discoveries == 1
