"""Large bodies of ComfyUI's routes and of idempotent requests are read and hashed off the event loop."""

from __future__ import annotations

import hashlib
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.input_limits import json_decoding
from sixfold.web import idempotency, responses
from tests.api.app_fixture import running_app

BODY = json.dumps({"delete": ["a"] * 200_000}).encode()
PATHS = ("/prompt", "/queue", "/history", "/interrupt", "/free", "/api/graph/validate", "/api/graph/diff")
MIB = 2**20


@pytest.mark.parametrize("path", PATHS)
async def test_a_large_body_is_decoded_in_another_thread(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    decode = json_decoding.decode

    def record(raw: Any) -> Any:
        readers.append(threading.current_thread())
        return decode(raw)

    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        monkeypatch.setattr(json_decoding, "decode", record)
        response = await app.client.post(path, content=BODY, headers=app.bearer)
        assert response.status_code in (200, 400), response.text[:300]
    assert readers
    assert threading.main_thread() not in readers


async def test_large_idempotent_request_is_hashed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashers: list[threading.Thread] = []

    def sha256(data: bytes) -> Any:
        hashers.append(threading.current_thread())
        return hashlib.sha256(data)

    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        monkeypatch.setattr(idempotency, "hashlib", SimpleNamespace(sha256=sha256))
        body = json.dumps({"workflow": {}, "name": "a" * 2 * MIB}).encode()
        for _ in range(2):
            headers = app.bearer | {"Idempotency-Key": "a"}
            response = await app.client.post("/api/graph/spaces", content=body, headers=headers)
            assert response.status_code == 400, response.text[:300]
    assert len(hashers) == 2
    assert threading.main_thread() not in hashers


async def test_large_prompts_are_encoded_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoders: list[threading.Thread] = []
    raw = responses.raw

    def record(content: Any) -> Any:
        encoders.append(threading.current_thread())
        return raw(content)

    text = {"class_type": "PrimitiveString", "inputs": {"value": "a" * 300_000}}
    shown = {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}}
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        body = {"prompt": {"1": text, "2": shown}}
        prompt = (await app.client.post("/prompt", json=body, headers=app.bearer)).json()["prompt_id"]
        [found] = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()[
            "predictions"
        ]
        await app.predictions.wait(await app.predictions.get_any(found["id"]), 60)
        monkeypatch.setattr(responses, "raw", record)
        for path in ("/history", f"/history/{prompt}"):
            assert prompt in (await app.client.get(path, headers=app.bearer)).json()
    assert len(encoders) == 2
    assert threading.main_thread() not in encoders


def form(size: int, original: str = "{}") -> AsyncIterator[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        part = '--b\r\nContent-Disposition: form-data; name="{}"'
        yield (part.format("original_ref") + f"\r\n\r\n{original}\r\n").encode()
        yield (part.format("image") + '; filename="a.png"\r\n\r\n').encode() + b"\x89PNG\r\n\x1a\n"
        for _ in range(size // MIB):
            yield bytes(MIB)
        yield b"\r\n--b--\r\n"

    return pieces()


@pytest.mark.parametrize("path", ["/upload/image", "/upload/mask"])
async def test_large_upload_takes_little_memory(tmp_path: Path, path: str) -> None:
    size, kind = 64 * MIB, {"Content-Type": "multipart/form-data; boundary=b"}
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        small = await app.client.post("/upload/image", content=form(MIB), headers=app.bearer | kind)
        original = json.dumps({"filename": small.json()["name"], "type": "input"})
        tracemalloc.start()
        try:
            sent = form(size, original)
            response = await app.client.post(path, content=sent, headers=app.bearer | kind)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert response.status_code == (200 if path == "/upload/image" else 400), response.text
        assert peak < 16 * MIB
        assert not list((tmp_path / "tmp").glob("upload-*"))
