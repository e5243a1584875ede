"""Websocket frames of a hostile client: parsed in slices, and limited in number."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from tests import loop_time

_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TEXT, _CONTINUATION, _PING = 0x81, 0x00, 0x89
# One read of 256 KiB took 100 ms.
LOOP_SECONDS = 0.05


def frame(head: int, data: bytes = b"") -> bytes:
    """Return a masked frame; the mask is 0."""
    assert len(data) < 2**16
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
    return bytes([head]) + size + bytes(4) + data


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Counts messages in the state, and keeps the end of the connection."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        scope["state"]["texts"].append(message["text"])
        if message["text"] == "end":
            await send({"type": "websocket.send", "text": "ended"})
    scope["state"]["ended"].set_result(message["code"])


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any]]]:
    """Yield a connection to a real server, and the messages that its application will receive."""
    loop = asyncio.get_running_loop()
    state = {"texts": list[str](), "ended": loop.create_future()}
    config = uvicorn.Config(
        _app, lifespan="off", log_config=None, ws=WebSocketProtocol, ws_per_message_deflate=False
    )
    server = await loop.create_server(
        lambda: HttpProtocol(config=config, server_state=ServerState(), app_state=state), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield reader, writer, state
    finally:
        writer.close()
        server.close()


@asynccontextmanager
async def open_websocket() -> AsyncGenerator[
    tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any]]
]:
    """Yield a websocket of a real server, and the messages that its application received."""
    async with connected() as (reader, writer, state):
        writer.write(_HANDSHAKE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        yield reader, writer, state


_LINES = _HANDSHAKE.removesuffix(b"\r\n")


@pytest.mark.parametrize(
    "handshake",
    [
        _LINES + b"X: " + b"a" * 30_000 + b"\r\n\r\n",
        _LINES + b"X: a\r\n" * 3000 + b"\r\n",
        _HANDSHAKE.replace(b"/ HTTP", b"/" + b"a" * 20_000 + b" HTTP"),
        _LINES + b"Content-Length: 5\r\n\r\nhello",
        _LINES.replace(b"GET", b"POST") + b"Content-Length: 5\r\n\r\nhello",
        _LINES + b"Content-Length: 5\r\n" + b"X: " * 7000 + b"\r\n\r\nhello",
        _HANDSHAKE.replace(b"AAAA", b"!"),
    ],
    ids=["header", "headers", "url", "body", "post", "body and headers", "key"],
)
async def test_invalid_handshake_is_refused_and_closed(handshake: bytes) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    async with connected() as (reader, writer, _), asyncio.timeout(60):
        writer.write(handshake)
        response = await reader.read()
    assert response.startswith(b"HTTP/1.1 4"), response
    assert failures == []


async def test_handshake_with_long_headers_is_accepted() -> None:
    async with connected() as (reader, writer, _), asyncio.timeout(60):
        writer.write(_LINES + (b"X: " + b"a" * 7000 + b"\r\n") * 5 + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")


async def test_small_frames_are_parsed_in_slices_and_in_order() -> None:
    texts = [str(number) for number in range(60_000)]
    sent = b"".join(frame(_TEXT, text.encode()) for text in texts)
    async with open_websocket() as (reader, writer, state), asyncio.timeout(60), loop_time.watched() as seen:
        writer.write(sent + frame(_TEXT, b"end"))
        assert await reader.readexactly(7) == b"\x81\x05ended"
    assert state["texts"] == [*texts, "end"]
    assert seen.longest < LOOP_SECONDS


async def test_large_messages_of_many_frames_arrive_whole() -> None:
    frames = [frame(0x01, b"a" * 60_000), *[frame(_CONTINUATION, b"b" * 60_000)] * 100]
    async with open_websocket() as (reader, writer, state), asyncio.timeout(60):
        writer.write(b"".join(frames) + frame(0x80, b"c") + frame(_TEXT, b"end"))
        assert await reader.readexactly(7) == b"\x81\x05ended"
    assert state["texts"] == ["a" * 60_000 + "b" * 6_000_000 + "c", "end"]


async def test_message_of_too_many_frames_ends_the_connection() -> None:
    async with open_websocket() as (_, writer, state), asyncio.timeout(60), loop_time.watched() as seen:
        writer.write(frame(0x01, b"a") + frame(_CONTINUATION) * 50_000)
        assert await state["ended"] == 1009
    assert seen.longest < LOOP_SECONDS
    assert state["texts"] == []
