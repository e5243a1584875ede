"""Passkeys in Chromium with a virtual authenticator: created, used, removed; and forged responses."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import bootstrap
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts
from sixfold.core.accounts.authentication import login_sessions, passkeys
from sixfold.core.database import now
from sixfold.settings import Settings
from sixfold.ui.login.passkeys import relying_party
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.mcp.loopback import serve

# What the pages' script does, in one call: ask, let the device answer, give back what would be sent.
MAKE = """async (csrf) => {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  const response = await fetch("/account/passkeys/ask", { method: "POST", headers, body: "{}" });
  const options = await response.json();
  return encodeCredential(await navigator.credentials.create(decodeOptions(options)));
}"""
USE = """async () => {
  const options = await post("/signin/passkey/ask", {});
  return encodeCredential(await navigator.credentials.get(decodeOptions(options)));
}"""
SEND = """async ([path, body, csrf]) => {
  const headers = { "Content-Type": "application/json", ...(csrf ? { "X-CSRF-Token": csrf } : {}) };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  return [response.status, await response.json()];
}"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
async def browser_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server with the name localhost, for which browsers create passkeys, and a browser."""
    port = free_port()
    async with (
        running_app(tmp_path, port=port, public_url=f"http://localhost:{port}") as app,
        serve(app.asgi, port),
        browser.browser() as chromium,
    ):
        yield browser.BrowserApp(app, f"http://localhost:{port}", chromium)


@asynccontextmanager
async def device(page: Any) -> AsyncIterator[Any]:
    """An authenticator that stores passkeys and always verifies its user."""
    session = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    added = await session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    yield session, added["authenticatorId"]


async def link(app: AppFixture, email: str) -> str:
    """Return a sign-in link of an account."""
    account = await app.database.read(accounts.by_email(email))
    moment = await app.database.read(now())
    return await app.database.write(login_sessions.new_link(account.id, moment))


async def csrf(page: Any) -> str:
    return str(await page.get_attribute("form[data-csrf]", "data-csrf"))


def alter(answer: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a response with other client data."""
    text = answer["response"]["clientDataJSON"]
    data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) | changes
    lie = base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()
    return {**answer, "response": {**answer["response"], "clientDataJSON": lie}}


def test_passkeys_belong_to_the_public_address() -> None:
    assert relying_party(Settings(public_url="https://six.example.com")) == passkeys.RelyingParty(
        "six.example.com", "https://six.example.com"
    )
    assert relying_party(Settings()) == passkeys.RelyingParty("localhost", "http://localhost:8600")
    for without in ("http://six.example.com", "https://192.0.2.7", "https://[2001:db8::1]"):
        assert relying_party(Settings(public_url=without)) is None


@pytest.mark.browser
@browser.needed
async def test_a_passkey_is_added_signs_in_and_is_removed(browser_app: browser.BrowserApp) -> None:
    url = browser_app.url
    async with browser_app.tab() as tab, device(tab.page):
        page = tab.page
        await tab.open("/account/security")
        await page.fill("#add-passkey [name=name]", "My laptop")
        await page.click("#add-passkey button")
        await page.wait_for_selector("#passkeys td:has-text('My laptop')")
        await page.click("text='Sign out'")
        await page.wait_for_url(f"{url}/signin")
        await tab.open("/signin?next=/predictions")
        await page.click("#use-passkey button")
        await page.wait_for_url(f"{url}/predictions")
        await tab.open("/account/security")
        assert "passkey" in await page.inner_text("#sessions tbody tr:has-text('this session')")
        assert "passkey, Chrome on Linux" in await page.inner_text("#log")
        await page.click("button[aria-label='Remove the passkey My laptop']")
        await page.wait_for_selector("#passkeys:not(:has(table))")
        await page.click("text='Sign out'")
        await page.wait_for_url(f"{url}/signin")
        # The 401 that follows is expected.
        tab.page.remove_listener("console", tab.note)
        await page.click("#use-passkey button")
        response = page.locator("#use-passkey [role=status]")
        await browser.playwright.expect(response).to_have_text("The passkey is not valid for this server")


@pytest.mark.browser
@browser.needed
async def test_forged_or_replayed_responses_create_no_passkey(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab, device(tab.page):
        page = tab.page
        # Refusals are expected.
        page.remove_listener("console", tab.note)
        await tab.open("/account/security")
        token = await csrf(page)

        async def sent(answer: Any, form: str = token) -> int:
            return (await page.evaluate(SEND, ["/account/passkeys", {"credential": answer}, form]))[0]

        other_origin = alter(await page.evaluate(MAKE, token), origin="https://evil.example")
        assert await sent(other_origin) == 400
        other_challenge = alter(await page.evaluate(MAKE, token), challenge="AAAA")
        assert await sent(other_challenge) == 400
        other_kind = alter(await page.evaluate(MAKE, token), type="webauthn.get")
        assert await sent(other_kind) == 400
        good = await page.evaluate(MAKE, token)
        assert await sent(good, "wrong") == 403
        assert await sent(good) == 201
        # A challenge can be used only once.
        assert await sent(good) == 400
        for nonsense in (None, [], {}, {"id": 5}, {**good, "response": {}}, {**good, "rawId": "AAAA"}):
            await page.evaluate(SEND, ["/account/passkeys/ask", {}, token])
            assert await sent(nonsense) == 400
        row = await app.database.read(passkeys.of_account(app.account.id))
        assert len(row) == 1


@pytest.mark.browser
@browser.needed
async def test_replayed_forged_or_foreign_passkey_is_refused(browser_app: browser.BrowserApp) -> None:
    app, url, _ = browser_app
    async with browser_app.tab() as tab, device(tab.page):
        page = tab.page
        page.remove_listener("console", tab.note)
        await tab.open("/account/security")
        token = await csrf(page)
        result = await page.evaluate(MAKE, token)
        assert (await page.evaluate(SEND, ["/account/passkeys", {"credential": result}, token]))[0] == 201
        mine = (await app.database.read(passkeys.of_account(app.account.id)))[0]["id"]

        async def sent(answer: Any) -> int:
            return (await page.evaluate(SEND, ["/signin/passkey", {"credential": answer}]))[0]

        await tab.open("/signin")
        for lie in ({"origin": "https://evil.example"}, {"challenge": "AAAA"}, {"type": "webauthn.create"}):
            assert await sent(alter(await page.evaluate(USE), **lie)) == 401
        honest = await page.evaluate(USE)
        forged = {**honest, "response": {**honest["response"], "userHandle": "YWNjdF9iZW4"}}
        assert await sent(forged) == 401
        honest = await page.evaluate(USE)
        # Another browser has another login ticket.
        async with browser_app.tab() as other_account:
            other_account.page.remove_listener("console", other_account.note)
            await other_account.open("/signin")
            send = ["/signin/passkey", {"credential": honest}]
            assert (await other_account.page.evaluate(SEND, send))[0] == 400
            await other_account.open(f"/signin?token={await link(app, 'ben@example.com')}")
            await other_account.open("/account/security")
            form = {"csrf": await csrf(other_account.page)}
            there = f"{url}/account/passkeys/{mine}/remove"
            assert (await other_account.page.request.post(there, form=form)).status == 404
        assert await sent(honest) == 200
        assert await sent(honest) == 400


# A client that does not require the user's verification, against the options.
USE_UNVERIFIED = USE.replace(
    "decodeOptions(options)", 'decodeOptions({ ...options, userVerification: "discouraged" })'
)


@pytest.mark.browser
@browser.needed
async def test_unverified_copied_or_erased_passkey_is_refused(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab, device(tab.page) as (session, authenticator):
        page = tab.page
        page.remove_listener("console", tab.note)
        await tab.open("/account/security")
        token = await csrf(page)
        credential = await page.evaluate(MAKE, token)
        async with browser_app.tab() as second:
            second.page.remove_listener("console", second.note)
            await second.open(f"/signin?token={await link(app, 'ben@example.com')}")
            await second.open("/account/security")
            foreign = await csrf(second.page)
            await second.page.evaluate(SEND, ["/account/passkeys/ask", {}, foreign])
            send = ["/account/passkeys", {"credential": credential}, foreign]
            assert (await second.page.evaluate(SEND, send))[0] == 400, "the response to another's challenge"
        assert (await page.evaluate(SEND, ["/account/passkeys", {"credential": credential}, token]))[0] == 201

        async def sign_in(script: str = USE) -> tuple[int, str]:
            await tab.open("/signin")
            send = ["/signin/passkey", {"credential": await page.evaluate(script)}]
            status, body = await page.evaluate(SEND, send)
            return status, str(body.get("error"))

        target = {"authenticatorId": authenticator}
        await session.send("WebAuthn.setUserVerified", {**target, "isUserVerified": False})
        assert (await sign_in(USE_UNVERIFIED))[0] == 401
        await session.send("WebAuthn.setUserVerified", {**target, "isUserVerified": True})
        assert (await sign_in())[0] == 200
        (stored,) = (await session.send("WebAuthn.getCredentials", target))["credentials"]
        assert (await sign_in())[0] == 200
        # A copy of the authenticator that was made earlier counts from a lower number.
        await session.send("WebAuthn.clearCredentials", target)
        await session.send("WebAuthn.addCredential", {**target, "credential": stored})
        status, _ = await sign_in()
        assert status == 401
        ahead = {**stored, "signCount": stored["signCount"] + 9}
        await session.send("WebAuthn.clearCredentials", target)
        await session.send("WebAuthn.addCredential", {**target, "credential": ahead})
        account = await app.database.read(accounts.by_id(app.account.id))
        await app.database.write(deletion.close(account, 0))
        assert await bootstrap.account_deletion(app.server).sweep() == 1
        assert (await sign_in())[0] == 401


async def test_passkey_challenges_are_same_origin_and_rate_limited(app: AppFixture) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        response = await app.client.post("/signin/passkey/ask", headers=headers)
        assert response.status_code == 403
    assert (await app.client.post("/account/passkeys/ask")).status_code == 401
    responses = [await app.client.post("/signin/passkey/ask") for _ in range(31)]
    assert [response.status_code for response in responses] == [200] * 30 + [429]
    cookie = responses[0].headers["Set-Cookie"]
    assert "HttpOnly" in cookie


async def test_response_of_an_authenticator_may_have_16_kib(app: AppFixture) -> None:
    statuses = [
        (await app.client.post("/signin/passkey", json={"credential": {"id": "a" * size}})).status_code
        for size in (16_000, 17_000)
    ]
    assert statuses[0] != 413
    assert statuses[1] == 413
