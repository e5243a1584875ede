"""Compressed request bodies are accepted by every API, up to a limit after decompression."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.web.connections import encoded_bodies
from tests.api.app_fixture import running_app
from tests.api.gateway import running_gateway
from tests.harness.backends import FILES

CHAT = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", list(PACKERS))
async def test_encoded_body_is_read_by_all_kinds_of_routes(tmp_path: Path, encoding: str) -> None:
    async with running_gateway(tmp_path, settings=FILES) as gateway:
        headers = {**gateway.headers, "Content-Encoding": encoding, "Content-Type": "application/json"}
        post = gateway.app.client.post
        chat = await post(
            "/v1/chat/completions", content=PACKERS[encoding](json.dumps(CHAT).encode()), headers=headers
        )
        assert chat.json()["choices"][0]["message"]["content"] == "word word word"
        page = json.dumps({"slug": "notes/a", "body": "# A\n\ntext " + "x" * 100_000}).encode()
        response = await post("/api/pages", content=PACKERS[encoding](page), headers=headers)
        assert response.status_code in (200, 201), response.text
        wrong = await post("/api/pages", content=PACKERS[encoding](b"{"), headers=headers)
        assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/api/pages"])
async def test_body_that_expands_beyond_the_limit_is_413(tmp_path: Path, path: str) -> None:
    async with running_app(tmp_path, probe=False, inline_body_bytes=2**20, **FILES) as app:
        bomb = gzip.compress(b'{"input": "' + bytes(64 * 2**20))
        assert len(bomb) < 2**17
        response = await app.client.post(
            path, content=bomb, headers={**app.bearer, "Content-Encoding": "gzip"}
        )
        assert response.status_code == 413, response.text
        assert "too_large" in response.text


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("gzip", b"no gzip", 400),
        ("gzip", gzip.compress(b"{}" * 1000, mtime=0)[:-9], 400),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"more", 400),
        ("deflate", zlib.compress(b"{}") + b"more", 400),
        ("deflate", b"\x78\x9c\xff\xff", 400),
    ],
)
async def test_invalid_encoding_is_refused(tmp_path: Path, encoding: str, body: bytes, status: int) -> None:
    async with running_app(tmp_path, probe=False, **FILES) as app:
        headers = {**app.bearer, "Content-Encoding": encoding}
        response = await app.client.post("/v1/embeddings", content=body, headers=headers)
        assert response.status_code == status, response.text
        assert response.json()["error"]["code"] in ("unsupported_media", "bad_request")
        empty = await app.client.get("/v1/models", headers={**app.bearer, "Content-Encoding": "gzip"})
        assert empty.status_code == 200


async def read(encoding: str, body: bytes, most: int, step: int = 1000) -> tuple[bytes, list[int]]:
    """Decode a body that comes in steps; return it with the sizes of its pieces."""
    chunks = [body[at : at + step] for at in range(0, len(body), step)]
    scope: dict[str, Any] = {"headers": [(b"content-encoding", encoding.encode()), (b"content-length", b"5")]}

    async def receive() -> Any:
        chunk = chunks.pop(0) if chunks else b""
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    decoded = encoded_bodies.decode(scope, receive, most)
    assert scope["headers"] == [(b"transfer-encoding", b"chunked")]
    pieces: list[bytes] = []
    more = True
    while more:
        message = await decoded()
        pieces.append(message["body"])
        more = message["more_body"]
    return b"".join(pieces), [len(piece) for piece in pieces]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 2**20])
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, raw_deflate])
async def test_pieces_are_bounded_and_nothing_is_lost(pack: Any, size: int) -> None:
    encoding = "gzip" if pack is gzip.compress else "deflate"
    for data in (bytes(size), bytes(range(251)) * (size // 251 + 1)):
        for step in (1, 7, 4096) if size < 2**17 else (4096,):
            result, sizes = await read(encoding, pack(data), 2**22, step)
            assert result == data
            assert max(sizes) <= 64 * 1024


async def test_empty_members_and_compressed_bytes_are_limited() -> None:
    member = gzip.compress(b"")
    assert (await read("gzip", member * 1000, 2**20))[0] == b""
    with pytest.raises(errors.BadRequest, match="continues after"):
        await read("gzip", member * 1001, 2**20)
    with pytest.raises(errors.TooLarge):
        await read("gzip", member * 900, 1000)
