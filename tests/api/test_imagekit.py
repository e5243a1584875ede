"""The Image utility API: output formats, save paths, style transfer, and background removal."""

from __future__ import annotations

import asyncio
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import ORIGIN, AppFixture, bearer, running_app
from tests.harness import image_files

SMALL = {"prompt": "a fox", "width": "80", "height": "64"}


def image_format(data: bytes) -> tuple[str | None, tuple[int, int]]:
    with Image.open(io.BytesIO(data)) as image:
        return image.format, image.size


async def source(app: AppFixture) -> str:
    """Return the URL of an image of this server."""
    response = await app.client.post("/api/ra1", json={"api_key": app.other, "prompt": "a source"})
    return str(response.json()["image_url"])


async def test_root_is_json_for_programs_and_a_page_for_browsers(app: AppFixture) -> None:
    response = await app.client.get("/")
    reply = await app.client.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert response.json() == {"name": "Sixfold", "version": "0.1.0", "docs": f"{ORIGIN}/docs"}
    assert reply.headers["Content-Type"].startswith("text/html")
    assert (await app.client.get("/health")).json() == {"status": "ok"}


FORMATS = [
    (None, "WEBP"),
    ("*/*", "WEBP"),
    ("image/*", "WEBP"),
    ("text/html", "WEBP"),
    ("image/png", "PNG"),
    ("image/jpeg", "JPEG"),
    ("image/jpg", "JPEG"),
    ("image/png,*/*;q=0.8", "PNG"),
    ("image/png, image/*", "PNG"),
    ("image/jpeg;q=0.9, image/png;q=0.2", "JPEG"),
    ("image/png;q=0, image/jpeg;q=0.1", "JPEG"),
    ("image/avif,image/webp,image/apng,image/*,*/*;q=0.8", "WEBP"),
    ("image/webp;q=0, image/*;q=0.5", "PNG"),
    ("nonsense", "WEBP"),
]


@pytest.mark.parametrize(("accepted", "kind"), FORMATS)
async def test_image_format_follows_the_accept_header(
    app: AppFixture, accepted: str | None, kind: str
) -> None:
    headers = {"Accept": accepted} if accepted is not None else {}
    response = await app.client.get("/create_image", params=SMALL, headers=headers)
    assert response.status_code == 200
    assert image_format(response.content) == (kind, (80, 64))
    assert response.headers["Content-Type"] == f"image/{kind.lower()}"
    assert response.headers["Vary"] == "Accept"
    assert response.headers["X-Sixfold-Quality"] == "full"


async def test_requests_with_a_key_are_charged_and_keyless_are_free(app: AppFixture) -> None:
    assert (await app.client.get("/create_image", params=SMALL)).status_code == 200
    assert (await app.client.get("/create_image", params=SMALL, headers=app.bearer)).status_code == 200
    poor = await app.client.get("/create_image", params=SMALL, headers=bearer(app.poor))
    assert (poor.status_code, poor.json()) == (402, {"detail": "Insufficient credits"})
    wrong = await app.client.get("/create_image", params=SMALL, headers=bearer("sf_wrong"))
    assert (wrong.status_code, wrong.json()) == (401, {"detail": "Invalid API key"})
    assert await app.balance() == ("4.96", "0.00")
    assert await app.faults() == ()


REFUSED: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["prompt"]),
    ({"prompt": ""}, ["prompt"]),
    ({"prompt": "x", "width": "abc"}, ["width"]),
    ({"prompt": "x", "width": "63"}, ["width"]),
    ({"prompt": "x", "width": "2049", "height": "0"}, ["width", "height"]),
    ({"prompt": "x", "height": "1e3"}, ["height"]),
    ({"prompt": "x", "height": "9" * 500}, ["height"]),
    ({"prompt": "x", "seed": "-1"}, ["seed"]),
    ({"prompt": "x" * 4001}, ["prompt"]),
]


@pytest.mark.parametrize(("query", "names"), REFUSED)
async def test_invalid_query_is_422_with_details(
    app: AppFixture, query: dict[str, str], names: list[str]
) -> None:
    response = await app.client.get("/create_image", params=query)
    assert response.status_code == 422
    detail = response.json()["detail"]
    assert [item["loc"] for item in detail] == [["query", name] for name in names]
    assert all(set(item) == {"loc", "msg", "type"} for item in detail)
    assert all(isinstance(item["msg"], str) and isinstance(item["type"], str) for item in detail)


@pytest.mark.parametrize("path", ["/create_and_upload_image", "/create_and_upload_image_klein"])
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["prompt", "save_path"]),
        ({"prompt": "x"}, ["save_path"]),
        ({"prompt": "x", "save_path": "../x", "width": "1"}, ["width", "save_path"]),
        ({"save_path": "x.gif"}, ["prompt", "save_path"]),
    ],
)
async def test_all_invalid_query_inputs_are_in_one_422(
    app: AppFixture, path: str, query: dict[str, str], names: list[str]
) -> None:
    response = await app.client.get(path, params=query)
    assert response.status_code == 422
    assert [item["loc"] for item in response.json()["detail"]] == [["query", name] for name in names]


@pytest.mark.parametrize("path", ["/create_and_upload_image", "/create_and_upload_image_klein"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/b.png", "PNG"),
        ("x.jpg", "JPEG"),
        ("x.JPEG", "JPEG"),
        ("deep/er/c.webp", "WEBP"),
        ("plain", "WEBP"),
    ],
)
async def test_image_is_stored_at_save_path(app: AppFixture, path: str, name: str, kind: str) -> None:
    response = await app.client.get(path, params={**SMALL, "save_path": name})
    assert response.status_code == 200
    body = response.json()
    stored = await app.client.get(body["path"])
    assert (body["save_path"], body["bytes"]) == (name, len(stored.content))
    assert body["path"] == f"{ORIGIN}/uploads/{name}"
    assert image_format(stored.content) == (kind, (80, 64))
    assert stored.headers["Content-Type"] == f"image/{kind.lower()}"


async def test_concurrent_conflicting_save_paths_are_409_and_free(app: AppFixture) -> None:
    async def put(name: str) -> httpx.Response:
        query = {**SMALL, "save_path": name}
        return await app.client.get("/create_and_upload_image", params=query, headers=app.bearer)

    result = await asyncio.gather(*map(put, ("m", "m/n", "m/n/o.png")))
    results = [response for response in result if response.status_code == 200]
    assert results
    assert {response.status_code for response in result} <= {200, 409}
    assert await app.balance() == (f"{5 - Decimal('0.04') * len(results)}", "0.00")


async def test_accounts_replace_files_only_in_their_own_folder(app: AppFixture) -> None:
    async def put(headers: dict[str, str], prompt: str) -> str:
        query = {**SMALL, "prompt": prompt, "save_path": "same.png"}
        response = await app.client.get("/create_and_upload_image", params=query, headers=headers)
        assert response.json()["save_path"] == "same.png"
        return str(response.json()["path"])

    first, other, operators = (
        await put(app.bearer, "one"),
        await put(bearer(app.other), "two"),
        await put({}, "three"),
    )
    assert len({first, other, operators}) == 3
    before = await app.client.get(first)
    assert await put(app.bearer, "four") == first
    after = await app.client.get(first)
    assert before.content != after.content
    assert before.headers["ETag"] != after.headers["ETag"]
    unchanged = await app.client.get(first, headers={"If-None-Match": after.headers["ETag"]})
    assert unchanged.status_code == 304


async def test_save_path_may_have_512_characters(app: AppFixture) -> None:
    for name in ("a" * 512, "a" * 300 + "/" + "b" * 200 + ".png", "x/" * 255 + "yz"):
        response = await app.client.get("/create_and_upload_image", params={**SMALL, "save_path": name})
        assert response.status_code == 200, name
        assert (await app.client.get(response.json()["path"])).status_code == 200
    too_long = await app.client.get("/create_and_upload_image", params={**SMALL, "save_path": "a" * 513})
    assert too_long.json()["detail"][0]["loc"] == ["query", "save_path"]


async def test_unusable_path_is_refused_before_the_run(app: AppFixture) -> None:
    upload = "/create_and_upload_image"
    await app.client.get(upload, params={**SMALL, "save_path": "a/b"}, headers=app.bearer)
    for name in ("a", "a/b/c"):
        response = await app.client.get(upload, params={**SMALL, "save_path": name}, headers=app.bearer)
        assert (response.status_code, response.json()["detail"].startswith("save_path")) == (409, True)
        assert app.account.id not in response.text, "the message names the path of the caller"
    assert response.json()["detail"].startswith("save_path is below a/b, which is an existing file")
    for name in ("x.gif", "x.html", "v1.2"):
        answer = await app.client.get(upload, params={**SMALL, "save_path": name}, headers=app.bearer)
        assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", "save_path"])
    missing = await app.client.get(upload, params=SMALL)
    assert missing.json()["detail"][0] == {
        "loc": ["query", "save_path"],
        "msg": "save_path is required",
        "type": "missing",
    }
    assert await app.balance() == ("4.96", "0.00")


async def test_failed_run_keeps_the_existing_file(app: AppFixture) -> None:
    upload = "/create_and_upload_image"
    good = await app.client.get(upload, params={**SMALL, "save_path": "x.png"}, headers=app.bearer)
    before = (await app.client.get(good.json()["path"])).content
    query = {**SMALL, "prompt": "FAIL", "save_path": "x.png"}
    bad = await app.client.get(upload, params=query, headers=app.bearer)
    assert (bad.status_code, bad.json()) == (502, {"detail": "Generation failed. Please try again."})
    assert (await app.client.get(good.json()["path"])).content == before
    assert await app.balance() == ("4.96", "0.00")


async def test_style_transfer_answers_with_a_url_or_the_bytes(app: AppFixture) -> None:
    body = {"source_image_url": await source(app), "style_prompt": "ukiyo-e"}
    reply = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
    assert reply.status_code == 200
    assert set(reply.json()) == {"image_url", "width", "height"}
    assert (await app.client.get(reply.json()["image_url"])).headers["Content-Type"] == "image/webp"
    for accepted, kind in (("image/*", "webp"), ("image/png", "png"), ("image/jpeg, */*;q=0.1", "jpeg")):
        headers = {**app.bearer, "Accept": accepted}
        response = await app.client.post("/api/style-transfer", json={**body, "quality": 40}, headers=headers)
        assert response.headers["Content-Type"] == f"image/{kind}"
    assert await app.balance() == ("4.84", "0.00")


STYLE_REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["source_image_url", "style_prompt"]),
    ({"source_image_url": "https://a.example/a.png"}, ["style_prompt"]),
    ({"style_prompt": "x"}, ["source_image_url"]),
    ({"source_image_url": 5, "style_prompt": "x"}, ["source_image_url"]),
    ({"source_image_url": "https://a.example/a.png", "style_prompt": "x", "quality": 0}, ["quality"]),
    ({"source_image_url": "https://a.example/a.png", "style_prompt": "x", "quality": 101}, ["quality"]),
    ({"source_image_url": "https://a.example/a.png", "style_prompt": "x", "quality": "85"}, ["quality"]),
    ({"source_image_url": "no url", "style_prompt": "x"}, ["source_image_url"]),
    ({"source_image_url": "blob_unknown", "style_prompt": "x"}, ["source_image_url"]),
    ({"source_image_url": "nope", "quality": 0}, ["style_prompt", "quality", "source_image_url"]),
    ({"source_image_url": "blob_unknown", "quality": 0}, ["style_prompt", "quality", "source_image_url"]),
    ({"source_image_url": "data:image/png;base64,AAAA", "style_prompt": "x"}, ["source_image_url"]),
    ({"source_image_url": f"{ORIGIN}/media/none.png", "style_prompt": "x"}, ["source_image_url"]),
]


@pytest.mark.parametrize(("body", "names"), STYLE_REFUSED)
async def test_invalid_body_is_422_with_details(
    app: AppFixture, body: dict[str, Any], names: list[str]
) -> None:
    response = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
    assert response.status_code == 422
    assert [item["loc"] for item in response.json()["detail"]] == [["body", name] for name in names]
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        *((raw, "Invalid JSON body") for raw in (b"", b"{", b"[1")),
        *((raw, "The body must be a JSON object") for raw in (b"[]", b"5", b"null")),
    ],
)
async def test_body_that_is_not_a_json_object_is_422(app: AppFixture, raw: bytes, message: str) -> None:
    response = await app.client.post("/api/style-transfer", content=raw)
    assert response.status_code == 422
    assert [(item["loc"], item["msg"]) for item in response.json()["detail"]] == [(["body"], message)]


async def test_body_over_the_limit_of_json_is_413_with_detail(app: AppFixture) -> None:
    body = {"source_image_url": "x" * 2**20, "style_prompt": "noir"}
    response = await app.client.post("/api/style-transfer", json=body)
    assert response.status_code == 413
    assert response.json() == {"detail": "The request body is larger than 1 MiB"}


async def test_errors_have_the_field_detail(app: AppFixture) -> None:
    away = app.visitor("203.0.113.9")
    assert (await away.get("/create_image", params=SMALL)).json() == {
        "detail": "This request requires the header Authorization: Bearer <API_KEY>"
    }
    wrong = await app.client.post("/create_image")
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method not allowed"})
    failed = await app.client.get("/create_image", params={**SMALL, "prompt": "FAIL"})
    assert (failed.status_code, failed.json()) == (502, {"detail": "Generation failed. Please try again."})


async def test_run_beyond_inline_seconds_is_canceled_and_free(tmp_path: Path) -> None:
    async with running_app(tmp_path, inline_seconds=0.05) as app:
        slow = {**SMALL, "prompt": "SLOW"}
        response = await app.client.get("/create_image", params=slow, headers=app.bearer)
        assert response.status_code == 502
        await app.until("5.00", "0.00")
        assert await app.faults() == ()


@pytest.mark.parametrize(
    "path", ["create_image/x", "create_and_upload_image_klein/x", "api/style-transfer/x"]
)
async def test_unknown_path_below_a_route_is_404(app: AppFixture, path: str) -> None:
    response = await app.client.get(f"/{path}", headers=app.bearer)
    assert (response.status_code, list(response.json())) == (404, ["detail"])


async def test_disabled_image_api_is_404(tmp_path: Path) -> None:
    async with running_app(tmp_path, areas=("media",)) as app:
        response = await app.client.get("/create_image", params=SMALL)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
        assert (await app.client.get("/")).status_code == 200
        assert (await app.client.get("/health")).json() == {"status": "ok"}
        assert (await app.client.get("/openapi/image.json")).status_code == 404


@pytest.mark.parametrize("path", ["create_image", "create_and_upload_image", "create_and_upload_image_klein"])
async def test_head_request_is_405_and_free(app: AppFixture, path: str) -> None:
    request = {**SMALL, "save_path": "head/fox.webp"}
    response = await app.client.head(f"/{path}", params=request, headers=app.bearer)
    assert (response.status_code, response.headers["Allow"], response.content) == (405, "GET", b"")
    assert await app.balance() == ("5.00", "0.00")


async def test_unknown_style_words_are_listed_as_ignored(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        uri = image_files.data_uri(image_files.encode(Image.new("RGB", (40, 30), "#1040c0")))
        body = {"source_image_url": uri, "style_prompt": "qwertz uiop"}
        response = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
        assert (response.status_code, response.json()["width"]) == (200, 40)
        assert response.headers["X-Sixfold-Ignored"] == "qwertz, uiop"
        assert await app.balance() == ("4.96", "0.00")


async def test_saved_images_are_inputs_by_their_urls(app: AppFixture) -> None:
    saved = SMALL | {"save_path": "cards/fox.webp"}
    mine = await app.client.get("/create_and_upload_image", params=saved, headers=app.bearer)
    keyless = await app.client.get("/create_and_upload_image", params=saved | {"save_path": "cards/owl.webp"})

    async def restyle(url: str, **headers: str) -> httpx.Response:
        body = {"source_image_url": url, "style_prompt": "noir"}
        return await app.client.post("/api/style-transfer", json=body, headers=headers)

    path = mine.json()["path"].removeprefix(ORIGIN)
    for url in (ORIGIN + path, path):
        assert (await restyle(url, **bearer(app.other))).status_code == 200
        body = {"source_image_url": url, "quality": 0}
        invalid = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
        assert [item["loc"][1] for item in invalid.json()["detail"]] == ["style_prompt", "quality"]
    assert (await restyle(keyless.json()["path"])).status_code == 200
    guessed = await restyle("/uploads/cards/fox.webp", **bearer(app.other))
    assert guessed.status_code == 422
    assert guessed.json()["detail"][0]["msg"] == "source_image_url: File not found on this server"
    escaped = await restyle("/uploads/../sixfold.db", **app.bearer)
    assert escaped.status_code == 422
