"""Hostile requests to the Memory API: slugs, texts and arguments of every kind."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from tests.api.app_fixture import AppFixture
from tests.api.test_memory import CODED, get, put

SLUGS = [
    "..",
    ".",
    "a/../b",
    "a//b",
    "/a",
    "a/",
    "a?b",
    "a#b",
    "a b",
    "A",
    "%2e%2e/%2e%2e/etc/passwd",
    "a%00b",
    "a\\b",
    "ａ",
    "a\u200bb",
    "日本語",
    "हिन्दी",
    "ß",
    "İ",
    "\u0301x",
    "x" * 200,
    "x" * 201,
    "con",
    "a'--",
    'a";DROP TABLE page;',
    "\U0001f642",
    "a\u202eb",
    "-",
    "_",
    "a.md",
    "١٢٣",
]


@pytest.mark.parametrize("slug", SLUGS)
async def test_slug_is_rejected_or_returned_unchanged(app: AppFixture, slug: str) -> None:
    response = await app.client.post("/api/pages", json={"slug": slug, "body": "x"}, headers=app.bearer)
    if response.status_code == 400:
        assert "slug" in response.json()["error"]
        return
    assert response.status_code == 201
    result = response.json()["slug"]
    second_response = await app.client.get(
        httpx.URL("http://127.0.0.1:8600").join(response.headers["Location"]), headers=app.bearer
    )
    assert (second_response.status_code, second_response.json()["slug"]) == (200, result)
    assert (
        await app.client.post("/api/pages", json={"slug": result, "body": "x"}, headers=app.bearer)
    ).status_code == 409


TEXTS = [
    "",
    " ",
    "---\n",
    "---\n---\n",
    "---\na: &a [*a]\n---\n",
    "---\n" + "[" * 5000 + "\n---\n",
    "---\n" + "- " * 5000 + "\n---\n",
    "---\n" + "".join(f"{' ' * n}k{n}:\n" for n in range(300)) + "---\n",
    "---\n? {a: b}\n: c\n---\n",
    "---\ntitle: !!python/object:os.system\n---\n",
    "---\ntitle: [[x]]\n---\n",
    "---\ntags: {a: b}\n---\n",
    '---\ntitle: "\\u0000"\n---\n',
    "[[" * 5000,
    "]]" * 5000,
    "[[a|" * 2000,
    "`" * 5001 + "[[a]]",
    "```\n" * 2000,
    "# " + " " * 50_000 + "x",
    "- **2026-11-20** | " + "—" * 20_000,
    "[a](" * 5000,
    "x\u2028y\x85z\x0b",
    "\u202e\u0000"[:1] + "[[\u202e]]",
    "- " * 20_000,
    "[[::]] [[a::]] [[::b]] [[#x]] [[^y]] [[|]]",
    "\x01\x1f\x7f",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢" * 1000,
]


@pytest.mark.parametrize("number", range(len(TEXTS)))
async def test_any_text_is_stored_and_returned_unchanged(app: AppFixture, number: int) -> None:
    text = TEXTS[number]
    headers = {**app.bearer, "Content-Type": "text/markdown"}
    reply = await app.client.put("/api/pages/t", content=text.encode(), headers=headers)
    assert reply.status_code == 201, reply.text
    file = await app.client.get("/api/pages/t", headers={**app.bearer, "Accept": "text/markdown"})
    remaining = file.content.decode()
    assert remaining.endswith(reply.json()["body"])
    second_response = await app.client.put("/api/pages/t", content=remaining.encode(), headers=headers)
    assert (second_response.json()["version"], second_response.json()["title"]) == (1, reply.json()["title"])
    for query in (text[:5000] or "x", text[-100:] or "x"):
        response = await app.client.post("/api/search", json={"query": query}, headers=app.bearer)
        assert response.status_code in {200, 400}, response.text


WRONG: list[tuple[str, str, Any]] = [
    ("POST", "/api/pages", {"slug": "a", "body": 1}),
    ("POST", "/api/pages", {"slug": ["a"], "body": "x"}),
    ("POST", "/api/pages", {"body": "x"}),
    ("POST", "/api/pages", {"slug": "a", "body": "a\0b"}),
    ("POST", "/api/pages", {"slug": "a", "body": "x", "title": "a\nb"}),
    ("POST", "/api/pages", {"slug": "a", "body": "x", "tags": [1]}),
    ("POST", "/api/pages", {"slug": "a", "body": "x", "title": "t" * 501}),
    ("POST", "/api/pages", {"slug": "a", "body": "x", "type": "\x07"}),
    ("PATCH", "/api/pages/p", {"operation": "explode"}),
    ("PATCH", "/api/pages/p", {"operation": "append"}),
    ("PATCH", "/api/pages/p", {"operation": "set_fields", "fields": {"version": 9}}),
    ("PATCH", "/api/pages/p", {"operation": "rename"}),
    ("PATCH", "/api/pages/p", {"operation": "rename", "slug": ".."}),
    ("POST", "/api/links/p", {"to": ""}),
    ("POST", "/api/links/p", {}),
    ("POST", "/api/links/p", {"to": "x", "type": "a/b"}),
    ("POST", "/api/timeline/p", {"date": "soon", "summary": "x"}),
    ("POST", "/api/timeline/p", {"date": "2026-13-01", "summary": "x"}),
    ("POST", "/api/timeline/p", {"date": "2026"}),
    ("POST", "/api/tags/p", {"tags": [""]}),
    ("POST", "/api/versions/p", {"version": 0}),
    ("POST", "/api/versions/p", {"version": 1e300}),
    ("POST", "/api/search", {"query": "x", "limit": 0}),
    ("POST", "/api/search", {"query": "x", "mode": "magic"}),
    ("POST", "/api/search", {"query": "x" * 10_001}),
    ("POST", "/api/search", {"query": "x", "since": "then"}),
    ("GET", "/api/pages?limit=0", None),
    ("GET", "/api/pages?updated_after=x", None),
    ("GET", "/api/traverse/p?depth=6", None),
    ("GET", "/api/versions/p?cursor=x", None),
    ("GET", "/api/timeline/p?cursor=x", None),
    ("GET", "/api/pages/p?as_of=2026-11", None),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
async def test_invalid_request_is_rejected_and_changes_nothing(app: AppFixture, number: int) -> None:
    await put(app, "p", "x")
    method, path, body = WRONG[number]
    response = await app.client.request(method, path, json=body, headers=app.bearer)
    assert (response.status_code, set(response.json()) - {"errors"}) == (400, CODED), response.text
    pages = (await get(app, "/api/pages"))["pages"]
    assert [(page["slug"], page["version"]) for page in pages] == [("p", 1)]


async def test_malformed_bodies_and_unsupported_methods_are_rejected(app: AppFixture) -> None:
    for path, data in itertools.product(
        ("/api/pages", "/api/search", "/api/tags/p"),
        (b"", b"{", b"[]", b'{"slug":"\xff"}', b'{"slug":"\\ud800"}'),
    ):
        response = await app.client.post(path, content=data, headers=app.bearer)
        assert (response.status_code, set(response.json()) - {"errors"}) == (400, CODED)
    assert (await app.client.put("/api/search", headers=app.bearer)).status_code == 405
    assert (await app.client.get("/api/pages/", headers=app.bearer)).status_code in {400, 404}
    for method, path in (("POST", "/api/search"), ("POST", "/api/pages"), ("PUT", "/api/pages/p")):
        large = await app.client.request(method, path, content=b"x" * (2**20 + 1), headers=app.bearer)
        assert large.status_code == 413


@pytest.mark.parametrize(("method", "path"), [("PUT", "/api/pages/a/b"), ("POST", "/api/pages")])
async def test_unknown_field_of_a_page_is_named_and_nothing_is_written(
    app: AppFixture, method: str, path: str
) -> None:
    fields = {"slug": "a/b", "title": "A", "content": "text"}
    response = await app.client.request(method, path, json=fields, headers=app.bearer)
    assert (response.status_code, "Unknown field 'content'" in response.json()["error"]) == (400, True), (
        response.text
    )
    assert (await app.client.get("/api/pages/a/b", headers=app.bearer)).status_code == 404
    await app.client.put("/api/pages/a/b", json={"body": "text", "note": "ignored"}, headers=app.bearer)
    page = (await app.client.get("/api/pages/a/b", headers=app.bearer)).json()
    assert (page["body"], page["version"]) == ("text", 1)
    second_response = await app.client.put(
        "/api/pages/a/b", json={**page, "body": "more"}, headers=app.bearer
    )
    assert (second_response.status_code, second_response.json()["body"]) == (200, "more")


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("GET", "/api/pages/a%3Fb", None, "slug"),
        ("GET", "/api/pages/home?as_of=soon", None, "as_of"),
        ("GET", "/api/pages?updated_after=soon", None, "updated_after"),
        ("GET", "/api/pages?cursor=nonsense", None, "cursor"),
        ("GET", "/api/traverse/home?as_of=2026-11-20", None, "as_of"),
        ("POST", "/api/search", {"query": "x", "since": "soon"}, "since"),
        ("POST", "/api/search", {"query": " "}, "query"),
        ("POST", "/api/pages", {"slug": "a", "body": "", "title": "a\tb"}, "title"),
        ("POST", "/api/pages", {"slug": "a", "body": "", "tags": [""]}, "tags"),
        ("PATCH", "/api/pages/home", {"operation": "replace_text", "find": "no", "replace": ""}, "find"),
        ("PATCH", "/api/pages/home", {"operation": "set_fields", "fields": {}}, "fields"),
        ("POST", "/api/versions/home", {}, "version"),
        ("POST", "/api/links/home", {"to": ""}, "to"),
        ("DELETE", "/api/links/home?to=a%3Fb", None, "to"),
        ("POST", "/api/links/home", {"to": "a", "type": "?"}, "type"),
        ("POST", "/api/timeline/home", {"date": "soon", "summary": "x"}, "date"),
    ],
)
async def test_invalid_value_is_listed_with_its_name(
    app: AppFixture, method: str, path: str, body: Any, name: str
) -> None:
    await put(app, "home", "text")
    response = await app.client.request(method, path, json=body, headers=app.bearer)
    error = response.json()
    assert (response.status_code, error["code"]) == (400, "invalid_input"), error
    assert error["errors"] == [{"input": name, "message": error["error"]}]
    assert error["error"].startswith(("Invalid cursor", "The text", "home", "traverse", f"{name} "))
