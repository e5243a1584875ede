"""Many connections of hostile clients at once, whose data has many small parts: how much one turn parses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sixfold.core.concurrency.loop_turns import MAX_PARTS
from sixfold.web.connections import uvicorn_protocol
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from sixfold.web.raw_asgi import RawResponse

CONNECTIONS = 16
_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_CHUNK = b"1\r\na\r\n"
_PONG, _TEXT = b"\x8a\x80\0\0\0\0", b"\x81\x80\0\0\0\0"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Responds with the length of a body, or sends one message after an empty binary message."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") is None:
                await send({"type": "websocket.send", "text": "ended"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await RawResponse(b"%d" % size, [])(scope, receive, send)


@asynccontextmanager
async def _serving() -> AsyncGenerator[int]:
    """Yield the port of a server."""
    state = ServerState()
    config = uvicorn.Config(
        _app, lifespan="off", log_config=None, ws=WebSocketProtocol, ws_per_message_deflate=False
    )
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        async with asyncio.timeout(120):
            yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in tuple(state.connections):
            connection.transport.abort()


async def _exchange(port: int, head: bytes, begins: bytes, sent: bytes, end: bytes) -> None:
    """Send data after a head, and read until the server has sent `end`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    if begins:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(begins)
    writer.write(sent)
    await reader.readuntil(end)
    writer.close()


async def _parts_per_turn(counted: list[int], exchange: Callable[[int], Any]) -> list[int]:
    """Return the parts that each turn of the event loop has parsed."""

    async def count_turns() -> None:
        while True:
            await asyncio.sleep(0)
            counted.append(0)

    async with _serving() as port:
        turns = asyncio.create_task(count_turns())
        await asyncio.gather(*(exchange(port) for _ in range(CONNECTIONS)))
        turns.cancel()
    return counted


def _assert_shared(counted: list[int], slice_parts: int, parts: int) -> None:
    """At most the first data of each connection, and one connection later, are parsed in one turn."""
    assert sum(counted) >= parts * CONNECTIONS
    most = MAX_PARTS + slice_parts
    assert max(counted) <= (CONNECTIONS + 1) * most
    assert sum(number > 2 * most for number in counted) <= CONNECTIONS


@pytest.mark.parametrize("frame", [pytest.param(_PONG, id="pongs"), pytest.param(_TEXT, id="empty messages")])
async def test_frames_of_many_websockets_are_parsed_in_turns(
    monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    counted, count = [0], 20_000
    handle = WebSocketProtocol.handle_events

    def count_frames(protocol: WebSocketProtocol) -> None:
        counted[-1] += len(protocol.conn.events)
        handle(protocol)

    monkeypatch.setattr(WebSocketProtocol, "handle_events", count_frames)
    sent = frame * count + b"\x82\x80\0\0\0\0"
    await _parts_per_turn(
        counted, lambda port: _exchange(port, _HANDSHAKE, b"HTTP/1.1 101", sent, b"\x81\x05ended")
    )
    _assert_shared(counted, 2_048 // len(frame), count)


async def test_chunks_of_many_requests_are_parsed_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, count = [0], 20_000
    take = HttpProtocol.on_body

    def count_chunk(protocol: HttpProtocol, body: bytes) -> None:
        counted[-1] += 1
        take(protocol, body)

    monkeypatch.setattr(HttpProtocol, "on_body", count_chunk)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = _CHUNK * count + b"0\r\n\r\n"
    await _parts_per_turn(counted, lambda port: _exchange(port, head, b"", sent, b"\r\n\r\n%d" % count))
    _assert_shared(counted, 2_048 // len(_CHUNK), count)


async def test_headers_of_many_requests_are_parsed_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, lines = [0], 10_000
    take = HttpProtocol.on_header

    def count_header(protocol: HttpProtocol, name: bytes, value: bytes) -> None:
        counted[-1] += 1
        take(protocol, name, value)

    monkeypatch.setattr(HttpProtocol, "on_header", count_header)
    head = b"GET / HTTP/1.1\r\nHost: x\r\n"
    await _parts_per_turn(
        counted, lambda port: _exchange(port, head, b"", b"a:b\r\n" * lines + b"\r\n", b"\r\n\r\n0")
    )
    dense = (uvicorn_protocol._DENSE_BYTES + 2_048) // len(b"a:b\r\n")
    _assert_shared(counted, dense, lines)
