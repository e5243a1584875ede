"""The Memory API: every route with its statuses and ETags, and hostile requests."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.memory_routes import CREATES, ROUTES, WRITES

CODED = {"error", "code", "status", "request_id"}


async def send_route(app: AppFixture, route: str, slug: str, key: str, **more: Any) -> httpx.Response:
    method, _, path = route.partition(" ")
    inputs = {**ROUTES[route], **more}
    headers = {**bearer(key), **inputs.pop("headers", {})}
    return await app.client.request(method, path.replace("{slug}", slug), headers=headers, **inputs)


async def put(app: AppFixture, slug: str, body: str = "text", **fields: Any) -> httpx.Response:
    """Write a page of the first account."""
    response = await app.client.put(f"/api/pages/{slug}", json={"body": body, **fields}, headers=app.bearer)
    assert response.status_code in {200, 201}, response.text
    return response


async def get(app: AppFixture, path: str, **params: Any) -> Any:
    """Return the response to a GET with the first account's key."""
    response = await app.client.get(path, headers=app.bearer, params=params)
    assert response.status_code == 200, response.text
    return response.json()


def zip_of(files: Iterable[tuple[str, str | bytes]]) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return result.getvalue()


async def import_report(app: AppFixture, data: bytes) -> Any:
    response = await app.client.post("/api/import", content=data, headers=app.bearer)
    assert response.status_code == 200, response.text
    return response.json()


async def exported_files(app: AppFixture) -> dict[str, bytes]:
    response = await app.client.get("/api/export", headers=app.bearer)
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# -- pages ---------------------------------------------------------------------------------------


async def test_page_is_created_once_found_and_replaced(app: AppFixture) -> None:
    page = {"slug": "People/Ann Smith", "title": "Ann", "body": "Ann likes zeppelins.", "tags": ["team"]}
    reply = await app.client.post("/api/pages", json=page, headers=app.bearer)
    second_response = await app.client.post("/api/pages", json=page, headers=app.bearer)
    over = await app.client.post(
        "/api/pages", json={**page, "body": "new", "overwrite": True}, headers=app.bearer
    )
    assert [answer.status_code for answer in (reply, second_response, over)] == [201, 409, 201]
    assert (reply.json()["slug"], reply.headers["ETag"], over.headers["ETag"]) == (
        "people/ann-smith",
        '"1"',
        '"2"',
    )
    assert set(second_response.json()) == CODED
    assert set(reply.json()) >= {
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
    response = await app.client.post("/api/search", json={"query": "new"}, headers=app.bearer)
    assert [hit["slug"] for hit in response.json()["results"]] == ["people/ann-smith"]
    assert response.json()["results"][0]["url"].endswith("/memory/people/ann-smith")


async def test_if_match_guards_every_change(app: AppFixture) -> None:
    for route in sorted(WRITES):
        if "versions" in route:
            continue
        await put(app, "a", "[[x]]")
        await app.client.post("/api/links/a", json={"to": "x", "type": "t"}, headers=app.bearer)
        version = (await app.client.get("/api/pages/a", headers=app.bearer)).headers["ETag"]
        refused_response = await send_route(app, route, "a", app.key, headers={"If-Match": '"99"'})
        odd = await send_route(app, route, "a", app.key, headers={"If-Match": "version 9"})
        response = await send_route(app, route, "a", app.key, headers={"If-Match": version})
        assert (refused_response.status_code, odd.status_code) == (412, 400), route
        assert refused_response.json()["code"] == "precondition_failed"
        assert response.status_code in {200, 201}, (route, response.text)
    absent = await send_route(app, CREATES, "never", app.key, headers={"If-Match": "*"})
    new = await send_route(app, CREATES, "never", app.key, headers={"If-None-Match": "*"})
    twice = await send_route(app, CREATES, "never", app.key, headers={"If-None-Match": "*"})
    assert [answer.status_code for answer in (absent, new, twice)] == [412, 201, 412]


async def test_concurrent_appends_over_http_are_all_kept(app: AppFixture) -> None:
    await put(app, "log", "start")
    lines = [f"line-{number}" for number in range(30)]
    responses = await asyncio.gather(
        *(
            app.client.patch(
                "/api/pages/log", json={"operation": "append", "content": line}, headers=app.bearer
            )
            for line in lines
        )
    )
    assert {response.status_code for response in responses} == {200}
    assert sorted((await get(app, "/api/pages/log"))["body"].split()) == sorted(["start", *lines])


async def test_an_old_slug_redirects_and_links_follow(app: AppFixture) -> None:
    await put(app, "b", "[[a]]")
    await put(app, "a")
    renamed = await app.client.patch(
        "/api/pages/a", json={"operation": "rename", "slug": "new/a"}, headers=app.bearer
    )
    assert (renamed.status_code, renamed.json()["slug"]) == (200, "new/a")
    old = await app.client.get("/api/pages/a", headers=app.bearer)
    assert (old.status_code, old.headers["Location"], old.json()["slug"]) == (
        308,
        "/api/pages/new/a",
        "new/a",
    )
    followed = await app.client.get("/api/pages/a", headers=app.bearer, follow_redirects=True)
    assert followed.status_code == 200
    assert (await get(app, "/api/links/b"))["links"][0]["to"] == "new/a"
    assert (await get(app, "/api/backlinks/a"))["backlinks"][0]["from"] == "b"


async def test_versions_are_compared_and_restored(app: AppFixture) -> None:
    await put(app, "a", "one\n")
    first = (await get(app, "/api/pages/a"))["updated_at"]
    await put(app, "a", "two\n", tags=["x"])
    versions = (await get(app, "/api/versions/a"))["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    assert (await get(app, "/api/versions/a", version=1))["body"] == "one\n"
    change = await get(app, "/api/versions/a", **{"from": 1, "to": 2})
    assert ("-one\n+two" in change["diff"], change["fields"]) == (True, {"tags": {"from": [], "to": ["x"]}})
    assert (await app.client.delete("/api/pages/a", headers=app.bearer)).json()["deleted"] is True
    assert (await send_route(app, "GET /api/pages/{slug}", "a", app.key)).status_code == 404
    response = await app.client.post("/api/versions/a", json={"version": 1}, headers=app.bearer)
    assert (response.status_code, response.json()["version"], response.json()["body"]) == (200, 3, "one\n")
    assert first
    for as_of, status in (("1999-01-01T00:00:00Z", 404), ("yesterday", 400), ("2999-01-01T00:00:00Z", 200)):
        past = await app.client.get("/api/pages/a", params={"as_of": as_of}, headers=app.bearer)
        assert past.status_code == status, as_of
    # The plus sign is not percent-encoded.
    plain = "/api/pages/a?as_of=2999-01-01T00:00:00+00:00"
    assert (await app.client.get(plain, headers=app.bearer)).status_code == 200


async def test_tags_are_read_as_of_a_time_and_graph_is_refused(app: AppFixture) -> None:
    await put(app, "a", tags=["x"])
    then = (await app.client.get("/api/pages/a", headers=app.bearer)).json()["updated_at"]
    await send_route(app, "POST /api/tags/{slug}", "a", app.key, json={"tags": ["y"]})
    for as_of, status in (("1999-01-01T00:00:00Z", 404), ("yesterday", 400), (then, 200)):
        past = await app.client.get("/api/tags/a", params={"as_of": as_of}, headers=app.bearer)
        assert past.status_code == status, as_of
    assert past.json()["tags"] == ["x"]
    walk = await app.client.get("/api/traverse/a", params={"as_of": then}, headers=app.bearer)
    assert walk.status_code == 400


async def test_links_of_a_page_are_paged(app: AppFixture) -> None:
    body = "\n".join(f"- knows [[people/{name}]]" for name in ("ann", "bea", "cy"))
    await app.client.post("/api/pages", json={"slug": "a", "body": body}, headers=app.bearer)
    full_body = await get(app, "/api/links/a")
    assert ([link["to"] for link in full_body["links"]], full_body["next_cursor"]) == (
        ["people/ann", "people/bea", "people/cy"], None,
    )  # fmt: skip
    first = await get(app, "/api/links/a", limit=2)
    assert first["links"] == full_body["links"][:2]
    rest = await get(app, "/api/links/a", limit=2, cursor=first["next_cursor"])
    assert (rest["links"], rest["next_cursor"]) == (full_body["links"][2:], None)


async def test_tags_links_and_timelines_have_their_own_routes(app: AppFixture) -> None:
    await put(app, "a", tags=["x"], type="person", collections=["shelf"])
    await put(app, "b")
    assert (await send_route(app, "POST /api/tags/{slug}", "a", app.key, json={"tags": ["y"]})).json()[
        "tags"
    ] == ["x", "y"]
    assert (await send_route(app, "DELETE /api/tags/{slug}", "a", app.key)).json()["tags"] == ["y"]
    assert (await get(app, "/api/tags/a"))["tags"] == ["y"]
    assert (await get(app, "/api/tags"))["tags"] == [{"name": "y", "count": 1}]
    assert (await get(app, "/api/types"))["types"] == [
        {"name": "note", "count": 1},
        {"name": "person", "count": 1},
    ]
    assert (await get(app, "/api/collections"))["collections"] == [{"name": "shelf", "count": 1}]
    link = {"to": "b", "type": "knows", "context": "from school"}
    response = await send_route(app, "POST /api/links/{slug}", "a", app.key, json=link)
    assert (response.status_code, response.json()["links"][0]["context"]) == (201, "from school")
    assert (await get(app, "/api/traverse/b", depth=2))["edges"] == [
        {"from": "a", "to": "b", "type": "knows"}
    ]
    await send_route(app, "DELETE /api/links/{slug}", "a", app.key, params={"to": "b", "type": "knows"})
    assert (await get(app, "/api/links/a"))["links"] == []
    noted = await send_route(app, "POST /api/timeline/{slug}", "a", app.key)
    assert (noted.status_code, noted.json()["timeline"][0]["date"]) == (201, "2026")


async def test_page_lists_are_paged_by_cursor(app: AppFixture) -> None:
    for number in range(5):
        await put(app, f"n/{number}", tags=["t"])
    slugs: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        result = await get(app, "/api/pages", limit=2, cursor=cursor, tag="t", prefix="n/")
        slugs += [page["slug"] for page in result["pages"]]
        cursor = result["next_cursor"]
    assert slugs == [f"n/{number}" for number in range(5)]


async def test_times_of_a_response_bound_lists_and_searches(app: AppFixture) -> None:
    await put(app, "a", "numbat")
    update_time = (await get(app, "/api/pages/a"))["updated_at"]
    assert (await get(app, "/api/pages", updated_after=update_time))["pages"] == []

    async def find(**limits: str) -> int:
        body = {"query": "numbat", **limits}
        response = await app.client.post("/api/search", json=body, headers=app.bearer)
        return len(response.json()["results"])

    assert await find(since=update_time) == 1
    assert await find(until=update_time) == 1
    assert await find(since=update_time[:10]) == 1, "a date is since its start"
    assert await find(until=update_time[:10]) == 1, "and until its end"


async def test_repeated_idempotency_key_has_one_effect(app: AppFixture) -> None:
    await put(app, "a")
    headers = {**app.bearer, "Idempotency-Key": "once"}
    responses = [
        await app.client.post("/api/timeline/a", json={"date": "2026", "summary": "x"}, headers=headers)
        for _ in range(3)
    ]
    assert [response.status_code for response in responses] == [201] * 3
    assert len((await get(app, "/api/timeline/a"))["timeline"]) == 1


async def test_page_can_be_read_and_written_as_markdown(app: AppFixture) -> None:
    text = "---\ntitle: T\n# kept\nodd:   spacing\n---\n# Body\r\n"
    headers = {**app.bearer, "Content-Type": "text/markdown"}
    response = await app.client.put("/api/pages/f", content=text.encode(), headers=headers)
    assert (response.status_code, response.json()["title"], response.json()["body"]) == (
        201,
        "T",
        "# Body\r\n",
    )
    file = await app.client.get("/api/pages/f", headers={**app.bearer, "Accept": "text/markdown"})
    assert (file.content, file.headers["ETag"]) == (text.encode(), '"1"')
    await app.client.post("/api/tags/f", json={"tags": ["new"]}, headers=app.bearer)
    file = await app.client.get("/api/pages/f", headers={**app.bearer, "Accept": "text/markdown"})
    assert file.text == text.replace("---\n# Body", "tags: [new]\n---\n# Body")


# -- whose pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("route", sorted(ROUTES))
async def test_page_of_another_account_is_not_found(app: AppFixture, route: str) -> None:
    await put(app, "mine", "[[x]]", tags=["x"])
    before = await get(app, "/api/pages/mine")
    # The route creates a page of this name for the other account.
    if route == CREATES:
        assert (await send_route(app, route, "mine", app.other)).status_code == 201
    else:
        answers = [await send_route(app, route, slug, app.other) for slug in ("mine", "none")]
        assert [response.status_code for response in answers] == [404, 404]
        messages = [{**response.json(), "request_id": ""} for response in answers]
        assert messages[0]["error"].replace("mine", "none") == messages[1]["error"]
    assert await get(app, "/api/pages/mine") == before


async def test_lists_search_and_export_exclude_other_accounts(app: AppFixture) -> None:
    await put(
        app, "secret-project", "zeppelin", tags=["secret-tag"], collections=["secret-shelf"], type="secret"
    )
    for path in ("/api/pages", "/api/tags", "/api/types", "/api/collections"):
        assert (await app.client.get(path, headers=bearer(app.other))).json()[path[5:]] == []
    for query in ("zeppelin", "secret-project", "secret-tag"):
        response = await app.client.post("/api/search", json={"query": query}, headers=bearer(app.other))
        assert response.json()["results"] == []
    export = await app.client.get("/api/export", headers=bearer(app.other))
    assert zipfile.ZipFile(io.BytesIO(export.content)).namelist() == []


async def test_limited_key_sees_its_collections_read_key_cannot_write(app: AppFixture) -> None:
    await put(app, "open", "zeppelin [[closed]]", collections=["a"], tags=["x"])
    await put(app, "closed", "zeppelin [[open]]", collections=["b"], tags=["y"])
    scoped_key = await app.limited_key(KeyLimits(collections=("a",)))
    reads = await app.limited_key(KeyLimits(collections=("a",), read_only=True))
    reader = await app.limited_key(KeyLimits(read_only=True))
    service = await app.limited_key(KeyLimits(services=("ra1",)), Rights.RUN)
    for route in ROUTES:
        inside, outside = [await send_route(app, route, slug, reads) for slug in ("open", "closed")]
        if route in WRITES:
            assert (await send_route(app, route, "open", reader)).status_code == 403
        else:
            assert (inside.status_code, outside.status_code) == (200, 404), route
            assert (await send_route(app, route, "closed", reader)).status_code == 200
        assert (await send_route(app, route, "open", service)).status_code == 403
    for path, names in (("/api/pages", ["open"]), ("/api/tags", ["x"]), ("/api/collections", ["a"])):
        rows = (await app.client.get(path, headers=bearer(scoped_key))).json()[path[5:]]
        assert [row.get("slug", row.get("name")) for row in rows] == names
    response = await app.client.post("/api/search", json={"query": "zeppelin"}, headers=bearer(scoped_key))
    assert [hit["slug"] for hit in response.json()["results"]] == ["open"]
    export = await app.client.get("/api/export", headers=bearer(scoped_key))
    assert zipfile.ZipFile(io.BytesIO(export.content)).namelist() == ["open.md"]
    data = zip_of([("new.md", "x")])
    assert (await app.client.post("/api/import", content=data, headers=bearer(reader))).status_code == 403


async def test_requests_without_a_key_are_401(app: AppFixture) -> None:
    for path in ("/api/pages", "/api/export", "/api/tags"):
        response = await app.client.get(path)
        assert (response.status_code, set(response.json())) == (401, CODED)
    assert (await app.client.post("/api/pages", content=b"{")).status_code == 401


async def test_exceeded_plan_is_402_when_enforced(tmp_path: Path) -> None:
    async with running_app(tmp_path, memory_plans="enforced") as app:
        files = [(f"n/{number}.md", "x") for number in range(100)]
        assert (await import_report(app, zip_of(files)))["created"] == 100
        over = await app.client.put("/api/pages/more", json={"body": "x"}, headers=app.bearer)
        assert (over.status_code, over.json()["code"]) == (402, "insufficient_credits")
