"""Storage quotas of an account count bytes on every route that stores some."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from sixfold.core.database import one
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_comfyui_clients import PAINT

LARGE = "x" * 30_000
PAGE = {"slug": "large", "title": "large", "body": LARGE}


def png(workflow: bool = False) -> bytes:
    """Return an image of noise that exceeds every quota of these tests."""
    out, info = io.BytesIO(), PngImagePlugin.PngInfo()
    if workflow:
        info.add_text("prompt", json.dumps(PAINT))
    Image.effect_noise((200, 200), 90).save(out, "PNG", pnginfo=info)
    return out.getvalue()


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("large.md", LARGE)
    return out.getvalue()


ENCODED = base64.b64encode(png()).decode()
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "upload": ("/api/uploads", {"content": png()}),
    "form": ("/api/uploads", {"files": {"file": ("a.png", png(), "image/png")}}),
    "comfyui": ("/upload/image", {"files": {"image": ("a.png", png(), "image/png")}}),
    "comfyui api": ("/api/upload/image", {"files": {"image": ("a.png", png(), "image/png")}}),
    "replicate": ("/replicate/v1/files", {"files": {"content": ("a.png", png(), "image/png")}}),
    "fal": ("/fal/files/upload", {"content": png()}),
    "workflow": ("/api/graph/spaces", {"files": {"file": ("a.png", png(workflow=True), "image/png")}}),
    "character": (
        "/api/create-ai",
        {"json": {"name": "a", "description": "b", "greeting": "c", "avatar_bytes": ENCODED}},
    ),
    "post": ("/api/create-post", {"json": {"text": "a", "media_bytes": ENCODED}}),
    "post form": (
        "/api/create-post",
        {"data": {"text": "a"}, "files": {"media": ("a.png", png(), "image/png")}},
    ),
}


@pytest.mark.parametrize("way", FILES)
async def test_file_beyond_the_quota_is_refused(tmp_path: Path, way: str) -> None:
    path, request = FILES[way]
    async with running_app(tmp_path, upload_quota_bytes=10_000) as app:
        refused_response = await app.client.post(path, headers=app.bearer, **request)
        rows = await app.database.read(stored_bytes(app))
    assert (refused_response.status_code, rows) == (413, 0), refused_response.text
    async with running_app(tmp_path / "large", upload_quota_bytes=10_000_000) as app:
        response = await app.client.post(path, headers=app.bearer, **request)
        assert response.status_code in (200, 201), response.text


def stored_bytes(app: AppFixture) -> Any:
    """Return the bytes of the first account's uploads, in a transaction."""
    row = yield from one("media_usage", account_id=app.account.id)
    assert row is not None
    return row["used"]


def rpc(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


PAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "create": ("POST", "/api/pages", {"json": PAGE}),
    "replace": ("PUT", "/api/pages/small", {"json": {"title": "a", "body": LARGE}}),
    "append": ("PATCH", "/api/pages/small", {"json": {"operation": "append", "content": LARGE}}),
    "import": ("POST", "/api/import", {"content": archive(), "headers": {"Content-Type": "application/zip"}}),
    "document": ("POST", "/api/documents?name=a.txt", {"content": LARGE.encode()}),
    "import form": ("POST", "/api/import", {"files": {"file": ("a.zip", archive(), "application/zip")}}),
}


@pytest.mark.parametrize("way", PAGES)
async def test_page_beyond_the_memory_of_an_account_is_refused(tmp_path: Path, way: str) -> None:
    method, path, request = PAGES[way]
    async with running_app(tmp_path, memory_account_bytes=20_000) as app:
        small = {"slug": "small", "title": "small", "body": "small"}
        assert (await app.client.post("/api/pages", json=small, headers=app.bearer)).status_code == 201
        headers = {**app.bearer, **request.get("headers", {})}
        response = await app.client.request(method, path, **{**request, "headers": headers})
        tool = await app.client.post("/mcp", json=rpc("write", PAGE), headers=app.bearer)
        pages = (await app.client.get("/api/pages", headers=app.bearer)).json()["pages"]
    assert response.status_code == 413, response.text
    assert "limited to 20,000 bytes" in tool.text
    assert [page["slug"] for page in pages] == ["small"]
