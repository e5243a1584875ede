"""Folders of the memory that are shared with an account or a team show their pages only."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import Holder, KeyLimits
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.concurrency import export_turns
from sixfold.core.database import many
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.sharing import membership
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.memory_routes import ROUTES, WRITES
from tests.api.test_memory import get, put, send_route, zip_of
from tests.api.test_organizations import browser
from tests.api.test_pages import signed_in

PATH = "/api/shared-folders"
BEN = {"folder": "work/apollo", "with": "Ben@example.com", "access": "write"}
# Pages of the owner that a grantee must not reach, and one that does not exist.
OUTSIDE = ["work/plan", "work/apollo2", "diary", "never"]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A memory with a shared folder, and pages outside of it."""
    async with running_app(tmp_path) as result:
        await put(result, "work/apollo", "The folder's own page, see [[diary]].", title="Apollo")
        await put(result, "work/apollo/engine", "zeppelin engine", tags=["engine"], collections=["plans"])
        for slug in OUTSIDE[:-1]:
            await put(result, slug, "zeppelin secret", title=f"Secret {slug}", tags=["hidden"])
        await result.client.post("/api/links/work/apollo", json={"to": "x"}, headers=result.bearer)
        yield result


async def share(app: AppFixture, **fields: Any) -> dict[str, str]:
    """Share a folder of the first account; return the header that selects it."""
    response = await app.client.post(PATH, json={**BEN, **fields}, headers=app.bearer)
    assert response.status_code == 201, response.text
    return {"X-Sixfold-Memory": response.json()["id"]}


async def send(
    app: AppFixture, method: str, path: str, chosen: dict[str, str], key: str = "", **more: Any
) -> httpx.Response:
    headers = {**bearer(key or app.other), **chosen}
    return await app.client.request(method, path, headers=headers, **more)


async def test_a_grantee_reads_searches_and_writes_the_folder(app: AppFixture) -> None:
    before = await get(app, "/api/pages/work/apollo/engine")
    chosen = await share(app)
    after = await get(app, "/api/pages/work/apollo/engine")
    assert (after["version"], after["updated_at"]) == (before["version"], before["updated_at"])
    received = (await app.client.get(PATH, headers=bearer(app.other))).json()["received"]
    assert [(each["owner"], each["folder"], each["access"]) for each in received] == [
        ("ada@example.com", "work/apollo", "write")
    ]
    pages = (await send(app, "GET", "/api/pages", chosen)).json()["pages"]
    assert [each["slug"] for each in pages] == ["work/apollo", "work/apollo/engine"]
    query = {"query": "zeppelin", "mode": "lexical"}
    matches = (await send(app, "POST", "/api/search", chosen, json=query)).json()["results"]
    assert [each["slug"] for each in matches] == ["work/apollo/engine"]
    tags = (await send(app, "GET", "/api/tags", chosen)).json()["tags"]
    assert [each["name"] for each in tags] == ["engine"]
    new = {"slug": "work/apollo/crew", "body": "Ben was here"}
    response = await send(app, "POST", "/api/pages", chosen, json=new)
    assert (response.status_code, response.json()["collections"]) == (201, ["folder:work/apollo"])
    page = await get(app, "/api/pages/work/apollo/crew")
    assert (page["body"], page["created_by"]) == ("Ben was here", "ben@example.com")
    # Without the header, the request is for the account's own memory.
    assert (await app.client.get("/api/pages", headers=bearer(app.other))).json()["pages"] == []


async def test_a_folder_is_shared_and_ended_on_the_page(app: AppFixture) -> None:
    token, page = await signed_in(app), "/account/shares"
    folder = (await app.client.get("/memory", params={"prefix": "work/apollo/"})).text
    link = re.search(r'href="([^"]+)#folders">Share folder<', folder)
    assert link is not None
    assert 'name="folder" value="work/apollo"' in (await app.client.get(link[1])).text
    form = {**BEN, "csrf": token}
    wrong = await app.client.post(f"{page}/folders", data={**form, "with": "nobody"})
    assert wrong.status_code == 404
    assert 'value="nobody"' in wrong.text
    assert 'role="alert"' in wrong.text
    assert (await app.client.post(f"{page}/folders", data=BEN)).status_code == 403
    assert (await app.client.post(f"{page}/folders", data=form)).headers["location"] == f"{page}#folders"
    text = (await app.client.get(page)).text
    assert "with ben@example.com · read and write · since" in text
    end = re.search(r'action="(/account/shares/folders/[^"]+/end)"', text)
    assert end is not None
    received = (await app.client.get(PATH, headers=bearer(app.other))).json()["received"]
    assert [each["folder"] for each in received] == ["work/apollo"]
    assert (await app.client.post(end[1], data={"csrf": token})).status_code == 303
    assert (await app.client.get(PATH, headers=bearer(app.other))).json()["received"] == []


async def test_a_shared_folder_is_read_and_written_on_pages(app: AppFixture) -> None:
    base = f"/memory/~shared/{(await share(app))['X-Sixfold-Memory']}"
    ben, cleo = [await browser(app, f"{name}@example.com") for name in ("ben", "cleo")]
    assert f'<a href="{base}">work/apollo/</a>' in (await ben.client.get("/memory")).text
    assert f'href="{base}/work/apollo/engine"' in (await ben.client.get(base)).text
    page = (await ben.client.get(f"{base}/work/apollo")).text
    assert f'href="{base}/work/apollo/~edit"' in page
    assert not re.search(r'href="/memory/work|Secret', page)
    matches = (await ben.client.get(f"{base}/~results", params={"q": "zeppelin"})).text
    assert ("engine" in matches, "Secret" in matches) == (True, False)
    for slug in OUTSIDE:
        assert (await ben.client.get(f"{base}/{slug}")).status_code == 404
    edited = {"version": "1", "body": "By hand, see [[work/apollo/engine]]. #later", "action": "save"}
    saved = await ben.post(f"{base}/work/apollo/~edit", **edited, collections="folder:work/apollo")
    assert (saved.status_code, saved.headers["location"]) == (303, f"{base}/work/apollo")
    assert (await get(app, "/api/pages/work/apollo"))["body"].startswith("By hand")
    page = (await ben.client.get(f"{base}/work/apollo")).text
    assert f'<a class="wiki" href="{base}/work/apollo/engine">' in page
    assert f'<a class="tag" href="{base}?tag=later">' in page
    card = (await ben.client.get(f"{base}/work/apollo/~card")).text
    assert "By hand, see work/apollo/engine." in card
    for path in (base, f"{base}/work/apollo", f"{base}/work/apollo/~card", f"{base}/work/apollo/~edit"):
        assert (await cleo.client.get(path)).status_code == 404
    await share(app, access="read")
    assert (await ben.client.get(f"{base}/work/apollo/~edit")).status_code == 403
    assert (await ben.post(f"{base}/work/apollo/~edit", **edited)).status_code == 403


async def test_pages_enter_and_leave_with_their_slugs(app: AppFixture) -> None:
    chosen = await share(app)
    move = {"operation": "rename", "slug": "work/apollo/plan"}
    await app.client.patch("/api/pages/work/plan", json=move, headers=app.bearer)
    assert (await send(app, "GET", "/api/pages/work/apollo/plan", chosen)).status_code == 200
    move = {"operation": "rename", "slug": "work/engine"}
    renaming = await app.client.patch("/api/pages/work/apollo/engine", json=move, headers=app.bearer)
    assert renaming.json()["collections"] == ["plans"]
    assert (await send(app, "GET", "/api/pages/work/engine", chosen)).status_code == 404
    archive = zip_of([("work/apollo/imported.md", "new"), ("diary2.md", "other")])
    sending = {"content": archive, "headers": {**app.bearer, "content-type": "application/zip"}}
    assert (await app.client.post("/api/import", **sending)).json()["created"] == 2
    slugs = [each["slug"] for each in (await send(app, "GET", "/api/pages", chosen)).json()["pages"]]
    assert slugs == ["work/apollo", "work/apollo/imported", "work/apollo/plan"]
    # The same files again change nothing, although the file names no collection.
    assert (await app.client.post("/api/import", **sending)).json()["skipped"] == 2


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_no_route_reaches_a_page_outside(app: AppFixture, route: str) -> None:
    chosen = await share(app)
    before = [await get(app, f"/api/pages/{slug}") for slug in OUTSIDE[:-1]]
    for slug in OUTSIDE:
        response = await send_route(app, route, slug, app.other, headers=chosen)
        expected = (403,) if route in WRITES else (404,)
        assert response.status_code in expected, f"{slug}: {response.text}"
        assert "Secret" not in response.text
    assert [await get(app, f"/api/pages/{slug}") for slug in OUTSIDE[:-1]] == before


@pytest.mark.parametrize("route", sorted(WRITES))
async def test_reader_of_a_shared_folder_cannot_write(app: AppFixture, route: str) -> None:
    chosen = await share(app, access="read")
    before = await get(app, "/api/pages/work/apollo")
    response = await send_route(app, route, "work/apollo", app.other, headers=chosen)
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    assert await get(app, "/api/pages/work/apollo") == before


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_folder_is_404_for_others_and_after_the_share_ended(app: AppFixture, route: str) -> None:
    chosen = await share(app)
    other_account = await send_route(app, route, "work/apollo", app.poor, headers=chosen)
    assert (other_account.status_code, "Apollo" in other_account.text) == (404, False)
    limited = keys.create((await ben(app)).id, KeyLimits(collections=("folder:work/apollo",)))
    key = (await app.database.write(limited)).api_key
    assert (await send_route(app, route, "work/apollo", key, headers=chosen)).status_code == 404
    response = await app.client.delete(f"{PATH}/{chosen['X-Sixfold-Memory']}", headers=app.bearer)
    assert response.status_code == 204
    after = await send_route(app, route, "work/apollo", app.other, headers=chosen)
    assert (after.status_code, "Apollo" in after.text) == (404, False)
    assert (await get(app, "/api/pages/work/apollo"))["collections"] == []
    assert (await get(app, "/api/collections"))["collections"] == [{"name": "plans", "count": 1}]


async def test_a_writer_cannot_move_a_page_out_or_open_it_to_others(app: AppFixture) -> None:
    chosen = await share(app)
    for change in (
        {"operation": "rename", "slug": "elsewhere"},
        {"operation": "set_fields", "fields": {"collections": ["plans"]}},
    ):
        response = await send(app, "PATCH", "/api/pages/work/apollo", chosen, json=change)
        assert response.status_code == 403, response.text
    # A page of another collection can only be read: keys of that collection would see what is written.
    patch = {"operation": "append", "content": "more"}
    response = await send(app, "PATCH", "/api/pages/work/apollo/engine", chosen, json=patch)
    assert response.status_code == 403
    assert (await send(app, "PUT", "/api/pages/elsewhere", chosen, json={"body": "x"})).status_code == 403


async def test_versions_from_before_the_share_are_not_shown(any_database_app: AppFixture) -> None:
    app, path = any_database_app, "/api/versions/work/apollo"
    await put(app, "work/apollo", "private at first")
    await put(app, "work/apollo", "for Ben")
    first = await share(app)
    await put(app, "work/apollo", "also for Ben")
    assert [each["version"] for each in (await versions_of(app, first))["versions"]] == [3, 2]
    restored = await send(app, "POST", path, first, json={"version": 1})
    assert (restored.status_code, "private" in restored.text) == (404, False)
    past = {"as_of": (await get(app, path))["versions"][-1]["created_at"]}
    assert (await send(app, "GET", "/api/pages/work/apollo", first, params=past)).status_code == 404
    await app.client.delete(f"{PATH}/{first['X-Sixfold-Memory']}", headers=app.bearer)
    await put(app, "work/apollo", "for all")
    later = await share(app, **{"with": "cleo@example.com"})
    assert [each["version"] for each in (await versions_of(app, later, app.poor))["versions"]] == [4]
    for number in (1, 2, 3):
        shown = await send(app, "GET", path, later, app.poor, params={"version": number})
        changed = await send(app, "POST", path, later, app.poor, json={"version": number})
        assert (shown.status_code, changed.status_code) == (404, 404), number
    assert (await get(app, "/api/pages/work/apollo"))["body"] == "for all"
    assert (await app.client.post(path, json={"version": 1}, headers=app.bearer)).status_code == 200


async def versions_of(app: AppFixture, chosen: dict[str, str], key: str = "") -> Any:
    return (await send(app, "GET", "/api/versions/work/apollo", chosen, key)).json()


async def test_deleted_pages_of_a_shared_folder_are_not_shown(any_database_app: AppFixture) -> None:
    app, path = any_database_app, "/api/versions/work/apollo"
    await put(app, "work/apollo", "a mistake")
    chosen = await share(app)
    assert (await send(app, "GET", path, chosen)).status_code == 200
    created_at = (await get(app, "/api/pages/work/apollo"))["created_at"]
    await app.client.delete("/api/pages/work/apollo", headers=app.bearer)
    for params in ({}, {"version": 1}):
        assert (await send(app, "GET", path, chosen, params=params)).status_code == 404
    past = await send(app, "GET", "/api/pages/work/apollo", chosen, params={"as_of": created_at})
    assert past.status_code == 404
    assert (await send(app, "POST", path, chosen, json={"version": 1})).status_code == 404
    shown = await (await browser(app, "ben@example.com")).client.get(
        f"/memory/~shared/{chosen['X-Sixfold-Memory']}/work/apollo"
    )
    assert (shown.status_code, "deleted" in shown.text) == (404, False)
    assert (await app.client.post(path, json={"version": 1}, headers=app.bearer)).status_code == 200


async def test_a_folder_inside_a_shared_one_is_writable_by_both(app: AppFixture) -> None:
    outer = await share(app, folder="work")
    inner = await share(app, folder="work/apollo", **{"with": "cleo@example.com"})
    patch = {"operation": "append", "content": "more"}
    patched = await send(app, "PATCH", "/api/pages/work/apollo", outer, json=patch)
    two = await send(app, "PATCH", "/api/pages/work/apollo", inner, app.poor, json=patch)
    assert (patched.status_code, two.status_code) == (200, 200), two.text
    assert (await send(app, "GET", "/api/pages/work/plan", inner, app.poor)).status_code == 404
    assert two.json()["collections"] == ["folder:work", "folder:work/apollo"]


async def ben(app: AppFixture) -> accounts.Account:
    return await app.database.read(accounts.by_email("ben@example.com"))


async def test_a_team_reads_until_the_owner_leaves(app: AppFixture) -> None:
    write = app.database.write
    organization, cleo = (
        await ben(app),
        await app.database.read(accounts.by_email("cleo@example.com")),
    )
    team = await write(teams.create(organization.id, "Flyers"))
    other = await write(teams.create(organization.id, "Others"))
    response = await app.client.post(
        PATH, json={"folder": "work/apollo", "team_id": team.id}, headers=app.bearer
    )
    assert response.status_code == 404
    owner = await write(members.add(organization.id, app.account.id, "member", "operator"))
    answer = await app.client.post(
        PATH, json={"folder": "work/apollo", "team_id": team.id}, headers=app.bearer
    )
    assert (answer.status_code, answer.json()["team"]) == (201, "Flyers")
    chosen = {"X-Sixfold-Memory": answer.json()["id"]}
    flyer = await write(members.add(organization.id, cleo.id, "member", "operator", team.id))
    key_transaction = keys.create(organization.id, holder=Holder(flyer.id, team.id))
    key = (await write(key_transaction)).api_key
    elsewhere = (await write(keys.create(organization.id, holder=Holder(None, other.id)))).api_key
    path = "/api/pages/work/apollo"
    assert (await send(app, "GET", path, chosen, key)).status_code == 200
    # The person outside the organization, another team, and the organization's owner without a team.
    for other_account in (app.poor, elsewhere, app.other):
        assert (await send(app, "GET", path, chosen, other_account)).status_code == 404
    # A member may not share the organization's own memory.
    mine = {"folder": "x", "with": "ada@example.com"}
    assert (await app.client.post(PATH, json=mine, headers=bearer(key))).status_code == 403
    await write(members.remove(organization.id, owner.id))
    assert (await send(app, "GET", path, chosen, key)).status_code == 404


@pytest.mark.parametrize("end", ["member", "team", "key"])
async def test_pages_leave_a_share_that_ends_with_its_owner(any_database_app: AppFixture, end: str) -> None:
    app, write = any_database_app, any_database_app.database.write
    await put(app, "work/apollo", "a page", collections=["plans"])
    organization = await ben(app)
    team = await write(teams.create(organization.id, "Flyers"))
    here = await write(members.add(organization.id, app.account.id, "member", "operator"))
    admin = await write(members.add(app.account.id, organization.id, "admin", "operator"))
    own = await write(keys.create(app.account.id, granted=rights.MEMORY))
    held_key = await write(keys.create(app.account.id, holder=Holder(admin.id)))
    with_whom = {"team_id": team.id} if end == "team" else {"with": "cleo@example.com"}
    sharer = {"member": held_key.api_key, "team": app.key, "key": own.api_key}[end]
    body = {"folder": "work/apollo", **with_whom}
    shared = await app.client.post(PATH, json=body, headers=bearer(sharer))
    assert shared.status_code == 201, shared.text
    assert (await get(app, "/api/pages/work/apollo"))["collections"] == ["plans", "folder:work/apollo"]
    if end == "member":
        await write(members.remove(app.account.id, admin.id))
    elif end == "team":
        await write(teams.remove(organization.id, team.id))
        await write(members.remove(organization.id, here.id))
    else:
        await write(keys.revoke(own.id))
    await membership.sweep(app.database)
    assert (await get(app, "/api/pages/work/apollo"))["collections"] == ["plans"]
    assert (await app.client.get(PATH, headers=app.bearer)).json()["folders"] == []
    assert await app.database.read(many("folders_leaving", limit=1)) == []


async def test_export_of_a_folder_ends_with_its_share(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, next_turn, turns, closed = any_database_app, export_turns.TURNS.next, list[int](), list[int]()
    for slug in ("work/apollo/a", "work/apollo/b"):
        await put(app, slug, "A page")
    chosen = await share(app)
    await share(app, **{"with": "cleo@example.com"})  # The pages stay in the folder of this share.
    share_id = chosen["X-Sixfold-Memory"]

    @asynccontextmanager
    async def ended_before_the_second() -> AsyncIterator[None]:
        turns.append(len(turns))
        if len(turns) == 2:
            await app.client.delete(f"{PATH}/{share_id}", headers=app.bearer)
            closed.append(await app.server.connections.check())
        async with next_turn():
            yield

    monkeypatch.setattr(export_turns.TURNS, "next", ended_before_the_second)
    monkeypatch.setattr(import_export_files, "EXPORT_PAGES", 1)
    response = await send(app, "GET", "/api/export", chosen)
    assert response.status_code == 200
    assert not zipfile.is_zipfile(io.BytesIO(response.content))
    assert closed == [1]


async def test_the_mcp_tools_use_the_folder_of_the_url(app: AppFixture) -> None:
    chosen = (await share(app))["X-Sixfold-Memory"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call |= {"params": {"name": "list", "arguments": {}}}
    response = await app.client.post(f"/mcp?memory={chosen}", json=call, headers=bearer(app.other))
    slugs = [each["slug"] for each in response.json()["result"]["structuredContent"]["pages"]]
    assert slugs == ["work/apollo", "work/apollo/engine"]
    unknown = await app.client.post("/mcp?memory=none", json=call, headers=bearer(app.other))
    assert unknown.status_code == 404


async def test_a_large_folder_is_moved_in_several_transactions(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "BATCH", 3)
    for number in range(7):
        await put(app, f"large/{number}")
    chosen = await share(app, folder="large")
    assert len((await send(app, "GET", "/api/pages", chosen)).json()["pages"]) == 7
    await app.client.delete(f"{PATH}/{chosen['X-Sixfold-Memory']}", headers=app.bearer)
    assert [each["name"] for each in (await get(app, "/api/collections"))["collections"]] == ["plans"]


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"with": "nobody"}, 404, "nobody not found"),
        ({"with": "ada@example.com"}, 409, "cannot share with itself"),
        ({"team_id": "team_none"}, 400, "cannot be combined"),
        ({"folder": "x" * 94}, 400, "at most 93 characters"),
        ({"access": "own"}, 400, "access must be read or write"),
        ({"color": 1}, 400, "Unknown field 'color'"),
    ],
)
async def test_invalid_share_is_refused(
    app: AppFixture, fields: dict[str, Any], status: int, text: str
) -> None:
    response = await app.client.post(PATH, json={**BEN, **fields}, headers=app.bearer)
    assert (response.status_code, text in response.json()["error"]) == (status, True), response.text
