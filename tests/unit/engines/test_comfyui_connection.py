"""A ComfyUI server that sends many small websocket messages, or pings whose answers it does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request
from websockets.server import ServerProtocol

from sixfold.clients.comfyui import connection
from sixfold.clients.comfyui.connection import ComfyConnection

EMPTY, PING, LAST = b"\x82\x00", b"\x89\x7d" + b"x" * 125, b"\x81\x04last"


@asynccontextmanager
async def connected(frames: bytes) -> AsyncIterator[ClientConnection]:
    """Connect to a server that sends frames and reads nothing after the handshake."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol()
        protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.writelines([*protocol.data_to_send(), frames])
        await done.wait()
        writer.close()

    done = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    address = f"ws://127.0.0.1:{port}"
    options = {"create_connection": ComfyConnection, "proxy": None, "compression": None}
    async with server, connect(address, **cast("Any", options)) as client:
        try:
            yield client
        finally:
            client.transport.abort()
            done.set()


async def test_small_messages_are_parsed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    parse = ClientConnection.data_received

    def recorded(client: ClientConnection, data: bytes) -> None:
        sizes.append(len(data))
        parse(client, data)

    monkeypatch.setattr(ClientConnection, "data_received", recorded)
    async with connected(EMPTY * 50_000 + LAST) as client:
        assert [await client.recv() for _ in range(50_000)] == [b""] * 50_000
        assert await client.recv() == "last"
    assert max(sizes) <= connection.SLICE_BYTES


async def test_connection_is_closed_when_pongs_are_not_read() -> None:
    async with connected(PING * 200_000) as client:
        with pytest.raises(ConnectionClosed):
            await client.recv()
