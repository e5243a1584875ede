"""Area D on the wire: every route, its statuses, its ETags, and what strangers send."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.accounts.keys import Scope
from tests.api.app_fixture import House, bearer, house
from tests.api.memory_routes import CREATES, ROUTES, WRITES

CODED = {"error", "code", "status", "request_id"}


async def asked(home: House, route: str, slug: str, key: str, **more: Any) -> httpx.Response:
    """One of `ROUTES`, sent for a slug."""
    method, _, path = route.partition(" ")
    given = {**ROUTES[route], **more}
    headers = {**bearer(key), **given.pop("headers", {})}
    return await home.client.request(method, path.replace("{slug}", slug), headers=headers, **given)


async def put(home: House, slug: str, body: str = "text", **fields: Any) -> httpx.Response:
    """A page of the first account."""
    answer = await home.client.put(f"/api/pages/{slug}", json={"body": body, **fields}, headers=home.bearer)
    assert answer.status_code in {200, 201}, answer.text
    return answer


async def get(home: House, path: str, **params: Any) -> Any:
    """What a GET with the first account's key gives."""
    answer = await home.client.get(path, headers=home.bearer, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def zipped(files: Iterable[tuple[str, str | bytes]]) -> bytes:
    """A zip of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return made.getvalue()


async def taken_in(home: House, data: bytes) -> Any:
    """What an import answers."""
    answer = await home.client.post("/api/import", content=data, headers=home.bearer)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def taken_out(home: House) -> dict[str, bytes]:
    """The files of an export."""
    answer = await home.client.get("/api/export", headers=home.bearer)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# -- pages ---------------------------------------------------------------------------------------


async def test_a_page_is_made_once_found_and_replaced(home: House) -> None:
    page = {"slug": "People/Ann Smith", "title": "Ann", "body": "Ann likes zeppelins.", "tags": ["team"]}
    made = await home.client.post("/api/pages", json=page, headers=home.bearer)
    again = await home.client.post("/api/pages", json=page, headers=home.bearer)
    over = await home.client.post(
        "/api/pages", json={**page, "body": "new", "overwrite": True}, headers=home.bearer
    )
    assert [answer.status_code for answer in (made, again, over)] == [201, 409, 201]
    assert (made.json()["slug"], made.headers["ETag"], over.headers["ETag"]) == (
        "people/ann-smith",
        '"1"',
        '"2"',
    )
    assert set(again.json()) == CODED
    assert set(made.json()) >= {
        "slug",
        "title",
        "body",
        "type",
        "tags",
        "collections",
        "links",
        "backlinks",
        "timeline",
        "version",
        "created_at",
        "updated_at",
        "created_by",
    }
    found = await home.client.post("/api/search", json={"query": "new"}, headers=home.bearer)
    assert [hit["slug"] for hit in found.json()["results"]] == ["people/ann-smith"]
    assert found.json()["results"][0]["url"].endswith("/memory/people/ann-smith")


async def test_if_match_guards_every_change(home: House) -> None:
    for route in sorted(WRITES):
        if "versions" in route:
            continue
        await put(home, "a", "[[x]]")
        await home.client.post("/api/links/a", json={"to": "x", "type": "t"}, headers=home.bearer)
        version = (await home.client.get("/api/pages/a", headers=home.bearer)).headers["ETag"]
        refused = await asked(home, route, "a", home.key, headers={"If-Match": '"99"'})
        odd = await asked(home, route, "a", home.key, headers={"If-Match": "version 9"})
        taken = await asked(home, route, "a", home.key, headers={"If-Match": version})
        assert (refused.status_code, odd.status_code) == (412, 400), route
        assert refused.json()["code"] == "precondition_failed"
        assert taken.status_code in {200, 201}, (route, taken.text)
    gone = await asked(home, CREATES, "never", home.key, headers={"If-Match": "*"})
    new = await asked(home, CREATES, "never", home.key, headers={"If-None-Match": "*"})
    twice = await asked(home, CREATES, "never", home.key, headers={"If-None-Match": "*"})
    assert [answer.status_code for answer in (gone, new, twice)] == [412, 201, 412]


async def test_concurrent_appends_over_http_are_all_kept(home: House) -> None:
    await put(home, "log", "start")
    lines = [f"line-{number}" for number in range(30)]
    answers = await asyncio.gather(
        *(
            home.client.patch(
                "/api/pages/log", json={"operation": "append", "content": line}, headers=home.bearer
            )
            for line in lines
        )
    )
    assert {answer.status_code for answer in answers} == {200}
    assert sorted((await get(home, "/api/pages/log"))["body"].split()) == sorted(["start", *lines])


async def test_an_old_slug_redirects_and_links_follow(home: House) -> None:
    await put(home, "b", "[[a]]")
    await put(home, "a")
    renamed = await home.client.patch(
        "/api/pages/a", json={"operation": "rename", "slug": "new/a"}, headers=home.bearer
    )
    assert (renamed.status_code, renamed.json()["slug"]) == (200, "new/a")
    old = await home.client.get("/api/pages/a", headers=home.bearer)
    assert (old.status_code, old.headers["Location"], old.json()["slug"]) == (
        308,
        "/api/pages/new/a",
        "new/a",
    )
    followed = await home.client.get("/api/pages/a", headers=home.bearer, follow_redirects=True)
    assert followed.status_code == 200
    assert (await get(home, "/api/links/b"))["links"][0]["to"] == "new/a"
    assert (await get(home, "/api/backlinks/a"))["backlinks"][0]["from"] == "b"


async def test_versions_differ_and_come_back(home: House) -> None:
    await put(home, "a", "one\n")
    first = (await get(home, "/api/pages/a"))["updated_at"]
    await put(home, "a", "two\n", tags=["x"])
    versions = (await get(home, "/api/versions/a"))["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    assert (await get(home, "/api/versions/a", version=1))["body"] == "one\n"
    change = await get(home, "/api/versions/a", **{"from": 1, "to": 2})
    assert ("-one\n+two" in change["diff"], change["fields"]) == (True, {"tags": {"from": [], "to": ["x"]}})
    assert (await home.client.delete("/api/pages/a", headers=home.bearer)).json()["deleted"] is True
    assert (await asked(home, "GET /api/pages/{slug}", "a", home.key)).status_code == 404
    back = await home.client.post("/api/versions/a", json={"version": 1}, headers=home.bearer)
    assert (back.status_code, back.json()["version"], back.json()["body"]) == (200, 3, "one\n")
    assert first
    for as_of, status in (("1999-01-01T00:00:00Z", 404), ("yesterday", 400), ("2999-01-01T00:00:00Z", 200)):
        past = await home.client.get("/api/pages/a", params={"as_of": as_of}, headers=home.bearer)
        assert past.status_code == status, as_of


async def test_tags_are_read_as_they_were_and_a_walk_refuses_to_answer_about_the_past(home: House) -> None:
    await put(home, "a", tags=["x"])
    then = (await home.client.get("/api/pages/a", headers=home.bearer)).json()["updated_at"]
    await asked(home, "POST /api/tags/{slug}", "a", home.key, json={"tags": ["y"]})
    for as_of, status in (("1999-01-01T00:00:00Z", 404), ("yesterday", 400), (then, 200)):
        past = await home.client.get("/api/tags/a", params={"as_of": as_of}, headers=home.bearer)
        assert past.status_code == status, as_of
    assert past.json()["tags"] == ["x"]
    walk = await home.client.get("/api/traverse/a", params={"as_of": then}, headers=home.bearer)
    assert walk.status_code == 400


async def test_tags_links_and_timelines_have_routes_of_their_own(home: House) -> None:
    await put(home, "a", tags=["x"], type="person", collections=["shelf"])
    await put(home, "b")
    assert (await asked(home, "POST /api/tags/{slug}", "a", home.key, json={"tags": ["y"]})).json()[
        "tags"
    ] == [
        "x",
        "y",
    ]
    assert (await asked(home, "DELETE /api/tags/{slug}", "a", home.key)).json()["tags"] == ["y"]
    assert (await get(home, "/api/tags/a"))["tags"] == ["y"]
    assert (await get(home, "/api/tags"))["tags"] == [{"name": "y", "count": 1}]
    assert (await get(home, "/api/types"))["types"] == [
        {"name": "note", "count": 1},
        {"name": "person", "count": 1},
    ]
    assert (await get(home, "/api/collections"))["collections"] == [{"name": "shelf", "count": 1}]
    link = {"to": "b", "type": "knows", "context": "from school"}
    made = await asked(home, "POST /api/links/{slug}", "a", home.key, json=link)
    assert (made.status_code, made.json()["links"][0]["context"]) == (201, "from school")
    assert (await get(home, "/api/traverse/b", depth=2))["edges"] == [
        {"from": "a", "to": "b", "type": "knows"}
    ]
    await asked(home, "DELETE /api/links/{slug}", "a", home.key, params={"to": "b", "type": "knows"})
    assert (await get(home, "/api/links/a"))["links"] == []
    noted = await asked(home, "POST /api/timeline/{slug}", "a", home.key)
    assert (noted.status_code, noted.json()["timeline"][0]["date"]) == (201, "2026")


async def test_lists_go_on_by_cursor(home: House) -> None:
    for number in range(5):
        await put(home, f"n/{number}", tags=["t"])
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        found = await get(home, "/api/pages", limit=2, cursor=cursor, tag="t", prefix="n/")
        seen += [page["slug"] for page in found["pages"]]
        cursor = found["next_cursor"]
    assert seen == [f"n/{number}" for number in range(5)]


async def test_the_same_idempotency_key_does_it_once(home: House) -> None:
    await put(home, "a")
    headers = {**home.bearer, "Idempotency-Key": "once"}
    answers = [
        await home.client.post("/api/timeline/a", json={"date": "2026", "summary": "x"}, headers=headers)
        for _ in range(3)
    ]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert len((await get(home, "/api/timeline/a"))["timeline"]) == 1


async def test_a_page_is_a_file_for_whoever_asks_for_one(home: House) -> None:
    text = "---\ntitle: T\n# kept\nodd:   spacing\n---\n# Body\r\n"
    headers = {**home.bearer, "Content-Type": "text/markdown"}
    made = await home.client.put("/api/pages/f", content=text.encode(), headers=headers)
    assert (made.status_code, made.json()["title"], made.json()["body"]) == (201, "T", "# Body\r\n")
    file = await home.client.get("/api/pages/f", headers={**home.bearer, "Accept": "text/markdown"})
    assert (file.content, file.headers["ETag"]) == (text.encode(), '"1"')
    await home.client.post("/api/tags/f", json={"tags": ["new"]}, headers=home.bearer)
    file = await home.client.get("/api/pages/f", headers={**home.bearer, "Accept": "text/markdown"})
    assert file.text == text.replace("---\n# Body", "tags: [new]\n---\n# Body")


# -- whose pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_anothers_page_is_as_unknown_as_none(home: House, route: str) -> None:
    await put(home, "mine", "[[x]]", tags=["x"])
    before = await get(home, "/api/pages/mine")
    if route == CREATES:  # his own page of that name
        assert (await asked(home, route, "mine", home.other)).status_code == 201
    else:
        answers = [await asked(home, route, slug, home.other) for slug in ("mine", "none")]
        assert [answer.status_code for answer in answers] == [404, 404]
        told = [{**answer.json(), "request_id": ""} for answer in answers]
        assert told[0]["error"].replace("mine", "none") == told[1]["error"]
    assert await get(home, "/api/pages/mine") == before


async def test_nothing_of_another_account_shows_anywhere(home: House) -> None:
    await put(
        home, "secret-project", "zeppelin", tags=["secret-tag"], collections=["secret-shelf"], type="secret"
    )
    for path in ("/api/pages", "/api/tags", "/api/types", "/api/collections"):
        assert (await home.client.get(path, headers=bearer(home.other))).json()[path[5:]] == []
    for query in ("zeppelin", "secret-project", "secret-tag"):
        found = await home.client.post("/api/search", json={"query": query}, headers=bearer(home.other))
        assert found.json()["results"] == []
    export = await home.client.get("/api/export", headers=bearer(home.other))
    assert zipfile.ZipFile(io.BytesIO(export.content)).namelist() == []


async def test_a_limited_key_sees_its_collections_and_a_reading_one_writes_nothing(home: House) -> None:
    await put(home, "open", "zeppelin [[closed]]", collections=["a"], tags=["x"])
    await put(home, "closed", "zeppelin [[open]]", collections=["b"], tags=["y"])
    shelf = await home.limited_key(Scope(collections=("a",)))
    reads = await home.limited_key(Scope(collections=("a",), read_only=True))
    reader = await home.limited_key(Scope(read_only=True))
    service = await home.limited_key(Scope(services=("ra1",)))
    for route in ROUTES:
        inside, outside = [await asked(home, route, slug, reads) for slug in ("open", "closed")]
        if route in WRITES:
            assert (await asked(home, route, "open", reader)).status_code == 403
        else:
            assert (inside.status_code, outside.status_code) == (200, 404), route
            assert (await asked(home, route, "closed", reader)).status_code == 200
        assert (await asked(home, route, "open", service)).status_code == 403
    for path, names in (("/api/pages", ["open"]), ("/api/tags", ["x"]), ("/api/collections", ["a"])):
        rows = (await home.client.get(path, headers=bearer(shelf))).json()[path[5:]]
        assert [row.get("slug", row.get("name")) for row in rows] == names
    found = await home.client.post("/api/search", json={"query": "zeppelin"}, headers=bearer(shelf))
    assert [hit["slug"] for hit in found.json()["results"]] == ["open"]
    export = await home.client.get("/api/export", headers=bearer(shelf))
    assert zipfile.ZipFile(io.BytesIO(export.content)).namelist() == ["open.md"]
    data = zipped([("new.md", "x")])
    assert (await home.client.post("/api/import", content=data, headers=bearer(reader))).status_code == 403


async def test_without_a_key_there_is_no_memory(home: House) -> None:
    for path in ("/api/pages", "/api/export", "/api/tags"):
        answer = await home.client.get(path)
        assert (answer.status_code, set(answer.json())) == (401, CODED)
    assert (await home.client.post("/api/pages", content=b"{")).status_code == 401


async def test_a_used_up_plan_is_402_where_that_is_set(tmp_path: Path) -> None:
    async with house(tmp_path, memory_plans="enforced") as home:
        files = [(f"n/{number}.md", "x") for number in range(100)]
        assert (await taken_in(home, zipped(files)))["created"] == 100
        over = await home.client.put("/api/pages/more", json={"body": "x"}, headers=home.bearer)
        assert (over.status_code, over.json()["code"]) == (402, "insufficient_credits")
        await home.product.database.close()
