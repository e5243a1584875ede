"""Keys that are limited to collections: they write inside of them, and nothing outside, whichever way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.accounts.keys import Scope
from tests.api.app_fixture import House, bearer, house
from tests.api.memory_routes import CREATES, ROUTES, WRITES
from tests.api.test_memory import asked, get, put, zipped

TEAM, BOTH = ("team",), ("team", "work")
OUTSIDE = ["closed", "shared", "loose", "never"]


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """A memory with a page inside of `team`, and others that are not wholly there."""
    async with house(tmp_path) as found:
        await put(found, "open", "first", collections=["team"], title="Open")
        await found.client.post("/api/links/open", json={"to": "x"}, headers=found.bearer)
        await put(found, "closed", "secret", collections=["other"], title="Closed")
        await put(found, "shared", "half", collections=["team", "other"])
        await put(found, "loose", "nowhere")
        yield found


async def key_of(home: House, *collections: str, read_only: bool = False) -> str:
    return await home.limited_key(Scope(collections=collections, read_only=read_only))


async def whole(home: House) -> Mapping[str, Any]:
    """Everything that the account's memory holds, with versions, links, tags and timelines."""
    pages: dict[str, Any] = {}
    for row in (await get(home, "/api/pages"))["pages"]:
        pages[row["slug"]] = await get(home, f"/api/pages/{row['slug']}")
    return pages


@pytest.mark.parametrize("route", sorted(WRITES))
async def test_a_key_of_a_collection_changes_a_page_that_lies_there(home: House, route: str) -> None:
    answer = await asked(home, route, "open", await key_of(home, *TEAM))
    assert answer.status_code in {200, 201}, answer.text
    if route != "DELETE /api/pages/{slug}":
        assert (await get(home, "/api/pages/open"))["collections"] == ["team"]


@pytest.mark.parametrize("slug", OUTSIDE)
@pytest.mark.parametrize("route", sorted(WRITES - {CREATES}))
async def test_a_key_of_a_collection_changes_nothing_outside(home: House, route: str, slug: str) -> None:
    before = await whole(home)
    answer = await asked(home, route, slug, await key_of(home, *TEAM))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert answer.json()["error"] == (
        f"This key may only change pages in its collections (team); {slug} is not such a page"
    )
    assert await whole(home) == before


@pytest.mark.parametrize("route", sorted(set(ROUTES) - WRITES))
async def test_a_key_of_a_collection_reads_nothing_outside(home: House, route: str) -> None:
    key = await key_of(home, *TEAM)
    for slug in ("closed", "loose", "never"):
        assert (await asked(home, route, slug, key)).status_code == 404
    for slug in ("open", "shared"):
        assert (await asked(home, route, slug, key)).status_code == 200


async def test_a_read_only_key_of_a_collection_writes_nothing(home: House) -> None:
    before = await whole(home)
    key = await key_of(home, *TEAM, read_only=True)
    for route in WRITES:
        assert (await asked(home, route, "open", key)).status_code == 403
    new = {"slug": "new", "body": "x", "collections": ["team"]}
    assert (await home.client.post("/api/pages", json=new, headers=bearer(key))).status_code == 403
    assert await whole(home) == before


async def created(home: House, key: str, slug: str, **fields: Any) -> httpx.Response:
    return await home.client.post(
        "/api/pages", json={"slug": slug, "body": "x", **fields}, headers=bearer(key)
    )


async def test_a_new_page_lies_in_collections_of_the_key(home: House) -> None:
    key = await key_of(home, *BOTH)
    assert (await created(home, key, "n/1", collections=["work"])).json()["collections"] == ["work"]
    assert (await created(home, key, "n/2", collections=["team", "work"])).status_code == 201
    headed = {"body": "---\ncollections: [work]\n---\nx"}
    assert (await created(home, key, "n/3", **headed)).json()["collections"] == ["work"]
    for number, wrong in enumerate((["other"], ["team", "other"], [])):
        refused = await created(home, key, f"n/wrong-{number}", collections=wrong)
        assert (refused.status_code, refused.json()["error"]) == (
            403,
            f"collections of n/wrong-{number} must be among those of this key (team, work); "
            f"got {', '.join(wrong) or 'none'}",
        )
    refused = await created(home, key, "n/wrong", body="---\ncollections: other\n---\nx")
    assert refused.status_code == 403
    assert sorted(await whole(home)) == ["closed", "loose", "n/1", "n/2", "n/3", "open", "shared"]


async def test_a_new_page_that_names_no_collection_goes_into_the_only_one_of_the_key(home: House) -> None:
    page = (await created(home, await key_of(home, *TEAM), "new")).json()
    assert page["collections"] == ["team"]
    refused = await created(home, await key_of(home, *BOTH), "newer")
    assert (refused.status_code, refused.json()["error"]) == (
        403,
        "collections of newer must be among those of this key (team, work); got none",
    )


async def test_a_page_is_not_moved_out_of_the_collections_of_the_key(home: House) -> None:
    key = await key_of(home, *TEAM)
    before = await whole(home)
    fields: list[Any] = [["other"], ["team", "other"], [], "other"]
    for wanted in fields:
        change = {"operation": "set_fields", "fields": {"collections": wanted}}
        patched = await home.client.patch("/api/pages/open", json=change, headers=bearer(key))
        page = {"body": "x", "collections": wanted}
        replaced = await home.client.put("/api/pages/open", json=page, headers=bearer(key))
        assert (patched.status_code, replaced.status_code) == (403, 403)
    file = {**bearer(key), "Content-Type": "text/markdown"}
    text = b"---\ncollections: [other]\n---\nx"
    assert (await home.client.put("/api/pages/open", content=text, headers=file)).status_code == 403
    assert await whole(home) == before
    assert (await home.client.put("/api/pages/open", content=b"plain", headers=file)).status_code == 200
    assert (await get(home, "/api/pages/open"))["collections"] == ["team"]
    change = {"operation": "set_fields", "fields": {"collections": ["work"]}}
    both = await key_of(home, *BOTH)
    assert (await home.client.patch("/api/pages/open", json=change, headers=bearer(both))).status_code == 200
    assert (await asked(home, "PATCH /api/pages/{slug}", "open", key)).status_code == 403


@pytest.mark.parametrize("slug", ["closed", "loose", "shared"])
async def test_a_slug_is_not_taken_from_a_page_outside(home: House, slug: str) -> None:
    key = await key_of(home, *TEAM)
    before = await whole(home)
    page = {"body": "mine", "collections": ["team"]}
    answers = [
        await created(home, key, slug, overwrite=True, collections=["team"]),
        await created(home, key, slug, collections=["team"]),
        await home.client.put(f"/api/pages/{slug}", json=page, headers=bearer(key)),
        await home.client.patch(
            "/api/pages/open", json={"operation": "rename", "slug": slug}, headers=bearer(key)
        ),
    ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert all("Closed" not in answer.text for answer in answers)
    assert await whole(home) == before


async def test_an_old_slug_of_a_page_outside_keeps_leading_there(home: House) -> None:
    rename = {"operation": "rename", "slug": "vault"}
    await home.client.patch("/api/pages/closed", json=rename, headers=home.bearer)
    key = await key_of(home, *TEAM)
    assert (await created(home, key, "closed")).status_code == 403
    move = {"operation": "rename", "slug": "closed"}
    assert (await home.client.patch("/api/pages/open", json=move, headers=bearer(key))).status_code == 403
    report = await imported(home, key, {"closed.md": "mine"})
    assert (report["created"], len(report["errors"])) == (0, 1)
    moved = await home.client.get("/api/pages/closed", headers=home.bearer)
    assert (moved.status_code, moved.headers["Location"]) == (308, "/api/pages/vault")


async def test_a_page_inside_is_renamed_and_renamed_back(home: House) -> None:
    key = await key_of(home, *TEAM)
    for slug, to in (("open", "opened"), ("opened", "open")):
        move = {"operation": "rename", "slug": to}
        answer = await home.client.patch(f"/api/pages/{slug}", json=move, headers=bearer(key))
        assert (answer.status_code, answer.json()["slug"]) == (200, to)


async def test_a_version_from_outside_is_not_restored(home: House) -> None:
    await put(home, "closed", "shown now", collections=["team"])
    key = await key_of(home, *TEAM)
    refused = await asked(home, "POST /api/versions/{slug}", "closed", key, json={"version": 1})
    assert refused.status_code == 403
    assert (await get(home, "/api/pages/closed"))["version"] == 2
    taken = await asked(home, "POST /api/versions/{slug}", "closed", key, json={"version": 2})
    assert taken.status_code == 200


async def test_a_deleted_page_is_brought_back_by_a_key_of_its_collection_only(home: House) -> None:
    for slug in ("open", "closed"):
        await home.client.delete(f"/api/pages/{slug}", headers=home.bearer)
    key = await key_of(home, *TEAM)
    route = "POST /api/versions/{slug}"
    assert (await asked(home, route, "closed", key)).status_code == 403
    assert (await created(home, key, "closed", collections=["team"])).status_code == 403
    assert (await asked(home, route, "open", key)).status_code == 200
    await home.client.delete("/api/pages/open", headers=bearer(key))
    assert (await asked(home, "PATCH /api/pages/{slug}", "open", key)).status_code == 404
    assert (await created(home, key, "open", collections=["team"])).json()["version"] == 3


async def imported(home: House, key: str, files: Mapping[str, str]) -> Any:
    answer = await home.client.post("/api/import", content=zipped(files.items()), headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_import_writes_the_files_inside_and_names_the_others(home: House) -> None:
    before = await whole(home)
    files = {
        "new.md": "new",
        "named.md": "---\ncollections: [team]\n---\nnamed",
        "stray.md": "---\ncollections: [other]\n---\nstray",
        "closed.md": "mine",
        "open.md": "changed",
    }
    report = await imported(home, await key_of(home, *TEAM), files)
    assert (report["created"], report["updated"]) == (2, 1)
    assert sorted(row["path"] for row in report["errors"]) == ["closed.md", "stray.md"]
    after = await whole(home)
    assert {slug: after[slug] for slug in OUTSIDE[:3]} == {slug: before[slug] for slug in OUTSIDE[:3]}
    assert {after[slug]["collections"][0] for slug in ("new", "named", "open")} == {"team"}
    report = await imported(home, await key_of(home, *BOTH), {"unnamed.md": "x", "open.md": "kept inside"})
    assert (report["updated"], [row["path"] for row in report["errors"]]) == (1, ["unnamed.md"])
    assert (await get(home, "/api/pages/open"))["collections"] == ["team"]


async def tool(home: House, key: str, name: str, **arguments: Any) -> tuple[bool, str]:
    """Whether a tool succeeded, and what it said."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }
    result = (await home.client.post("/mcp", json=call, headers=bearer(key))).json()["result"]
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


@pytest.mark.parametrize(("name", "given"), TOOLS)
async def test_tools_write_inside_the_collections_of_the_key_alone(
    home: House, name: str, given: dict[str, Any]
) -> None:
    key = await key_of(home, *TEAM)
    before = await whole(home)
    for slug in ("closed", "loose", "shared"):
        good, said = await tool(home, key, name, slug=slug, **given)
        assert (good, "in its collections (team)" in said) == (False, True), said
    assert await whole(home) == before
    good, said = await tool(home, key, name, slug="open", **given)
    assert good, said


async def test_a_tool_writes_a_new_page_into_the_only_collection_of_the_key(home: House) -> None:
    assert (await tool(home, await key_of(home, *TEAM), "write", slug="new", body="x"))[0]
    assert (await get(home, "/api/pages/new"))["collections"] == ["team"]
    good, said = await tool(home, await key_of(home, *BOTH), "write", slug="newer", body="x")
    assert (good, "(team, work)" in said) == (False, True)


async def test_pages_for_people_offer_and_take_changes_inside_alone(home: House) -> None:
    key = await key_of(home, *TEAM)
    headers = {**bearer(key), "Accept": "text/html"}
    before = await whole(home)
    assert "/memory/open/~edit" in (await home.client.get("/memory/open", headers=headers)).text
    assert "/memory/shared/~edit" not in (await home.client.get("/memory/shared", headers=headers)).text
    assert 'name="collections" value="team"' in (await home.client.get("/memory/~new", headers=headers)).text
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
        answer = await home.client.post(path, data=form, headers=headers)
        assert answer.status_code == 403, (path, answer.text)
    assert await whole(home) == before
    typed = {"body": "better", "version": "1", "collections": "team", "title": "Open", "type": "note"}
    assert (await home.client.post("/memory/open/~edit", data=typed, headers=headers)).status_code == 303
    form = {"slug": "new", "body": "x", "collections": "team"}
    assert (await home.client.post("/memory/~new", data=form, headers=headers)).status_code == 303
    assert (await get(home, "/api/pages/new"))["collections"] == ["team"]


async def test_a_key_of_collections_still_reaches_the_memory_alone(home: House) -> None:
    key = await key_of(home, *TEAM)
    for path in ("/api/account", "/api/containers/predictions"):
        assert (await home.client.get(path, headers=bearer(key))).status_code == 403
