"""Objects of an account that some of its keys, members and sessions may not access."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, credentials, keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.accounts.rights import Rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.errors import TooManyRequests
from tests.api.app_fixture import ORIGIN, AppFixture, bearer
from tests.api.test_memory_attachments import import_files, vault
from tests.api.test_oauth import OAuthClient
from tests.api.test_organizations import acting, key_of, member
from tests.api.test_pages import link
from tests.api.test_revocations import PREDICTIONS, REVOKED, key_id, slow, until_ended, until_open
from tests.api.test_workflow_changes import PATH as WORKFLOWS
from tests.api.test_workflow_changes import import_workflow as imported_workflow
from tests.mcp.agent import Agent

ANTHROPIC = {"anthropic-version": "2023-06-01"}


async def test_files_of_pages_need_the_rights_to_the_memory(any_database_app: AppFixture) -> None:
    app = any_database_app
    await import_files(app, vault())
    items = (await app.client.get("/v1/files", headers=app.bearer)).json()["data"]
    files = [file["id"] for file in items]
    assert len(files) == 2
    reading = Rights.RUN | Rights.ACCOUNT_READ | Rights.MEMORY_READ
    without = bearer(await app.limited_key(KeyLimits(), reading & ~Rights.MEMORY_READ))
    reader = bearer(await app.limited_key(KeyLimits(), reading))
    for api in ({}, ANTHROPIC):
        for headers, count in ((without, 0), (reader, 2)):
            rows = (await app.client.get("/v1/files", headers=headers | api)).json()["data"]
            assert len(rows) == count
    for path in (f"/v1/files/{files[0]}", f"/v1/files/{files[0]}/content"):
        assert (await app.client.get(path, headers=without)).status_code == 404
        assert (await app.client.get(path, headers=reader)).status_code == 200
    store = {"name": "x", "file_ids": [files[0]]}
    assert (await app.client.post("/v1/vector_stores", json=store, headers=without)).status_code == 404
    for headers in (without, reader):
        assert (await app.client.delete(f"/v1/files/{files[0]}", headers=headers)).status_code == 404
    assert (await app.client.delete(f"/v1/files/{files[0]}", headers=app.bearer)).status_code == 200


async def test_replay_is_refused_to_a_key_without_the_right(any_database_app: AppFixture) -> None:
    app = any_database_app
    page = {"slug": "work/plan", "body": "zeppelin"}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    call = {"method": "tools/call", "params": {"name": "read", "arguments": {"slug": "work/plan"}}}
    body = {"jsonrpc": "2.0", "id": 1, **call}

    async def read(key: str) -> str:
        return (await Agent(app, key).post(body, Idempotency_Key="one")).text

    assert "zeppelin" in await read(app.key)
    for granted in (Rights.ACCOUNT_READ, Rights.RUN | Rights.ACCOUNT_READ):
        assert "requires the right memory.read" in await read(await app.limited_key(KeyLimits(), granted))
    assert "zeppelin" in await read(await app.limited_key(KeyLimits(rpm=60)))


async def test_a_key_that_only_writes_sees_no_content_of_pages(any_database_app: AppFixture) -> None:
    app = any_database_app
    page = {"slug": "work/plan", "title": "zeppelin", "body": "zeppelin [[work/other]]", "tags": ["zeppelin"]}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    entry = {"date": "2026-01-01", "summary": "zeppelin"}
    added = await app.client.post("/api/timeline/work/plan", json=entry, headers=app.bearer)
    assert added.status_code == 201
    key = await app.limited_key(KeyLimits(), Rights.MEMORY_WRITE)
    headers = bearer(key)
    edit = {"operation": "append", "content": "more"}
    for method, path, body in (
        ("PATCH", "/api/pages/work/plan", edit),
        ("POST", "/api/versions/work/plan", {"version": 1}),
        ("PUT", "/api/pages/work/plan", {"body": "other"}),
        ("POST", "/api/pages", {"slug": "work/new", "body": "other"}),
        ("DELETE", "/api/pages/work/new", None),
    ):
        answer = await app.client.request(method, path, json=body, headers=headers)
        assert (answer.is_success, "zeppelin" in answer.text) == (True, False), (path, answer.text)
        assert answer.json()["version"]
    agent = Agent(app, key)
    edited = await agent.call("edit", slug="work/plan", **edit)
    assert (edited["slug"], edited["changed"], "zeppelin" in str(edited)) == ("work/plan", True, False)
    for method, path, body in (
        ("POST", "/api/timeline/work/plan", entry),
        ("POST", "/api/tags/work/plan", {"tags": ["new"]}),
        ("DELETE", "/api/tags/work/plan", {"tags": ["new"]}),
        ("POST", "/api/links/work/plan", {"to": "work/new"}),
        ("DELETE", "/api/links/work/plan", {"to": "work/new"}),
        ("POST", FOLDERS, {"folder": "work", "with": "ben@example.com"}),
        ("GET", "/memory/work/plan/~edit", None),
    ):
        answer = await app.client.request(method, path, json=body, headers=headers)
        assert (answer.status_code, "memory.read" in answer.text) == (403, True), (path, answer.text)
    response = await app.client.get("/api/pages/work/plan", headers=app.bearer)
    assert (response.json()["title"], "more" in response.json()["body"]) == ("zeppelin", True)


async def test_a_suspended_person_stops_in_organizations(any_database_app: AppFixture) -> None:
    app = any_database_app
    ben = await member(app, "ben@example.com", "admin")
    headers = bearer(await key_of(app, ben))
    events = f"{PREDICTIONS}/{await slow(app)}/events"
    stream = asyncio.create_task(app.client.get(events, headers=headers))
    await until_open(app.server)
    person = await app.database.read(accounts.by_email("ben@example.com"))
    write = app.database.write
    await write(customers.suspend(app.operator.owner, person.id, suspended=True))
    assert REVOKED in (await until_ended([stream]))[0]
    response = await app.client.get(PREDICTIONS, headers=headers)
    assert (response.status_code, "is suspended" in response.text) == (403, True)
    assert (await app.client.get(PREDICTIONS, headers=app.bearer)).status_code == 200
    keys_path, team = (
        "/api/organization/keys",
        await write(teams.create(app.account.id, "Vision", None, None)),
    )
    grants: list[tuple[str, str, dict[str, str], dict[str, Any]]] = [
        ("POST", keys_path, headers, {"team_id": team.id}),
        ("POST", "/api/organization/invitations", headers, {"email": "alt@example.com"}),
        ("PATCH", f"/api/organization/members/{ben.id}", headers, {"team_id": team.id}),
        ("POST", "/api/organizations", bearer(app.other), {"name": "escape"}),
        ("POST", "/api/organization/accept", bearer(app.other), {"token": "x"}),
    ]
    for method, path, of_ben, body in grants:
        response = await app.client.request(method, path, json=body, headers=of_ben)
        assert (response.status_code, "is suspended" in response.text) == (403, True), path
    assert (await app.client.get(keys_path, headers=headers)).status_code == 200
    await write(customers.suspend(app.operator.owner, person.id, suspended=False))
    assert (await app.client.get(PREDICTIONS, headers=headers)).status_code == 200
    for method, path, of_ben, body in grants[:4]:
        assert (await app.client.request(method, path, json=body, headers=of_ben)).is_success, path


async def test_a_program_changes_no_workflow_of_the_account(app: AppFixture) -> None:
    own = (await imported_workflow(app))["slug"]
    program = bearer(await app.limited_key(KeyLimits(), Rights.RUN | rights.MEMORY))
    for change in (
        app.client.patch(f"{WORKFLOWS}/{own}", json={"name": "taken"}, headers=program),
        app.client.delete(f"{WORKFLOWS}/{own}", headers=program),
    ):
        response = await change
        assert (response.status_code, "account.read" in response.text) == (403, True)
    shown_response = await app.client.get(f"{WORKFLOWS}/{own}", headers=app.bearer)
    assert shown_response.json()["name"] == "mine"


@pytest.mark.parametrize("path", ["_keys", "_keyless", "_keys/a.png", "_keyless/a.png"])
async def test_a_save_path_cannot_be_a_reserved_folder(app: AppFixture, path: str) -> None:
    query = {"prompt": "x", "width": "64", "height": "64", "save_path": path}
    for headers in ({}, bearer(await app.operator_key())):
        response = await app.client.get("/create_and_upload_image", params=query, headers=headers)
        assert (response.status_code, "reserved" in response.text) == (422, True)


async def test_lists_of_models_keep_to_the_limit_of_the_key(app: AppFixture) -> None:
    key = await app.limited_key(KeyLimits(services=("ra1",)))
    headers = bearer(key)

    async def names(path: str, rows: str, field: str) -> list[str]:
        body = (await app.client.get(path, headers=headers)).json()
        return [row.get("model", row)[field] for row in body[rows]]

    assert await names("/v1/models", "data", "id") == ["ra1"]
    assert await names("/replicate/v1/models", "results", "name") == ["ra1"]
    assert await names("/replicate/v1/search?query=image", "models", "name") in ([], ["ra1"])
    assert await names("/replicate/v1/collections/text-to-image", "models", "name") == ["ra1"]
    assert await names("/api/services", "services", "service") == ["ra1"]
    assert await names("/api/graph/spaces", "spaces", "slug") == []
    assert await names("/ollama/api/tags", "models", "name") == []
    own = (await imported_workflow(app))["slug"]
    for path in (
        *(f"{WORKFLOWS}/{own}", f"{WORKFLOWS}/{own}/download", f"{WORKFLOWS}/{own}/graph.svg"),
        *(f"/api/containers/templates/space:{own}", f"/replicate/v1/models/sixfold/space:{own}"),
    ):
        response = await app.client.get(path, headers=headers)
        assert (response.status_code, "may use only ra1" in response.text) == (403, True), path
        assert (await app.client.get(path, headers=app.bearer)).status_code == 200, path
    assert "space:" not in str(await names("/api/containers/templates", "templates", "name"))
    share = {"kind": "workflow", "id": own}
    assert (await app.client.post("/api/shares", json=share, headers=headers)).status_code == 403
    assert (await app.client.post("/api/shares", json=share, headers=app.bearer)).status_code == 201
    quote = f"/api/containers/space:{own}/quote"
    assert (await app.client.post(quote, json={"input": {}}, headers=headers)).status_code == 403
    assert (await app.client.post(quote, json={"input": {}}, headers=app.bearer)).status_code == 200
    for tool, inputs in (("models", {}), ("quote", {"input": {}})):
        arguments = {"model": f"space:{own}", **inputs}
        response = await Agent(app, key).rpc("tools/call", {"name": tool, "arguments": arguments})
        assert "may use only ra1" in str(response), tool
    tool = await Agent(app, key).call("models")
    assert [row["model"] for row in tool["models"]] == ["ra1"]
    everyone = (await app.visitor().get("/api/services")).json()["services"]
    assert len(everyone) > 40


async def test_an_address_of_a_model_server_keeps_no_secret(app: AppFixture) -> None:
    headers = bearer(await app.operator_key())
    entry = "/api/operator/configuration/gateway.upstreams"

    async def put(**value: str) -> tuple[int, str]:
        body = {"name": "box", "value": value}
        response = await app.client.put(entry, json=body, headers=headers)
        return response.status_code, response.text

    for address in ("http://user:hunter2@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=hunter2"):
        status, text = await put(kind="openai", base_url=address)
        assert (status, "enter the key as api_key" in text, "hunter2" in text) == (400, True, False)
    await put(kind="groq", api_key="sk-canary")
    status, text = await put(kind="mistral")
    assert (status, '"has_key":false' in text.replace(" ", "")) == (200, True), "a key is for its provider"
    log = await app.database.read(actions.page(50, None))
    assert "hunter2" not in str(log)
    assert "canary" not in str(log)


async def test_one_account_does_not_take_all_recordings(app: AppFixture) -> None:
    async def start(key: str, account_id: str) -> str:
        path = "/api/containers/motion-model/sessions"
        session_id = (await app.client.post(path, json={}, headers=bearer(key))).json()["session_id"]
        await app.server.live_sessions.start_recording(session_id, Tenant(account_id))
        return session_id

    other = await app.database.read(accounts.by_email("ben@example.com"))
    for _ in range(2):
        await start(app.key, app.account.id)
    with pytest.raises(TooManyRequests, match="An account can record at most 2 sessions"):
        await start(app.key, app.account.id)
    await start(app.other, other.id)


async def test_connecting_a_comfyui_needs_a_fresh_sign_in(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = app.visitor()
    await client.get("/signin", params={"token": await link(app, app.operator)})
    monkeypatch.setattr(login_sessions, "FRESH_US", 0)
    form = {"csrf": "x", "url": "http://127.0.0.1:9", "do": "save"}
    path = "/workflows/stylized-text-to-image/comfyui"
    response = await client.post(path, data=form, headers={"Origin": ORIGIN})
    assert (response.status_code, response.headers.get("location", "")[:15]) == (303, "/signin?again=1")


FOLDERS = "/api/shared-folders"


async def shared_with_ben(app: AppFixture, key: str, access: str = "read") -> httpx.Response:
    body = {"folder": "work", "with": "ben@example.com", "access": access}
    return await app.client.post(FOLDERS, json=body, headers=bearer(key))


async def ben_reads(app: AppFixture, share_id: str) -> int:
    headers = bearer(app.other) | {"X-Sixfold-Memory": share_id}
    return (await app.client.get("/api/pages/work/plan", headers=headers)).status_code


@pytest.mark.parametrize("kind", ["program", "limited key", "key", "member"])
async def test_shared_folders_end_with_their_key_client_or_member(
    any_database_app: AppFixture, kind: str
) -> None:
    app, write = any_database_app, any_database_app.database.write
    await app.client.post("/api/pages", json={"slug": "work/plan", "body": "first"}, headers=app.bearer)
    cleo = await member(app, "cleo@example.com", "admin")
    if kind == "program":
        secret = (await (await OAuthClient.registered(app)).tokens(scope="models"))["access_token"]
    elif kind == "member":
        secret = await key_of(app, cleo)
    else:
        granted = Rights.RUN | rights.MEMORY if kind == "limited key" else None
        secret = await app.limited_key(KeyLimits(), granted)
    share_id = (await shared_with_ben(app, secret)).json()["id"]
    assert await ben_reads(app, share_id) == 200
    if kind == "member":
        for suspended, status in ((True, 404), (False, 200)):
            await write(customers.suspend(app.operator.owner, cleo.person_id, suspended=suspended))
            assert await ben_reads(app, share_id) == status
        await write(members.remove(app.account.id, cleo.id))
    else:
        await write(keys.revoke(await key_id(app, secret)))
    assert await ben_reads(app, share_id) == 404
    folders = [(await app.client.get(FOLDERS, headers=bearer(key))).json() for key in (app.key, app.other)]
    assert [each["folders"] + each["received"] for each in folders] == [[], []]
    if kind == "member":
        # A member who comes back gets neither keys nor shares back.
        await write(members.add(app.account.id, cleo.person_id, "admin", "invitation"))
        assert await ben_reads(app, share_id) == 404
    own = (await shared_with_ben(app, app.key)).json()["id"]
    assert await ben_reads(app, own) == 200


async def test_a_limited_key_changes_no_share_of_the_account(any_database_app: AppFixture) -> None:
    app = any_database_app
    own = (await shared_with_ben(app, app.key)).json()["id"]
    limited = await app.limited_key(KeyLimits(), Rights.RUN | rights.MEMORY)
    response = await shared_with_ben(app, limited, "write")
    assert (response.status_code, "this key cannot" in response.json()["error"]) == (409, True)
    headers = bearer(limited)
    assert (await app.client.delete(f"{FOLDERS}/{own}", headers=headers)).status_code == 404
    assert (await app.client.get(FOLDERS, headers=headers)).json()["folders"] == []
    (folder,) = (await app.client.get(FOLDERS, headers=app.bearer)).json()["folders"]
    assert (folder["id"], folder["access"]) == (own, "read")


async def test_all_access_ends_at_once_but_members_stay(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    await app.client.post("/api/pages", json={"slug": "work/plan", "body": "first"}, headers=app.bearer)
    cleo = await member(app, "cleo@example.com", "admin")
    page = await acting(app, "cleo@example.com", app.account.id)
    secrets = [app.key, app.other, await key_of(app, cleo)]
    secrets.append((await (await OAuthClient.registered(app)).tokens(scope="models"))["access_token"])
    await shared_with_ben(app, app.key)
    body = {"kind": "page", "id": "work/plan"}
    shared = (await app.client.post("/api/shares", json=body, headers=app.bearer)).json()["url"]
    counts = await write(credentials.end_everything())
    assert min(counts[name] for name in ("keys", "programs", "sign_ins", "shares", "shared_folders")) > 0
    for secret in secrets:
        assert (await app.client.get("/api/pages", headers=bearer(secret))).status_code == 401
    assert (await app.visitor().get(shared)).status_code == 404
    assert (await page.client.get("/account/members")).headers["location"].startswith("/signin")
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    key = (await write(keys.create(ben.id))).api_key
    received = (await app.client.get(FOLDERS, headers=bearer(key))).json()["received"]
    assert received == []
    second_browser = await acting(app, "cleo@example.com", app.account.id)
    assert (await second_browser.client.get("/account/members")).status_code == 200


@pytest.mark.parametrize("closing", ["ada", "ben"])
async def test_shared_folders_of_a_closed_account_stay_ended(
    any_database_app: AppFixture, closing: str
) -> None:
    app, write = any_database_app, any_database_app.database.write
    await app.client.post("/api/pages", json={"slug": "work/plan", "body": "first"}, headers=app.bearer)
    share_id = (await shared_with_ben(app, app.key)).json()["id"]
    account = await app.database.read(accounts.by_email(f"{closing}@example.com"))
    await write(deletion.close(account, 7))
    await write(deletion.reopen(account.id))
    assert await ben_reads(app, share_id) == 404
    assert (await app.client.get(FOLDERS, headers=app.bearer)).json()["folders"] == []
