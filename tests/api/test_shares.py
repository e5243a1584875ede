"""Public share links: what they show, what they never show, and revocation."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from PIL import Image

from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Query, Transaction, one
from sixfold.core.media.drawings import Drawing, Shape
from sixfold.core.predictions import refunds
from sixfold.core.shares import shares
from tests.api.app_fixture import AppFixture, bearer
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_account_data import lines, read_zip
from tests.api.test_chat_pages import ChatUser
from tests.api.test_comfyui_clients import PAINT as GRAPH
from tests.api.test_pages import signed_in

PATH = "/api/shares"
ELSEWHERE = "203.0.113.9"


def anonymous_visitor(app: AppFixture) -> httpx.AsyncClient:
    """Return a visitor without cookies or a key, from another address."""
    return app.visitor(ELSEWHERE)


async def run(app: AppFixture, prompt: str = "a quiet harbour", **more: Any) -> dict[str, Any]:
    body = {"model": "ra2", "input": {"prompt": prompt, "width": 64, "height": 64, **more}}
    return (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()


async def share(app: AppFixture, kind: str, object_id: str, **more: Any) -> dict[str, Any]:
    body = {"kind": kind, "id": object_id, **more}
    response = await app.client.post(PATH, json=body, headers=app.bearer)
    assert response.status_code == 201, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()


async def list_shares(app: AppFixture) -> list[dict[str, Any]]:
    return (await app.client.get(PATH, headers=app.bearer)).json()["shares"]


def files_of(page: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"/s/[\w-]+/files/[\w.-]+", page)))


def preview_of(page: str) -> dict[str, str]:
    """Return the metadata of a page that other sites show beside a link."""
    return dict(re.findall(r'<meta (?:property|name)="((?:og|twitter):[\w:]+)" content="([^"]*)"', page))


async def shown_card(visitor: httpx.AsyncClient, link: str) -> bytes:
    """Return the picture of a share, after checks of the page's metadata and the picture's size."""
    preview = preview_of((await visitor.get(link)).text)
    assert {"og:title", "og:description", "twitter:card", "og:image:alt"} <= preview.keys()
    assert (preview["og:image:width"], preview["og:image:height"]) == ("1200", "630")
    assert preview["og:image"] == preview["twitter:image"] == f"{link}/card.jpg"
    response = await visitor.get(preview["og:image"])
    assert (response.status_code, response.headers["content-type"]) == (200, "image/jpeg")
    assert response.headers["cache-control"] == "private, no-cache"
    assert Image.open(io.BytesIO(response.content)).size == (1200, 630)
    assert len(response.content) < 300_000
    return response.content


async def test_a_page_has_a_picture_of_its_current_version(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    link = f"http://127.0.0.1:8600/s/{await put_page(app)}"
    store = app.server.media.drawings
    rendered: list[str] = []
    render = store.render_card

    def count(card: Any, picture: bytes) -> bytes:
        rendered.append(card.title)
        return render(card, picture)

    monkeypatch.setattr(store, "render_card", count)
    first = await shown_card(visitor, link)
    assert await shown_card(visitor, link) == first
    assert rendered == ["plan"], "the stored picture was not used"
    await app.client.put("/api/pages/work/plan", json={"title": "Plan B", "body": "x"}, headers=app.bearer)
    assert await shown_card(visitor, link) != first
    assert rendered == ["plan", "Plan B"]
    (row,) = await list_shares(app)
    await app.client.delete(f"{PATH}/{row['id']}", headers=app.bearer)
    assert (await visitor.get(f"{link}/card.jpg")).status_code == 404
    stored = await app.database.read(one("share_card_get", share_id=row["id"]))
    assert stored is None


async def test_data_of_a_run_is_drawn_once_until_it_is_deleted(any_database_app: AppFixture) -> None:
    app, store = any_database_app, any_database_app.server.media.drawings
    result, built = await run(app), list[str]()

    def build(color: str) -> Drawing:
        built.append(color)
        return Drawing(10, 10, (Shape(((0, 0), (9, 0), (9, 9)), color),))

    first = await store.of_run(result["id"], lambda: build("#ff0000"))
    assert await store.of_run(result["id"], lambda: build("#0000ff")) == first
    assert built == ["#ff0000"]
    refunded = (await run(app, "another"))["id"]
    await store.of_run(refunded, lambda: build("#ffff00"))
    await app.database.write(refunds.refund(refunded, "test"))
    assert await app.database.read(one("run_drawing_get", prediction_id=refunded)) is None
    # The result was read before the refund.
    await store.of_run(refunded, lambda: build("#ffff00"))
    assert await app.database.read(one("run_drawing_get", prediction_id=refunded)) is None
    csrf = await signed_in(app)
    # The result is a file, so that there are no data to draw.
    assert (await app.client.get(f"/predictions/{result['id']}/drawing")).status_code == 404
    await app.client.post("/predictions/selection", data={"csrf": csrf, "ids": result["id"]})
    assert await app.database.read(one("run_drawing_get", prediction_id=result["id"])) is None
    assert await store.of_run(result["id"], lambda: build("#00ff00")) is not None
    assert await app.database.read(one("run_drawing_get", prediction_id=result["id"])) is None


async def test_links_of_a_suspended_account_answer_404(any_database_app: AppFixture) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    result = await run(app)
    created = await share(app, "run", result["id"])
    await share(app, "run", result["id"], **{"with": "cleo@example.com"})
    page = {"slug": "work/plan", "title": "plan", "body": "lantern"}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    folder = {"folder": "work", "with": "cleo@example.com"}
    shared = await app.client.post("/api/shared-folders", json=folder, headers=app.bearer)
    csrf = await signed_in(app)
    form = {"csrf": csrf, "run": result["id"], "name": "ada", "text": "My harbour", "tags": "sea"}
    post = (await app.client.post("/gallery/publish", data=form)).headers["location"]
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    key = (await app.database.write(keys.create(cleo.id))).api_key
    in_folder = bearer(key) | {"X-Sixfold-Memory": shared.json()["id"]}
    link = created["url"].removeprefix("http://127.0.0.1:8600")
    file = files_of((await visitor.get(link)).text)[0]

    async def readable() -> list[Any]:
        responses = [await visitor.get(path) for path in (link, file, post)]
        responses.append(await app.client.get("/api/pages/work/plan", headers=in_folder))
        response = await app.client.get("/api/shares/received", headers=bearer(key))
        posts = [(await visitor.get(f"/api/posts{query}")).json()["posts"] for query in ("", "?tag=sea")]
        rows = [response.json()["shares"], *posts]
        return [answer.status_code for answer in responses] + [len(row) for row in rows]

    async def suspend(account_id: str, *, suspended: bool) -> None:
        await app.database.write(customers.suspend(app.operator.owner, account_id, suspended=suspended))

    assert await readable() == [200, 200, 200, 200, 1, 1, 1]
    await suspend(app.account.id, suspended=True)
    assert await readable() == [404, 404, 404, 404, 0, 0, 0]
    await suspend(app.account.id, suspended=False)
    assert await readable() == [200, 200, 200, 200, 1, 1, 1]


async def test_shared_run_is_public_until_its_share_ends(any_database_app: AppFixture) -> None:
    app = any_database_app
    result, visitor = await run(app), anonymous_visitor(app)
    shared = await share(app, "run", result["id"])
    token = shared["url"].rpartition("/")[2]
    assert len(token) >= 22, "128 bits in base64"
    page = await visitor.get(f"/s/{token}")
    assert (page.status_code, page.headers["x-robots-tag"]) == (200, "noindex, nofollow")
    assert 'name="robots" content="noindex, nofollow"' in page.text
    assert 'property="og:title" content="a quiet harbour"' in page.text
    assert "negative prompt" not in page.text, "an empty input"
    card = f"/s/{token}/card.jpg"
    assert preview_of(page.text)["og:image"] == f"http://127.0.0.1:8600{card}"
    (file,) = files_of(page.text.replace("?w=960", ""))
    picture = await visitor.get(file)
    assert (picture.status_code, picture.headers["content-type"]) == (200, "image/png")
    assert picture.headers["cache-control"] == "private, no-cache"
    assert (await visitor.get(f"{file}?w=320")).headers["content-type"] == "image/webp"
    (row,) = await list_shares(app)
    assert (row["views"], row["title"], row["expires_at"]) == (1, "a quiet harbour", None)
    assert "url" not in row
    assert (await app.client.delete(f"{PATH}/{shared['id']}", headers=app.bearer)).status_code == 204
    assert [(await visitor.get(path)).status_code for path in (f"/s/{token}", file, card)] == [404] * 3
    assert await list_shares(app) == []


async def test_a_shared_run_fills_the_form_of_its_model(app: AppFixture) -> None:
    result, visitor = await run(app), anonymous_visitor(app)
    shared = await share(app, "run", result["id"])
    token = shared["url"].rpartition("/")[2]
    path = f"/catalog/ra2?share={token}"
    assert f'href="{path}">Make your own' in (await visitor.get(f"/s/{token}")).text
    form = (await visitor.get(path)).text
    assert ">a quiet harbour</textarea>" in form
    assert f'href="/signin?next={quote(path, safe="/")}"' in form
    restricted = await share(app, "run", result["id"], **{"with": "cleo@example.com"})
    other = restricted["url"].rpartition("/")[2]
    page = await put_page(app)
    wrong = (f"/catalog/ra1?share={token}", "/catalog/ra2?share=x", f"/catalog/ra2?share={page}")
    assert [(await visitor.get(each)).status_code for each in wrong] == [404, 404, 404]
    assert (await visitor.get(f"/catalog/ra2?share={other}")).status_code == 401


async def put_page(app: AppFixture) -> str:
    """Share a page of the memory and return the token."""
    page = {"slug": "work/plan", "title": "plan", "body": "lantern"}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    return (await share(app, "page", "work/plan"))["url"].rpartition("/")[2]


async def test_shared_run_shows_nothing_but_the_run(app: AppFixture) -> None:
    upload = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(upload, "PNG")
    headers = {**app.bearer, "Content-Type": "image/png"}
    source = (await app.client.post("/api/uploads", content=upload.getvalue(), headers=headers)).json()
    body = {
        "model": "remove-background",
        "input": {"image_url": source["url"]},
        "webhook": "https://example.com/hook?secret=s3cret",
    }
    document = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    assert document["status"] == "succeeded", document
    other = await run(app, "another run")
    output = document["output"]["url"].rpartition("/")[2]
    hidden = (
        *(app.key, app.key[-6:], app.account.id, "ada@example.com", "s3cret", other["id"], "another run"),
        *(source["url"].rpartition("/")[2], source["id"], output, "/media/", "USD"),
    )
    plain = await share(app, "run", document["id"])
    full = await share(app, "run", document["id"], include_inputs=True)
    visitor = anonymous_visitor(app)
    pages = [(await visitor.get(each["url"])).text for each in (plain, full)]
    assert [word for word in hidden for page in pages if word in page] == []
    assert [len(files_of(page)) for page in pages] == [1, 2]
    result = next(name for name in files_of(pages[1]) if "input-" in name)
    assert (await visitor.get(result)).content == upload.getvalue()
    assert (await visitor.get(result.replace(full["url"][-32:], plain["url"][-32:]))).status_code == 404


@pytest.mark.parametrize(("line", "count"), [("harmless", 1), ("see /media/secret.png", 0)])
async def test_shared_transcript_shows_no_path_of_a_file(app: AppFixture, line: str, count: int) -> None:
    result = await run(app)
    # The path is beyond the part of the data that the page shows as text.
    segments = [{"text": line, "start": 0, "end": 1}]
    output = json.dumps({"data": {"text": "x" * 50_000, "segments": segments}})
    with sqlite3.connect(app.settings.data_dir / "sixfold.db") as database:
        database.execute("UPDATE prediction SET output = ? WHERE id = ?", (output, result["id"]))
    page = (await anonymous_visitor(app).get((await share(app, "run", result["id"]))["url"])).text
    assert (page.count("data-transcript"), "secret.png" in page) == (count, False)


async def test_share_requires_its_token(app: AppFixture) -> None:
    shared = await share(app, "run", (await run(app))["id"])
    visitor, token = anonymous_visitor(app), shared["url"].rpartition("/")[2]
    wrong = ("A" * len(token), token[:-1], f"{token}x", shared["id"], "x" * 5000, "%00", token.upper())
    responses = [await visitor.get(f"/s/{each}") for each in wrong]
    assert [each.status_code for each in responses] == [404] * len(wrong)
    for key, expected in ((None, 401), (app.other, 404)):
        headers = {} if key is None else bearer(key)
        deletion = await visitor.delete(f"{PATH}/{shared['id']}", headers=headers)
        response = await visitor.post(PATH, json={"kind": "run", "id": shared["object_id"]}, headers=headers)
        assert (deletion.status_code, response.status_code) == (expected, expected)
    rows = await app.exported("export_shares")
    stored = await app.database.read(
        one("share_get", account_id=app.account.id, credential_id="", id=shared["id"])
    )
    assert stored is not None
    assert token.encode() not in stored["token_hash"]
    assert token not in f"{rows}{stored}"
    assert (await visitor.get(shared["url"])).status_code == 200


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"kind": "balance"}, 400, "kind must be one of"),
        ({"id": ""}, 400, "id must be"),
        ({"id": "x" * 301}, 400, "id must be"),
        ({"id": "pred_none"}, 404, "not found"),
        ({"expires_in": 59}, 400, "expires_in must be 60"),
        ({"expires_in": True}, 400, "expires_in must be 60"),
        ({"public": "yes"}, 400, "public must be"),
        ({"token": "mine"}, 400, "Unknown field 'token': use "),
        ({"kind": "workflow", "id": "line-control"}, 404, "built-in"),
        ({"kind": "chat", "id": "conv_none"}, 404, ""),
        ({"kind": "page", "id": "none"}, 404, "not found"),
    ],
)
async def test_invalid_share_is_refused(app: AppFixture, change: Any, status: int, words: str) -> None:
    body = {"kind": "run", "id": "pred_none", **change}
    response = await app.client.post(PATH, json=body, headers=app.bearer)
    assert (response.status_code, words in response.text) == (status, True), response.text


async def test_a_share_expires_and_an_account_has_a_limit(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    result, tenant_row = await run(app), Tenant(any_database_app.account.id).row
    monkeypatch.setattr(shares, "MAX_SHARES", 2)
    short = await share(app, "run", result["id"], expires_in=60, public=True)
    assert "x-robots-tag" not in (await visitor.get(short["url"])).headers
    await share(app, "run", result["id"])
    full = await app.client.post(PATH, json={"kind": "run", "id": result["id"]}, headers=app.bearer)
    assert (full.status_code, "at most 2 shares" in full.text) == (403, True)

    def age() -> Transaction[None]:
        known = {"id": short["id"], **tenant_row}
        row = yield from one("share_get", **known)
        assert row is not None
        yield Query("share_end", known)
        values = {name: row[name] for name in row.keys() if name not in ("views", "created_at")}  # noqa: SIM118 - not a mapping
        yield Query("share_insert", {**values, "expires_at": row["expires_at"] - 61 * SECOND_US})

    await app.database.write(age())
    assert (await visitor.get(short["url"])).status_code == 404
    assert len(await list_shares(app)) == 1
    await share(app, "run", result["id"])


async def test_a_deleted_or_refunded_run_ends_its_share(any_database_app: AppFixture) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    first, second = await run(app, "one"), await run(app, "two")
    links = [(await share(app, "run", each["id"]))["url"] for each in (first, second)]
    csrf = await signed_in(app)
    await app.client.post("/predictions/selection", data={"csrf": csrf, "ids": first["id"]})
    await app.database.write(refunds.refund(second["id"], "test"))
    assert [(await visitor.get(link)).status_code for link in links] == [404, 404]
    assert await list_shares(app) == []


async def test_closing_an_account_ends_its_shares(app: AppFixture) -> None:
    result, visitor = await run(app), anonymous_visitor(app)
    link = (await share(app, "run", result["id"]))["url"]
    rows = lines(read_zip(await app.client.get("/api/account/export", headers=app.bearer)), "shares")
    assert [(row["object_id"], "token" in str(row)) for row in rows] == [(result["id"], False)]
    account = await app.database.read(accounts.by_id(app.account.id))
    await app.database.write(deletion.close(account, 7))
    assert (await visitor.get(link)).status_code == 404
    await app.database.write(deletion.reopen(app.account.id))
    assert (await visitor.get(link)).status_code == 404, "a reopened account shares nothing by itself"
    assert "erase_shares" in deletion.ERASURES


async def test_a_key_shares_only_what_it_reads(app: AppFixture) -> None:
    body = {"slug": "harbour", "title": "Harbour", "body": "At night", "collections": ["sea"]}
    await app.client.post("/api/pages", json=body, headers=app.bearer)
    database = app.database
    run_only = await database.write(keys.create(app.account.id, granted=rights.Rights.RUN))
    sea = await database.write(keys.create(app.account.id, KeyLimits(collections=("sea",))))
    for key in (run_only, sea):
        body = {"kind": "page", "id": "harbour"}
        assert (await app.client.post(PATH, json=body, headers=bearer(key.api_key))).status_code == 403
    own = {"kind": "run", "id": (await run(app))["id"]}
    response = await app.client.post(PATH, json=own, headers=bearer(run_only.api_key))
    assert response.status_code == 404, "a key without account.read sees its own runs only"
    result = await share(app, "run", own["id"])
    assert (await app.client.get(PATH, headers=bearer(run_only.api_key))).json()["shares"] == []
    final_response = await app.client.delete(f"{PATH}/{result['id']}", headers=bearer(run_only.api_key))
    assert final_response.status_code == 404


async def test_a_key_without_the_memory_sees_no_shared_pages(any_database_app: AppFixture) -> None:
    app = any_database_app
    body = {"slug": "harbour", "title": "Harbour", "body": "At night"}
    await app.client.post("/api/pages", json=body, headers=app.bearer)
    page = await share(app, "page", "harbour")
    own = await share(app, "run", (await run(app))["id"])
    granted = rights.Rights.RUN | rights.Rights.ACCOUNT_READ
    key = await app.database.write(keys.create(app.account.id, granted=granted))
    list_shares = (await app.client.get(PATH, headers=bearer(key.api_key))).json()["shares"]
    assert [each["id"] for each in list_shares] == [own["id"]]
    response = await app.client.delete(f"{PATH}/{page['id']}", headers=bearer(key.api_key))
    assert response.status_code == 404
    list_shares = (await app.client.get(PATH, headers=app.bearer)).json()["shares"]
    assert {each["id"] for each in list_shares} == {own["id"], page["id"]}


async def test_shared_page_shows_no_other_pages_and_comments(any_database_app: AppFixture) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    await app.client.post(
        "/api/pages", json={"slug": "secret", "title": "Hidden title", "body": "x"}, headers=app.bearer
    )
    image = (await run(app))["output"]["url"]
    text = f"Hello [[secret]] %%a comment%% ![boat]({image}) [run](/predictions/pred_1) [out](https://example.com)"
    await app.client.post(
        "/api/pages", json={"slug": "open", "title": "Open", "body": text}, headers=app.bearer
    )
    link = (await share(app, "page", "open"))["url"]
    page = (await visitor.get(link)).text
    for word in ("Hidden title", "a comment", "/media/", "/memory/secret", "pred_1"):
        assert word not in page, word
    assert 'href="https://example.com"' in page
    (file,) = files_of(page.replace("?w=960", ""))
    assert (await visitor.get(file)).headers["content-type"] == "image/png"
    await app.client.put("/api/pages/open", json={"title": "Open", "body": "Newer"}, headers=app.bearer)
    assert "Newer" in (await visitor.get(link)).text
    assert (await visitor.get(file)).status_code == 404
    await app.client.request("DELETE", "/api/pages/open", headers=app.bearer)
    assert (await visitor.get(link)).status_code == 404
    await app.client.post("/api/versions/open", json={"version": 1}, headers=app.bearer)
    assert (await visitor.get(link)).status_code == 404, "a restored page is not shared again"


async def test_a_workflow_is_shown_and_downloaded_until_it_is_removed(app: AppFixture) -> None:
    body = (
        await app.client.post(
            "/api/graph/spaces", json={"workflow": GRAPH, "name": "Mine"}, headers=app.bearer
        )
    ).json()
    link, visitor = (await share(app, "workflow", body["slug"]))["url"], anonymous_visitor(app)
    page = (await visitor.get(link)).text
    assert page.count('data-node="') >= len(GRAPH)
    assert f'href="/signin?next={link.removeprefix("http://127.0.0.1:8600")}">Sign in to import' in page
    await shown_card(visitor, link)
    csrf = await signed_in(app)
    refused = await app.client.post(f"{link}/import", data={"csrf": "x"})
    assert (refused.status_code, (await visitor.post(f"{link}/import")).status_code) == (403, 401)
    copied = await app.client.post(f"{link}/import", data={"csrf": csrf})
    assert (copied.status_code, copied.headers["location"][:15]) == (303, "/workflows/mine")
    assert (await app.client.get(f"{copied.headers['location']}/download")).json() == GRAPH
    assert (await visitor.get(f"{link}/files/graph.svg")).headers["content-type"].startswith("image/svg")
    assert (await visitor.get(f"{link}/files/workflow")).json() == GRAPH
    models = app.predictions.custom_models
    await models.remove(app.account.id, f"space:{body['slug']}")
    assert (await visitor.get(link)).status_code == 404
    await app.client.post("/api/graph/spaces", json={"workflow": GRAPH, "name": "Mine"}, headers=app.bearer)
    assert (await visitor.get(link)).status_code == 404, "another workflow of the same name is not shared"


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


async def test_a_chat_is_a_snapshot(gateway: Gateway) -> None:
    app = gateway.app
    person = await ChatUser.of(gateway)
    image = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(image, "PNG")
    attached = [("file", ("boat.png", image.getvalue(), "image/png"))]
    where = await person.ask_path("say 3 words", files=attached)
    chat = where.rpartition("/")[2]
    plain = (await share(app, "chat", chat))["url"]
    full = (await share(app, "chat", chat, include_inputs=True))["url"]
    await person.ask_path("say 4 words and a later secret", where)
    visitor = anonymous_visitor(app)
    pages = [(await visitor.get(link)).text for link in (plain, full)]
    assert ["say 3 words" in page for page in pages] == [True, True]
    assert ["later secret" in page for page in pages] == [False, False]
    assert [len(files_of(page)) for page in pages] == [0, 1]
    for link in (plain, full):
        await shown_card(visitor, link)
    # The title is the first question, so that the text is the answer to it.
    assert preview_of(pages[0])["og:description"] != preview_of(pages[0])["og:title"]
    assert (await visitor.get(files_of(pages[1])[0])).content == image.getvalue()
    await person.act(f"/chat/{chat}/delete")
    assert [(await visitor.get(link)).status_code for link in (plain, full)] == [404, 404]
    assert await list_shares(app) == []


async def test_the_forms_share_and_end_without_a_script(app: AppFixture) -> None:
    result, csrf = await run(app), await signed_in(app)
    where = f"/shares/new?kind=run&id={result['id']}"
    assert where.replace("&", "&amp;") in (await app.client.get(f"/predictions/{result['id']}")).text
    assert where.replace("&", "&amp;") in (await app.client.get("/predictions")).text
    assert "Create link" in (await app.client.get(where)).text
    form = {"csrf": csrf, "kind": "run", "id": result["id"], "life": "7", "public": "on"}
    created = await app.client.post("/shares", data=form)
    link = re.search(r'value="(http://[^"]+/s/[^"]+)"', created.text)
    assert link is not None
    visitor = anonymous_visitor(app)
    assert (await visitor.get(link[1])).status_code == 200
    (row,) = await list_shares(app)
    assert (row["public"], row["include_inputs"]) == (True, False)
    assert row["expires_at"] is not None
    own = (await app.client.get("/account/shares")).text
    assert "· 1 view" in own
    assert link[1].rpartition("/")[2] not in own
    end = {"csrf": csrf, "next": where}
    response = await app.client.post(f"/shares/{row['id']}/end", data={"csrf": "x"})
    assert response.status_code == 403
    final_response = await app.client.post(f"/shares/{row['id']}/end", data=end)
    assert (final_response.status_code, final_response.headers["location"]) == (303, where)
    assert (await visitor.get(link[1])).status_code == 404
    assert (await app.client.get("/shares/new?kind=run&id=pred_none")).status_code == 404
