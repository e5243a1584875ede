"""Access that ends while a request uses it: the request neither keeps it nor creates other access."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from sixfold import errors
from sixfold.core.accounts import accounts, connections, credentials, keys, rights
from sixfold.core.accounts.authentication import auth_challenges, login_sessions, oauth, passkeys
from sixfold.core.accounts.authentication.auth_challenges import Content
from sixfold.core.accounts.keys import Holder
from sixfold.core.accounts.organizations import invitations, members, organizations
from sixfold.core.accounts.organizations.invitations import Inviter
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.database import Transaction
from sixfold.core.gateway.guardrails import models, storage
from sixfold.core.gateway.guardrails.models import Guardrail, HookSettings
from sixfold.core.memory.import_export.files import BATCH_FILES
from sixfold.ui.login import passwords, webauthn
from sixfold.ui.login.sessions import LoginService
from sixfold.ui.login.webauthn import NewPasskey
from sixfold.web.sessions import SessionCookies
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_memory import zip_of
from tests.api.test_oauth import AUTHORIZE, OAuthClient
from tests.api.test_own_work import GRAPH
from tests.api.test_pages import signed_in

Ending = Callable[[str, str], Transaction[None]]
OLD, NEW, EVIL = "correct horse", "battery staple", "evil password"
CREDENTIAL: Mapping[str, Any] = {"id": "Y3JlZGVudGlhbA", "response": {}}


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "HASHES", PasswordHash((quick,)))


def during(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    change: Callable[[], Any],
    *,
    before: bool = False,
) -> None:
    """Run a change once, after (or before) the next call of a method."""
    original, pending = getattr(owner, name), [change]

    async def wrapped(*arguments: Any, **options: Any) -> Any:
        if before and pending:
            await pending.pop()()
        result = await original(*arguments, **options)
        if not before and pending:
            await pending.pop()()
        return result

    monkeypatch.setattr(owner, name, wrapped)


async def set_password(app: AppFixture, password: str) -> None:
    """Change the password as the account's user does in another browser, which ends all other sessions."""
    await app.database.write(credentials.change_password(app.account.id, passwords.make(password)))


async def is_password(app: AppFixture, password: str) -> bool:
    account = await app.database.read(accounts.by_id(app.account.id))
    return passwords.verify(password, account.password_hash)


async def sessions_of(app: AppFixture) -> int:
    return len(await app.database.read(login_sessions.of_account(app.account.id, "")))


async def test_old_password_checked_before_its_change_opens_no_session(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    await set_password(app, OLD)
    during(monkeypatch, LoginService, "check_password", lambda: set_password(app, NEW))
    form = {"email": app.account.email, "password": OLD}
    refused = await app.visitor().post("/signin", data=form)
    assert (refused.status_code, "sixfold_session" in refused.headers.get("set-cookie", "")) == (401, False)
    assert "password was changed" in refused.text
    assert await sessions_of(app) == 0
    form["password"] = NEW
    assert (await app.visitor().post("/signin", data=form)).status_code == 303


async def test_session_ended_during_its_request_sets_no_password(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    await set_password(app, OLD)
    csrf = await signed_in(app)
    during(monkeypatch, LoginService, "check_password", lambda: set_password(app, NEW))
    form = {"csrf": csrf, "current": OLD, "password": EVIL}
    assert (await app.client.post("/account/password", data=form)).status_code == 401
    assert await is_password(app, NEW)


async def test_passkey_removed_during_sign_in_opens_no_session(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    added = await app.database.write(passkeys.add(app.account.id, b"credential", b"public", 0, ""))
    monkeypatch.setattr(webauthn, "verify_authentication", lambda *_: 0)
    visitor = app.visitor()

    async def remove() -> None:
        await app.database.write(passkeys.remove(app.account.id, added))

    async def sign_in() -> int:
        await visitor.post("/signin/passkey/ask")
        return (await visitor.post("/signin/passkey", json={"credential": CREDENTIAL})).status_code

    assert await sign_in() == 200
    during(monkeypatch, LoginService, "open_session", remove, before=True)
    assert await sign_in() == 401
    assert await sessions_of(app) == 0


async def test_session_ended_during_its_request_adds_no_passkey(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    headers = {"X-CSRF-Token": await signed_in(app)}
    consume = auth_challenges.consume

    def consume_last(kind: str, token: str) -> Transaction[Content]:
        content = yield from consume(kind, token)
        yield from login_sessions.end_others(app.account.id)
        return content

    monkeypatch.setattr(auth_challenges, "consume", consume_last)
    monkeypatch.setattr(webauthn, "verify_registration", lambda *_: NewPasskey(b"new", b"public", 0))
    assert (await app.client.post("/account/passkeys/ask", headers=headers)).status_code == 200
    sent = await app.client.post("/account/passkeys", json={"credential": CREDENTIAL}, headers=headers)
    assert sent.status_code == 401
    assert not await app.database.read(passkeys.of_account(app.account.id))


async def test_session_ended_during_its_request_authorizes_no_program(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    csrf = await signed_in(app)
    program = await OAuthClient.registered(app)

    async def end() -> None:
        await app.database.write(login_sessions.end_others(app.account.id))

    during(monkeypatch, SessionCookies, "of", end)
    form = {**program.asks(), "csrf": csrf, "decision": "allow"}
    response = await app.client.post(AUTHORIZE, data=form)
    assert response.status_code == 401
    assert not await app.database.read(oauth.of_account(app.account.id))


def remove(account_id: str, member_id: str) -> Transaction[None]:
    yield from members.remove(account_id, member_id)


def demote(account_id: str, member_id: str) -> Transaction[None]:
    yield from members.change(account_id, member_id, role="member")


@pytest.mark.parametrize("end", [remove, demote])
async def test_former_admin_cannot_invite_members(any_database_app: AppFixture, end: Ending) -> None:
    """A request that was authenticated before the end of the role of its member writes after it."""
    app = any_database_app
    write, read = app.database.write, app.database.read
    ben = await read(accounts.by_email("ben@example.com"))
    admin = await write(members.add(app.account.id, ben.id, "admin", "operator"))
    inviter = Inviter("ben@example.com", admin.id)
    earlier = await write(invitations.create(app.account.id, inviter, "member"))
    assert (await read(invitations.find(earlier.token))).role == "member"
    await write(end(app.account.id, admin.id))
    with pytest.raises(errors.NotFound):
        await write(invitations.create(app.account.id, inviter, "admin"))
    person = await write(accounts.create("new@example.com"))
    with pytest.raises(errors.NotFound):
        await write(invitations.accept(earlier.token, person.id))
    assert await read(invitations.of_account(app.account.id)) == ()


@pytest.mark.parametrize("end", [remove, demote])
async def test_hook_of_a_former_admin_gets_no_calls(any_database_app: AppFixture, end: Ending) -> None:
    """A request that was authenticated before the end of the role of its member sets the hook after it."""
    app = any_database_app
    write, read = app.database.write, app.database.read
    ben = await read(accounts.by_email("ben@example.com"))
    admin = await write(members.add(app.account.id, ben.id, "admin", "operator"))
    guardrail = Guardrail(("emails",), hook=HookSettings("https://guard.example/check"))

    async def active_hook() -> HookSettings | None:
        await write(storage.set_guardrail(app.account.id, "", guardrail, admin.id))
        active = models.decode(await read(storage.account_guardrail(app.account.id)))
        assert active.mask == ("emails",)
        return active.hook

    assert await active_hook() == guardrail.hook
    await write(end(app.account.id, admin.id))
    assert await active_hook() is None


async def test_folder_that_a_former_admin_shares_is_not_received(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, path = any_database_app, "/api/shared-folders"
    zoe = await app.database.write(accounts.create("zoe@example.com"))
    admin = await app.database.write(members.add(app.account.id, zoe.id, "admin", "operator"))
    key = await app.database.write(keys.create(app.account.id, holder=Holder(member_id=admin.id)))

    async def received() -> int:
        return len((await app.client.get(path, headers=bearer(app.other))).json()["received"])

    async def share(folder: str) -> int:
        body = {"folder": folder, "with": "ben@example.com"}
        return (await app.client.post(path, json=body, headers=bearer(key.api_key))).status_code

    assert (await share("a"), await received()) == (201, 1)
    end = demote(app.account.id, admin.id)
    during(monkeypatch, type(app.database), "write", lambda: app.database.write(end), before=True)
    assert (await share("b"), await received()) == (201, 0)


async def in_parts(data: bytes, change: Callable[[], Awaitable[object]]) -> AsyncIterator[bytes]:
    """Yield the beginning of a body, and the rest after a change."""
    yield data[:1]
    await change()
    yield data[1:]


async def admin_of(app: AppFixture) -> tuple[Member, str]:
    """Make the second account an admin of the first; return the member and a key of it."""
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    admin = await app.database.write(members.add(app.account.id, ben.id, "admin", "operator"))
    key = keys.create(app.account.id, granted=rights.STANDARD, holder=Holder(member_id=admin.id))
    return admin, (await app.database.write(key)).api_key


async def role_of(app: AppFixture, member: Member) -> str:
    return (await app.database.read(members.find(app.account.id, member.id))).role


@pytest.fixture
def every_request_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LATE_SECONDS", 0)


@pytest.mark.usefixtures("every_request_is_late")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/api/account/guardrails", {"hook": {"url": "https://guard.example/check"}}),
        ("DELETE", "/api/account", {"confirm": "ada@example.com"}),
        ("POST", "/api/ra1", {"prompt": "a lake"}),
        ("POST", "/v1/chat/completions", {"model": "text-llm", "messages": []}),
        ("POST", "/api/pages", {"slug": "a", "body": "b"}),
    ],
)
async def test_a_key_revoked_before_the_end_of_a_body_is_refused(
    any_database_app: AppFixture, method: str, path: str, body: Mapping[str, Any]
) -> None:
    app = any_database_app
    key = await app.database.write(keys.create(app.account.id))

    async def revoke() -> None:
        await app.database.write(keys.revoke(key.id))

    content = in_parts(json.dumps(body).encode(), revoke)
    headers = {**bearer(key.api_key), "Content-Type": "application/json"}
    response = await app.client.request(method, path, content=content, headers=headers)
    assert response.status_code == 401, response.text
    account = await app.database.read(accounts.by_id(app.account.id))
    assert (account.closing_at, account.held) == (None, 0)
    assert not await app.database.read(storage.guardrails_of(app.account.id))


@pytest.mark.usefixtures("every_request_is_late")
async def test_a_session_that_ends_before_a_form_creates_no_key(any_database_app: AppFixture) -> None:
    app = any_database_app
    csrf = await signed_in(app)
    live = await app.database.read(keys.live(app.account.id))

    async def end() -> None:
        await app.database.write(login_sessions.end_others(app.account.id))

    form = urlencode({"csrf": csrf, "name": "stolen"}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await app.client.post("/account/keys", content=in_parts(form, end), headers=headers)
    assert (response.status_code, "sf_" in response.text) == (401, False)
    assert await app.database.read(keys.live(app.account.id)) == live


@pytest.mark.usefixtures("every_request_is_late")
async def test_an_admin_demoted_before_the_end_of_a_body_is_refused(any_database_app: AppFixture) -> None:
    app = any_database_app
    admin, key = await admin_of(app)

    async def end() -> None:
        await app.database.write(demote(app.account.id, admin.id))

    response = await app.client.patch(
        f"/api/organization/members/{admin.id}",
        content=in_parts(b'{"role": "admin"}', end),
        headers=bearer(key),
    )
    assert (response.status_code, await role_of(app, admin)) == (403, "member")


async def test_a_request_of_a_demoted_admin_restores_no_role(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    admin, key = await admin_of(app)
    end = demote(app.account.id, admin.id)
    during(monkeypatch, type(app.database), "write", lambda: app.database.write(end), before=True)
    response = await app.client.patch(
        f"/api/organization/members/{admin.id}", json={"role": "admin"}, headers=bearer(key)
    )
    assert (response.status_code, await role_of(app, admin)) == (403, "member")


@pytest.mark.parametrize("path", ["/account/keys", "/account/members/keys"])
async def test_session_ended_during_its_request_creates_no_key(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    app = any_database_app
    csrf = await signed_in(app)
    live = await app.database.read(keys.live(app.account.id))
    end = login_sessions.end_others(app.account.id)
    during(monkeypatch, type(app.database), "write", lambda: app.database.write(end), before=True)
    response: httpx.Response = await app.client.post(path, data={"csrf": csrf})
    assert (response.status_code, "sf_" in response.text) == (401, False)
    assert await app.database.read(keys.live(app.account.id)) == live


async def test_former_owner_creates_no_key_of_the_organization(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key without a member would remain valid after the membership of its creator has ended."""
    app, write = any_database_app, any_database_app.database.write
    await set_password(app, OLD)
    csrf, (admin, _) = await signed_in(app), await admin_of(app)
    live = await app.database.read(keys.live(app.account.id))
    transfer = organizations.transfer(app.account.id, admin.id, "acme")
    during(monkeypatch, type(app.database), "write", lambda: write(transfer), before=True)
    response = await app.client.post("/account/keys", data={"csrf": csrf})
    assert (response.status_code, "sf_" in response.text) == (403, False)
    assert len(await app.database.read(keys.live(app.account.id))) == len(live)


async def test_ended_session_of_an_operator_creates_no_link(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    csrf = await signed_in(app, app.operator)
    end = login_sessions.end_others(app.operator.id)
    during(monkeypatch, type(app.database), "write", lambda: app.database.write(end), before=True)
    response = await app.client.post(f"/admin/people/{app.account.id}/link", data={"csrf": csrf})
    assert (response.status_code, "token=" in response.text) == (401, False)


@pytest.mark.parametrize("operator", [False, True])
async def test_a_key_revoked_during_its_request_deletes_no_alert(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, operator: bool
) -> None:
    app, write = any_database_app, any_database_app.database.write
    fields = {"period": "day", "threshold_usd": "1", "url": "https://example.com/hook"}
    alert = await write(alerts.create(app.account.id, CostAlert(fields)))
    account, path = app.account, "/api/account/alerts"
    if operator:
        account, path = app.operator, "/api/operator/alerts"
    key = await write(keys.create(account.id, granted=rights.ALL if operator else None))
    during(monkeypatch, type(app.database), "write", lambda: write(keys.revoke(key.id)), before=True)
    response = await app.client.delete(f"{path}/{alert['id']}", headers=bearer(key.api_key))
    assert response.status_code == 401
    assert len(await app.database.read(alerts.of_account(app.account.id))) == 1


async def test_ended_session_of_an_operator_creates_no_alert(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    csrf = await signed_in(app, app.operator)
    end = login_sessions.end_others(app.operator.id)
    during(monkeypatch, type(app.database), "write", lambda: app.database.write(end), before=True)
    form = {"csrf": csrf, "account": app.account.email, "period": "day", "threshold_usd": "1"}
    response = await app.client.post("/admin/alerts/create", data={**form, "url": "https://example.com/hook"})
    assert response.status_code == 401
    assert not await app.database.read(alerts.of_account(app.account.id, with_operators=True))


@pytest.mark.usefixtures("every_request_is_late")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/containers/run", {"model": "ra1", "input": {"prompt": "a lake"}}),
        ("/api/ra1", {"prompt": "a lake"}),
        ("/api/create-ai", {"name": "Nova"}),
        ("/api/graph/spaces", {"workflow": GRAPH, "name": "mine"}),
    ],
)
async def test_a_key_revoked_before_the_effect_of_a_request_has_none(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, path: str, body: Mapping[str, Any]
) -> None:
    """A request may wait for minutes for the server of a URL in it."""
    app, write = any_database_app, any_database_app.database.write
    key = await write(keys.create(app.account.id))
    during(monkeypatch, type(app.database), "write", lambda: write(keys.revoke(key.id)), before=True)
    assert (await app.client.post(path, json=body, headers=bearer(key.api_key))).status_code == 401
    assert await app.balance() == ("5.00", "0.00")
    assert (await app.client.get("/api/characters")).json()["characters"] == []
    spaces = (await app.client.get("/api/graph/spaces", headers=app.bearer)).json()["spaces"]
    assert "mine" not in {space["slug"] for space in spaces}


async def test_an_import_stops_when_its_key_is_revoked(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, write = any_database_app, any_database_app.database.write
    key = await write(keys.create(app.account.id))
    archive = zip_of((f"page-{number:03}.md", "text") for number in range(BATCH_FILES + 1))
    during(monkeypatch, type(app.database), "write", lambda: write(keys.revoke(key.id)))
    headers = {**bearer(key.api_key), "Content-Type": "application/zip"}
    response = await app.client.post("/api/import", content=archive, headers=headers)
    assert response.status_code == 401
    assert (await app.client.get(f"/api/pages/page-{BATCH_FILES:03}", headers=app.bearer)).status_code == 404


async def test_a_key_revoked_while_a_document_is_read_writes_no_page(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, write = any_database_app, any_database_app.database.write
    key = await write(keys.create(app.account.id))
    during(monkeypatch, type(app.database), "write", lambda: write(keys.revoke(key.id)), before=True)
    files = {"file": ("a.txt", b"text", "text/plain")}
    response = await app.client.post("/api/documents", files=files, headers=bearer(key.api_key))
    assert response.status_code == 401
    assert (await app.client.get("/api/pages", headers=app.bearer)).json()["pages"] == []


@pytest.mark.usefixtures("every_request_is_late")
async def test_a_session_that_ends_before_its_run_starts_none(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, write = any_database_app, any_database_app.database.write
    form = {"csrf": await signed_in(app), "prompt": "a fox"}
    end = login_sessions.end_others(app.account.id)
    during(monkeypatch, type(app.database), "write", lambda: write(end), before=True)
    assert (await app.client.post("/pages/forms/ra1", data=form)).status_code == 401
    assert await app.balance() == ("5.00", "0.00")
