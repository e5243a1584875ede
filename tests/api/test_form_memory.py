"""Large files of forms are stored without a copy in memory beside the body."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from starlette.requests import Request
from starlette.types import Message

from sixfold.web import bodies
from tests.api.app_fixture import running_app

MIB = 2**20
CONTENT = bytes(range(256)) * (32 * MIB // 256)
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'


def _request(*chunks: bytes) -> Request:
    pending = iter(chunks)

    async def receive() -> Message:
        # A copy, as from a connection.
        chunk = next(pending, b"")
        return {"type": "http.request", "body": bytes(bytearray(chunk)), "more_body": bool(chunk)}

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    return bodies.BufferedRequest({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_a_body_takes_its_own_size_in_memory() -> None:
    request = _request(*[CONTENT[: 2**16]] * 512)
    tracemalloc.start()
    try:
        assert len(await request.body()) == 32 * MIB
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grown < 48 * MIB


async def test_a_large_file_of_a_form_is_not_copied(tmp_path: Path) -> None:
    request = _request(HEAD + CONTENT + b"\r\n--b--\r\n")
    await request.body()
    async with running_app(tmp_path) as app:
        media = app.server.media
        tracemalloc.start()
        try:
            fields = await bodies.fields(request)
            source = await media.store_unnamed(fields.files["file"], "application/octet-stream")
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert await app.server.blobs.get(source.blob) == CONTENT
    assert grown < 8 * MIB
