"""The end of a credential ends every stream, socket, session and token derived from it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets

from sixfold import errors
from sixfold.app import asgi, bootstrap
from sixfold.app.bootstrap import Application
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, connections, credentials, keys, rights
from sixfold.core.accounts.authentication import key_changes, login_sessions, oauth
from sixfold.core.accounts.keys import Holder
from sixfold.core.accounts.organizations import invitations, members, organizations, teams
from sixfold.core.accounts.organizations.invitations import Inviter
from sixfold.core.accounts.rights import Rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Transaction, many, one
from sixfold.core.sessions.states import TERMINAL
from tests.api.app_fixture import ORIGIN, AppFixture, bearer, client, running_app, small_models
from tests.api.gateway import running_gateway
from tests.api.test_comfyui_clients import running_server
from tests.api.test_oauth import BACK, OAuthClient, tools
from tests.api.test_pages import signed_in
from tests.harness import backends, postgres
from tests.harness.waiting import wait_until
from tests.mcp.agent import Agent

RUN, PREDICTIONS = "/api/containers/run", "/api/containers/predictions"
REVOKED = '"code": "revoked"'
ON_POSTGRES = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


async def key_id(app: AppFixture, key: str) -> str:
    row = await app.database.read(one("key_by_hash", hash=keys.hash_of(key)))
    assert row is not None
    return str(row["key_id"])


async def slow(app: AppFixture, headers: dict[str, str] | None = None) -> str:
    """Return the id of a prediction that runs until it is canceled; `headers` replace the account's key."""
    body = {"model": "ra1", "input": {"prompt": "SLOW"}, "wait": 0}
    response = await app.client.post(RUN, json=body, headers=headers or app.bearer)
    return str(response.json()["id"])


async def until_open(application: Application, count: int = 1) -> None:
    """Wait until `count` connections are registered."""
    await wait_until(lambda: len(application.connections) >= count, 8)


async def until_ended(streams: list[asyncio.Task[httpx.Response]]) -> list[str]:
    async with asyncio.timeout(8):
        return [response.text for response in await asyncio.gather(*streams)]


@asynccontextmanager
async def second_server(app: AppFixture) -> AsyncIterator[tuple[Application, httpx.AsyncClient]]:
    """Another server on the same database and files."""
    application = bootstrap.build(app.settings, small_models())
    async with bootstrap.running(application), client(asgi.create_app(application)) as visitor:
        yield application, visitor


async def revoke_key(app: AppFixture) -> Transaction[Any]:
    return keys.revoke(await key_id(app, app.key))


async def close_account(app: AppFixture) -> Transaction[Any]:
    account = await app.database.read(accounts.by_id(app.account.id))
    return deletion.close(account, 1)


async def end_with_keys(app: AppFixture) -> Transaction[Any]:
    return credentials.change_password(app.account.id, "hash", with_keys=True)


@pytest.mark.parametrize("ending", [revoke_key, close_account, end_with_keys])
async def test_streams_of_a_key_end_with_it(
    any_database_app: AppFixture, ending: Callable[[AppFixture], Any]
) -> None:
    app = any_database_app
    events = f"{PREDICTIONS}/{await slow(app)}/events"
    other = await app.limited_key(keys.UNLIMITED)
    streams = [asyncio.create_task(app.client.get(events, headers=app.bearer)) for _ in range(3)]
    staying = asyncio.create_task(app.client.get(events, headers=bearer(other)))
    await until_open(app.server, 4)
    await app.database.write(await ending(app))
    assert all(REVOKED in text for text in await until_ended(streams))
    if ending is revoke_key:
        assert len(app.server.connections) == 1, "a stream of another key goes on"
        staying.cancel()
    else:
        assert REVOKED in (await until_ended([staying]))[0]


class TestSeveral:
    pytestmark = ON_POSTGRES

    async def test_streams_end_on_the_other_server_too(self, tmp_path: Path) -> None:
        backends.database_url(tmp_path, "postgres")
        async with running_app(tmp_path) as app, second_server(app) as (application, visitor):
            events = f"{PREDICTIONS}/{await slow(app)}/events"
            stream = asyncio.create_task(visitor.get(events, headers=app.bearer))
            await until_open(application)
            await app.database.write(keys.revoke(await key_id(app, app.key)))
            assert REVOKED in (await until_ended([stream]))[0]


async def test_event_stream_of_a_page_ends_with_its_session(any_database_app: AppFixture) -> None:
    app = any_database_app
    await signed_in(app)
    events = f"/pages/predictions/{await slow(app)}/events"
    stream = asyncio.create_task(app.client.get(events))
    await until_open(app.server)
    await app.database.write(login_sessions.end_others(app.account.id))
    assert REVOKED in (await until_ended([stream]))[0]


async def test_revoked_chat_stream_ends_and_charges_delivered_tokens(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        body = {
            "model": "acme/small",
            "stream": True,
            "messages": [{"role": "user", "content": "say 40 words"}],
        }
        gateway.acme.mode = "hang"
        gateway.acme.mode = "trickle"
        request = asyncio.create_task(
            gateway.app.client.post("/v1/chat/completions", json=body, headers=gateway.headers)
        )
        await until_open(gateway.app.server)
        async with asyncio.timeout(8):
            await gateway.acme.request_event.wait()
        await gateway.app.database.write(keys.revoke(await key_id(gateway.app, gateway.app.key)))
        answer = (await until_ended([request]))[0]
        assert REVOKED in answer
        assert "[DONE]" not in answer
        row = await gateway.app.database.read(many("ledger_held"))
        assert row[0]["held"] == 0
        account = await gateway.app.database.read(accounts.by_id(gateway.app.account.id))
        assert 5_000_000 - 40_000 < account.posted < 5_000_000, "what was delivered is charged"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/ollama/api/chat", {"messages": [{"role": "user", "content": "say 40 words"}]}),
        ("/ollama/api/generate", {"prompt": "say 40 words"}),
        ("/v1/chat", {"message": "say 40 words"}),
    ],
)
async def test_revoked_stream_of_lines_ends_with_an_error(
    either: Path, path: str, fields: dict[str, Any]
) -> None:
    async with running_gateway(either) as gateway:
        gateway.acme.mode = "trickle"
        body = {"model": "acme/small", "stream": True, **fields}
        sent = gateway.app.client.post(path, json=body, headers=gateway.headers)
        request = asyncio.create_task(sent)
        await until_open(gateway.app.server)
        async with asyncio.timeout(8):
            await gateway.acme.request_event.wait()
        await gateway.app.database.write(keys.revoke(await key_id(gateway.app, gateway.app.key)))
        last = json.loads((await until_ended([request]))[0].splitlines()[-1])
        assert last["error"] == "This credential was revoked"


async def test_a_tool_that_waits_for_a_run_ends_with_its_key(any_database_app: AppFixture) -> None:
    app = any_database_app
    other = await app.limited_key(keys.UNLIMITED)
    arguments = {"id": await slow(app), "wait": 600}
    call = asyncio.create_task(Agent(app, other).error_of("prediction", **arguments))
    await until_open(app.server)
    await app.database.write(keys.revoke(await key_id(app, other)))
    async with asyncio.timeout(8):
        assert await call == "Invalid API key."


async def test_responses_without_a_stream_are_not_registered(app: AppFixture) -> None:
    streams: list[object] = []
    connections: Any = app.server.connections
    connections.add = lambda *inputs: streams.append(inputs)
    await app.client.get("/api/account", headers=app.bearer)
    await app.client.post(RUN, json={"model": "ra1", "input": {"prompt": "x"}}, headers=app.bearer)
    assert streams == []


async def test_sockets_end_with_their_key(tmp_path: Path) -> None:
    async with running_server(tmp_path, testing=False) as stage:
        app = stage.app
        path = "/api/containers/motion-model/sessions"
        body = (await app.client.post(path, json={}, headers=app.bearer)).json()
        live = f"ws://{stage.script.address}/ws/" + body["ws_url"].partition("/ws/")[2]
        response = f"ws://{stage.script.address}/ws?clientId=one&token={app.key}"
        async with websockets.connect(live) as session, websockets.connect(response) as comfy:
            await until_open(app.server, 2)
            await app.database.write(keys.revoke(await key_id(app, app.key)))
            async with asyncio.timeout(8):
                for socket in (session, comfy):
                    await socket.wait_closed()
                    assert socket.close_code == 4401
        await wait_until(lambda: not app.server.live_sessions.running, 8)
        final_session = await app.server.live_sessions.find(body["session_id"], Tenant(app.account.id))
        assert (final_session.state in TERMINAL, final_session.reason) == (True, "revoked")
        assert await app.faults() == ()


# -- programs --------------------------------------------------------------------------------------


async def _revoked_key(app: AppFixture, tokens: dict[str, Any]) -> None:
    await app.database.write(keys.revoke(await key_id(app, tokens["access_token"])))


async def _password_of_the_page(app: AppFixture, _tokens: dict[str, Any]) -> None:
    csrf = await signed_in(app)
    form = {"csrf": csrf, "password": "a long password"}
    response = await app.client.post("/account/password", data=form, headers={"Origin": ORIGIN})
    assert response.status_code == 303


async def _password_of_the_command_line(app: AppFixture, _tokens: dict[str, Any]) -> None:
    await app.database.write(credentials.change_password(app.account.id, "hash"))


async def _closing(app: AppFixture, _tokens: dict[str, Any]) -> None:
    await app.database.write(await close_account(app))
    await app.database.write(deletion.reopen(app.account.id))


async def _the_button(app: AppFixture, _tokens: dict[str, Any]) -> None:
    csrf = await signed_in(app)
    page = (await app.client.get("/account/security")).text
    result = re.search(r'action="(/account/programs/[^"]+/end)"', page)
    assert result is not None
    assert "A helpful assistant" in page
    assert "Read and write the memory" in page
    response = await app.client.post(result[1], data={}, headers={"Origin": ORIGIN})
    assert response.status_code == 403
    answer = await app.client.post(result[1], data={"csrf": csrf}, headers={"Origin": ORIGIN})
    assert answer.status_code == 303
    assert "No program has access" in (await app.client.get("/account")).text


@pytest.mark.parametrize(
    "ending", [_revoked_key, _password_of_the_page, _password_of_the_command_line, _closing, _the_button]
)
async def test_revoked_oauth_client_loses_all_its_tokens(
    any_database_app: AppFixture, ending: Callable[[AppFixture, dict[str, Any]], Any]
) -> None:
    app = any_database_app
    program = await OAuthClient.registered(app)
    tokens = [await program.tokens(scope="memory")]
    for _ in range(3):
        tokens.append((await program.refresh(tokens[-1]["refresh_token"])).json())
    await ending(app, tokens[-1])
    for each in reversed(tokens):
        assert (await program.refresh(each["refresh_token"])).status_code == 400
        used = await tools(app, each["access_token"])
        assert used.status_code == 401


@pytest.mark.parametrize("age", [1, 2, 3])
async def test_reused_refresh_token_ends_all_tokens_of_its_grant(
    any_database_app: AppFixture, age: int
) -> None:
    app = any_database_app
    program = await OAuthClient.registered(app)
    tokens = [await program.tokens(scope="memory")]
    for _ in range(3):
        tokens.append((await program.refresh(tokens[-1]["refresh_token"])).json())
    assert (await program.refresh(tokens[-1 - age]["refresh_token"])).status_code == 400
    assert (await program.refresh(tokens[-1]["refresh_token"])).status_code == 400
    used = await tools(app, tokens[-1]["access_token"])
    assert used.status_code == 401
    assert await app.database.read(oauth.of_account(app.account.id)) == ()


async def test_oauth_stream_survives_token_expiry_but_not_revocation(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    first = await program.tokens(scope="models")
    headers = bearer(first["access_token"])
    events = f"{PREDICTIONS}/{await slow(app, headers)}/events"
    stream = asyncio.create_task(app.client.get(events, headers=headers))
    await until_open(app.server)
    second = (await program.refresh(first["refresh_token"])).json()
    assert await app.server.connections.check() == 0
    await app.database.write(keys.revoke(await key_id(app, second["access_token"])))
    assert REVOKED in (await until_ended([stream]))[0]


async def test_password_change_can_end_sessions_and_keys(app: AppFixture) -> None:
    csrf = await signed_in(app)
    page = (await app.client.get("/account/security")).text
    # Programs keep running unless the user decides otherwise.
    assert re.search(r'name="end_keys" value="1" aria-describedby="what-ends">', page)
    other = app.visitor()
    token = await app.database.write(
        login_sessions.new_session(app.account.id, 2**60, login_sessions.LoginDetails("x"))
    )
    other.cookies.set("sixfold_session", token)
    form = {"csrf": csrf, "password": "a long password"}
    response = await app.client.post("/account/password", data=form, headers={"Origin": ORIGIN})
    assert "Your API keys are still valid." in (await app.client.get(response.headers["location"])).text
    assert (await other.get("/account")).status_code == 303
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200
    form |= {"current": "a long password", "end_keys": "1"}
    response = await app.client.post("/account/password", data=form, headers={"Origin": ORIGIN})
    assert "and your API keys have ended" in (await app.client.get(response.headers["location"])).text
    assert (await app.client.get("/account")).status_code == 200
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 401


async def test_end_of_all_keys_includes_teams_and_invitations(any_database_app: AppFixture) -> None:
    app = any_database_app
    read, write = app.database.read, app.database.write
    ben = (await read(accounts.by_email("ben@example.com"))).id
    admin = await write(members.add(app.account.id, ben, "admin", "operator"))
    organization = (await write(organizations.create(app.account.id, "acme"))).id
    owner = await read(members.of_person(organization, app.account.id))
    assert owner is not None
    own, foreign = [await write(teams.create(each, "Vision")) for each in (app.account.id, organization)]
    created = Holder(None, foreign.id, creator_member_id=owner.id)
    ended = [
        await write(keys.create(app.account.id, granted=Rights.RUN, holder=Holder(None, own.id))),
        await write(keys.create(organization, granted=Rights.RUN, holder=created)),
    ]
    kept = await write(keys.create(app.account.id, holder=Holder(admin.id)))
    for account_id, member_id in (
        (app.account.id, None),
        (organization, owner.id),
        (app.account.id, admin.id),
    ):
        await write(invitations.create(account_id, Inviter("x", member_id), "member"))
    await write(credentials.end_all(app.account.id, with_keys=True))
    for key in ended:
        with pytest.raises(errors.Unauthenticated):
            await read(keys.authenticate(key.api_key))
    await read(keys.authenticate(kept.api_key))
    assert await read(invitations.of_account(organization)) == ()
    assert len(await read(invitations.of_account(app.account.id))) == 1


@pytest.mark.parametrize("kind", ["program", "limited key", "key"])
async def test_shares_end_with_their_program_or_key(any_database_app: AppFixture, kind: str) -> None:
    app = any_database_app
    await app.client.post("/api/pages", json={"slug": "plan", "body": "first"}, headers=app.bearer)
    if kind == "program":
        secret = (await (await OAuthClient.registered(app)).tokens(scope="models"))["access_token"]
    else:
        granted = rights.Rights.RUN | rights.MEMORY if kind == "limited key" else None
        secret = (await app.database.write(keys.create(app.account.id, granted=granted))).api_key
    body = {"kind": "page", "id": "plan"}
    theirs = await app.client.post("/api/shares", json=body, headers=bearer(secret))
    own = await app.client.post("/api/shares", json=body, headers=app.bearer)
    links = [response.json()["url"] for response in (theirs, own)]
    assert [(await app.visitor().get(link)).status_code for link in links] == [200, 200]
    await app.database.write(keys.revoke(await key_id(app, secret)))
    assert [(await app.visitor().get(link)).status_code for link in links] == [404, 200]
    left = (await app.client.get("/api/shares", headers=app.bearer)).json()["shares"]
    assert [each["id"] for each in left] == [own.json()["id"]]
    await app.client.post("/api/shares", json=body, headers=app.bearer)
    rows = await app.exported("export_shares")
    assert theirs.json()["id"] not in {row["id"] for row in rows}


@pytest.mark.parametrize(("keep", "status"), [(0, 404), (3600, 200)])
async def test_shares_of_a_replaced_key_stay_if_it_is_kept(
    any_database_app: AppFixture, keep: int, status: int
) -> None:
    app, write = any_database_app, any_database_app.database.write
    await app.client.post("/api/pages", json={"slug": "work/plan", "body": "first"}, headers=app.bearer)
    body = {"kind": "page", "id": "work/plan"}
    link = (await app.client.post("/api/shares", json=body, headers=app.bearer)).json()["url"]
    folder = {"folder": "work", "with": "ben@example.com"}
    share_id = (await app.client.post("/api/shared-folders", json=folder, headers=app.bearer)).json()["id"]

    async def statuses() -> list[int]:
        headers = bearer(app.other) | {"X-Sixfold-Memory": share_id}
        page = await app.client.get("/api/pages/work/plan", headers=headers)
        return [(await app.visitor().get(link)).status_code, page.status_code]

    assert await statuses() == [200, 200]
    old = await key_id(app, app.key)
    new = await write(key_changes.roll(app.account.id, old, keep_us=keep * SECOND_US))
    if keep:
        await write(keys.revoke(old))
    assert await statuses() == [status, status]
    await write(keys.revoke(new.id))
    assert await statuses() == [404, 404]


async def test_programs_of_members_end_when_the_organization_is_closed(any_database_app: AppFixture) -> None:
    app = any_database_app
    read, write = app.database.read, app.database.write
    ben = await read(accounts.by_email("ben@example.com"))
    admin = await write(members.add(app.account.id, ben.id, "admin", "operator"))
    program = await OAuthClient.registered(app)
    registered = await read(oauth.client(program.id))
    request = oauth.parse_authorization_request(registered, BACK, program.asks(), ())
    tokens = (await program.change(await write(oauth.grant(app.account.id, request, admin.id)))).json()
    headers = bearer(tokens["access_token"])
    assert (await app.client.get("/api/pages", headers=headers)).status_code == 200
    await write(deletion.close(app.account, 7))
    await write(deletion.reopen(app.account.id))
    assert (await app.client.get("/api/pages", headers=headers)).status_code == 401
    assert (await program.refresh(tokens["refresh_token"])).status_code == 400
    assert (await app.client.get("/api/pages", headers=app.bearer)).status_code == 200


async def test_a_check_without_a_response_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to the database that is lost without an error delays the end by one time limit."""
    monkeypatch.setattr(connections, "_FIRST_SECONDS", 0.01)
    database, ended = LostConnection(), asyncio.Event()
    opened = connections.Connections(database)  # pyright: ignore[reportArgumentType] - only `read` is called
    opened.add(connections.Credential("key", "key_1"), ended.set)
    checking = asyncio.create_task(opened.run())
    async with asyncio.timeout(8):
        await ended.wait()
    checking.cancel()
    assert database.reads == 2


class LostConnection:
    """A database whose first read does not end, and whose second one finds no valid credential."""

    reads = 0

    async def read(self, _transaction: Transaction[Any], **_: Any) -> set[Any]:
        self.reads += 1
        if self.reads == 1:
            await asyncio.Event().wait()
        return set()
