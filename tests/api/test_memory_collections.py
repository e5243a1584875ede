"""Keys limited to collections write inside of them only, on every route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.memory_routes import CREATES, ROUTES, WRITES
from tests.api.test_memory import get, put, send_route, zip_of

TEAM, BOTH = ("team",), ("team", "work")
OUTSIDE = ["closed", "shared", "loose", "never"]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A memory with pages inside of `team`, outside of it, and partly inside."""
    async with running_app(tmp_path) as result:
        await put(result, "open", "first", collections=["team"], title="Open")
        await result.client.post("/api/links/open", json={"to": "x"}, headers=result.bearer)
        await put(result, "closed", "secret", collections=["other"], title="Closed")
        await put(result, "shared", "half", collections=["team", "other"])
        await put(result, "loose", "nowhere")
        yield result


async def key_of(app: AppFixture, *collections: str, read_only: bool = False) -> str:
    return await app.limited_key(KeyLimits(collections=collections, read_only=read_only))


async def memory_rows(app: AppFixture) -> Mapping[str, Any]:
    """Return all rows of the account's memory: pages, versions, links, tags, timelines."""
    pages: dict[str, Any] = {}
    for row in (await get(app, "/api/pages"))["pages"]:
        pages[row["slug"]] = await get(app, f"/api/pages/{row['slug']}")
    return pages


@pytest.mark.parametrize("route", sorted(WRITES))
async def test_collection_key_changes_pages_of_its_collection(app: AppFixture, route: str) -> None:
    response = await send_route(app, route, "open", await key_of(app, *TEAM))
    assert response.status_code in {200, 201}, response.text
    if route != "DELETE /api/pages/{slug}":
        assert (await get(app, "/api/pages/open"))["collections"] == ["team"]


@pytest.mark.parametrize("slug", OUTSIDE)
@pytest.mark.parametrize("route", sorted(WRITES - {CREATES}))
async def test_a_key_of_a_collection_changes_nothing_outside(app: AppFixture, route: str, slug: str) -> None:
    before = await memory_rows(app)
    response = await send_route(app, route, slug, await key_of(app, *TEAM))
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    assert response.json()["error"] == (
        f"This key may only change pages in its collections (team); {slug} is not in any of them"
    )
    assert await memory_rows(app) == before


@pytest.mark.parametrize("route", sorted(set(ROUTES) - WRITES))
async def test_a_key_of_a_collection_reads_nothing_outside(app: AppFixture, route: str) -> None:
    key = await key_of(app, *TEAM)
    for slug in ("closed", "loose", "never"):
        assert (await send_route(app, route, slug, key)).status_code == 404
    for slug in ("open", "shared"):
        assert (await send_route(app, route, slug, key)).status_code == 200


async def test_a_read_only_key_of_a_collection_writes_nothing(app: AppFixture) -> None:
    before = await memory_rows(app)
    key = await key_of(app, *TEAM, read_only=True)
    for route in WRITES:
        assert (await send_route(app, route, "open", key)).status_code == 403
    new = {"slug": "new", "body": "x", "collections": ["team"]}
    assert (await app.client.post("/api/pages", json=new, headers=bearer(key))).status_code == 403
    assert await memory_rows(app) == before


async def create_page(app: AppFixture, key: str, slug: str, **fields: Any) -> httpx.Response:
    return await app.client.post(
        "/api/pages", json={"slug": slug, "body": "x", **fields}, headers=bearer(key)
    )


async def test_new_page_must_be_in_collections_of_the_key(app: AppFixture) -> None:
    key = await key_of(app, *BOTH)
    assert (await create_page(app, key, "n/1", collections=["work"])).json()["collections"] == ["work"]
    assert (await create_page(app, key, "n/2", collections=["team", "work"])).status_code == 201
    headed = {"body": "---\ncollections: [work]\n---\nx"}
    assert (await create_page(app, key, "n/3", **headed)).json()["collections"] == ["work"]
    for number, wrong in enumerate((["other"], ["team", "other"], [])):
        response = await create_page(app, key, f"n/wrong-{number}", collections=wrong)
        assert (response.status_code, response.json()["error"]) == (
            403,
            f"collections of n/wrong-{number} must be among those of this key (team, work); "
            f"got {', '.join(wrong) or 'none'}",
        )
    response = await create_page(app, key, "n/wrong", body="---\ncollections: other\n---\nx")
    assert response.status_code == 403
    assert sorted(await memory_rows(app)) == ["closed", "loose", "n/1", "n/2", "n/3", "open", "shared"]


async def test_collection_key_cannot_name_a_shared_folder(app: AppFixture) -> None:
    share = {"folder": "work/apollo", "with": "ben@example.com"}
    response = await app.client.post("/api/shared-folders", json=share, headers=app.bearer)
    assert response.status_code == 201
    key, before = await key_of(app, *TEAM), await memory_rows(app)
    wrong = ["team", "folder:work/apollo"]
    created = await create_page(app, key, "new", collections=wrong)
    change = {"operation": "set_fields", "fields": {"collections": wrong}}
    patched = await app.client.patch("/api/pages/open", json=change, headers=bearer(key))
    files = {"open.md": "---\ncollections: [team, 'folder:work/apollo']\n---\nx"}
    report = await import_files(app, key, files)
    assert (created.status_code, patched.status_code) == (403, 403), created.text
    assert "must be among those of this key (team)" in patched.json()["error"]
    assert [row["path"] for row in report["errors"]] == ["open.md"]
    assert await memory_rows(app) == before


async def test_new_page_defaults_to_the_only_collection_of_the_key(app: AppFixture) -> None:
    page = (await create_page(app, await key_of(app, *TEAM), "new")).json()
    assert page["collections"] == ["team"]
    response = await create_page(app, await key_of(app, *BOTH), "newer")
    assert (response.status_code, response.json()["error"]) == (
        403,
        "collections of newer must be among those of this key (team, work); got none",
    )


async def test_a_page_is_not_moved_out_of_the_collections_of_the_key(app: AppFixture) -> None:
    key = await key_of(app, *TEAM)
    before = await memory_rows(app)
    fields: list[Any] = [["other"], ["team", "other"], [], "other"]
    for expected in fields:
        change = {"operation": "set_fields", "fields": {"collections": expected}}
        patched = await app.client.patch("/api/pages/open", json=change, headers=bearer(key))
        page = {"body": "x", "collections": expected}
        replaced = await app.client.put("/api/pages/open", json=page, headers=bearer(key))
        assert (patched.status_code, replaced.status_code) == (403, 403)
    file = {**bearer(key), "Content-Type": "text/markdown"}
    text = b"---\ncollections: [other]\n---\nx"
    assert (await app.client.put("/api/pages/open", content=text, headers=file)).status_code == 403
    assert await memory_rows(app) == before
    assert (await app.client.put("/api/pages/open", content=b"plain", headers=file)).status_code == 200
    assert (await get(app, "/api/pages/open"))["collections"] == ["team"]
    change = {"operation": "set_fields", "fields": {"collections": ["work"]}}
    both = await key_of(app, *BOTH)
    assert (await app.client.patch("/api/pages/open", json=change, headers=bearer(both))).status_code == 200
    assert (await send_route(app, "PATCH /api/pages/{slug}", "open", key)).status_code == 403


@pytest.mark.parametrize("slug", ["closed", "loose", "shared"])
async def test_slug_of_a_page_outside_cannot_be_used(app: AppFixture, slug: str) -> None:
    key = await key_of(app, *TEAM)
    before = await memory_rows(app)
    page = {"body": "mine", "collections": ["team"]}
    responses = [
        await create_page(app, key, slug, overwrite=True, collections=["team"]),
        await create_page(app, key, slug, collections=["team"]),
        await app.client.put(f"/api/pages/{slug}", json=page, headers=bearer(key)),
        await app.client.patch(
            "/api/pages/open", json={"operation": "rename", "slug": slug}, headers=bearer(key)
        ),
    ]
    assert [response.status_code for response in responses] == [403] * 4
    assert all("Closed" not in response.text for response in responses)
    assert await memory_rows(app) == before


async def test_old_slug_of_a_page_outside_cannot_be_used(app: AppFixture) -> None:
    rename = {"operation": "rename", "slug": "vault"}
    await app.client.patch("/api/pages/closed", json=rename, headers=app.bearer)
    key = await key_of(app, *TEAM)
    assert (await create_page(app, key, "closed")).status_code == 403
    move = {"operation": "rename", "slug": "closed"}
    assert (await app.client.patch("/api/pages/open", json=move, headers=bearer(key))).status_code == 403
    report = await import_files(app, key, {"closed.md": "mine"})
    assert (report["created"], len(report["errors"])) == (0, 1)
    moved = await app.client.get("/api/pages/closed", headers=app.bearer)
    assert (moved.status_code, moved.headers["Location"]) == (308, "/api/pages/vault")


async def test_a_page_inside_is_renamed_and_renamed_back(app: AppFixture) -> None:
    key = await key_of(app, *TEAM)
    for slug, to in (("open", "opened"), ("opened", "open")):
        move = {"operation": "rename", "slug": to}
        response = await app.client.patch(f"/api/pages/{slug}", json=move, headers=bearer(key))
        assert (response.status_code, response.json()["slug"]) == (200, to)


async def test_a_version_from_outside_is_not_restored(app: AppFixture) -> None:
    await put(app, "closed", "shown now", collections=["team"])
    key = await key_of(app, *TEAM)
    refused_response = await send_route(app, "POST /api/versions/{slug}", "closed", key, json={"version": 1})
    assert refused_response.status_code == 404
    assert (await get(app, "/api/pages/closed"))["version"] == 2
    response = await send_route(app, "POST /api/versions/{slug}", "closed", key, json={"version": 2})
    assert response.status_code == 200


async def test_deleted_page_is_restored_only_within_its_collection(app: AppFixture) -> None:
    for slug in ("open", "closed"):
        await app.client.delete(f"/api/pages/{slug}", headers=app.bearer)
    key = await key_of(app, *TEAM)
    route = "POST /api/versions/{slug}"
    assert (await send_route(app, route, "closed", key)).status_code == 403
    assert (await create_page(app, key, "closed", collections=["team"])).status_code == 403
    assert (await send_route(app, route, "open", key)).status_code == 200
    await app.client.delete("/api/pages/open", headers=bearer(key))
    assert (await send_route(app, "PATCH /api/pages/{slug}", "open", key)).status_code == 404
    assert (await create_page(app, key, "open", collections=["team"])).json()["version"] == 3


async def import_files(app: AppFixture, key: str, files: Mapping[str, str]) -> Any:
    response = await app.client.post("/api/import", content=zip_of(files.items()), headers=bearer(key))
    assert response.status_code == 200, response.text
    return response.json()


async def test_links_do_not_reveal_the_slug_of_a_page_outside(app: AppFixture) -> None:
    await put(app, "hidden/2026/plan", "secret", collections=["other"])
    await put(app, "linking", "See [[plan]].", collections=["team"])
    headers = bearer(await key_of(app, "team"))
    for slug, status in (("hidden/2026/plan", 404), ("hidden/2026/none", 404), ("plan", 409)):
        response = await app.client.request(
            "DELETE", "/api/links/linking", json={"to": slug}, headers=headers
        )
        assert response.status_code == status
    everything = {"to": "hidden/2026/plan"}
    response = await app.client.request("DELETE", "/api/links/linking", json=everything, headers=app.bearer)
    assert response.status_code == 409


async def test_an_import_writes_the_files_inside_and_names_the_others(app: AppFixture) -> None:
    before = await memory_rows(app)
    files = {
        "new.md": "new",
        "named.md": "---\ncollections: [team]\n---\nnamed",
        "stray.md": "---\ncollections: [other]\n---\nstray",
        "closed.md": "mine",
        "open.md": "changed",
    }
    report = await import_files(app, await key_of(app, *TEAM), files)
    assert (report["created"], report["updated"]) == (2, 1)
    assert sorted(row["path"] for row in report["errors"]) == ["closed.md", "stray.md"]
    after = await memory_rows(app)
    assert {slug: after[slug] for slug in OUTSIDE[:3]} == {slug: before[slug] for slug in OUTSIDE[:3]}
    assert {after[slug]["collections"][0] for slug in ("new", "named", "open")} == {"team"}
    report = await import_files(app, await key_of(app, *BOTH), {"unnamed.md": "x", "open.md": "kept inside"})
    assert (report["updated"], [row["path"] for row in report["errors"]]) == (1, ["unnamed.md"])
    assert (await get(app, "/api/pages/open"))["collections"] == ["team"]


async def tool(app: AppFixture, key: str, name: str, **arguments: Any) -> tuple[bool, str]:
    """Call a tool; return whether it succeeded, and its text."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }
    result = (await app.client.post("/mcp", json=call, headers=bearer(key))).json()["result"]
    return not result.get("isError", False), json.dumps(result)


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("write", {"body": "x", "overwrite": True}),
    ("edit", {"operation": "append", "content": "x"}),
    ("edit", {"operation": "rename", "to": "elsewhere"}),
    ("tag", {"tags": ["t"]}),
    ("link", {"to": "x", "type": "knows"}),
    ("timeline", {"date": "2026", "summary": "x"}),
    ("restore", {"version": 1}),
    ("delete", {}),
]


@pytest.mark.parametrize(("name", "inputs"), TOOLS)
async def test_tools_write_inside_the_collections_of_the_key_alone(
    app: AppFixture, name: str, inputs: dict[str, Any]
) -> None:
    key = await key_of(app, *TEAM)
    before = await memory_rows(app)
    for slug in ("closed", "loose", "shared"):
        good, text = await tool(app, key, name, slug=slug, **inputs)
        assert (good, "in its collections (team)" in text) == (False, True), text
    assert await memory_rows(app) == before
    good, text = await tool(app, key, name, slug="open", **inputs)
    assert good, text


async def test_tool_writes_into_the_only_collection_of_the_key(app: AppFixture) -> None:
    assert (await tool(app, await key_of(app, *TEAM), "write", slug="new", body="x"))[0]
    assert (await get(app, "/api/pages/new"))["collections"] == ["team"]
    good, text = await tool(app, await key_of(app, *BOTH), "write", slug="newer", body="x")
    assert (good, "(team, work)" in text) == (False, True)


async def test_html_pages_allow_changes_inside_only(app: AppFixture) -> None:
    key = await key_of(app, *TEAM)
    headers = {**bearer(key), "Accept": "text/html"}
    before = await memory_rows(app)
    assert "/memory/open/~edit" in (await app.client.get("/memory/open", headers=headers)).text
    assert "/memory/shared/~edit" not in (await app.client.get("/memory/shared", headers=headers)).text
    assert 'name="collections" value="team"' in (await app.client.get("/memory/~new", headers=headers)).text
    for path, form in (
        ("/memory/shared/~edit", {"body": "x", "version": "1"}),
        ("/memory/closed/~edit", {"body": "x"}),
        ("/memory/shared/~move", {"to": "elsewhere"}),
        ("/memory/closed/~move", {"to": "elsewhere"}),
        ("/memory/closed/~delete", {}),
        ("/memory/closed/~restore", {"version": "1"}),
        ("/memory/open/~edit", {"body": "x", "version": "1", "collections": "other"}),
        ("/memory/~new", {"slug": "new", "body": "x", "collections": "other"}),
    ):
        response = await app.client.post(path, data=form, headers=headers)
        assert response.status_code == 403, (path, response.text)
    assert await memory_rows(app) == before
    typed = {"body": "better", "version": "1", "collections": "team", "title": "Open", "type": "note"}
    assert (await app.client.post("/memory/open/~edit", data=typed, headers=headers)).status_code == 303
    form = {"slug": "new", "body": "x", "collections": "team"}
    assert (await app.client.post("/memory/~new", data=form, headers=headers)).status_code == 303
    assert (await get(app, "/api/pages/new"))["collections"] == ["team"]


async def test_collection_key_has_no_rights_outside_the_memory(app: AppFixture) -> None:
    key = await key_of(app, *TEAM)
    for path in ("/api/account", "/api/containers/predictions"):
        assert (await app.client.get(path, headers=bearer(key))).status_code == 403
