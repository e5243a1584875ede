"""Requests of a hostile client: parsed in slices, with limits on buffered data."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sixfold.web import refusals
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.raw_asgi import CONNECTION, RawResponse
from tests.harness.waiting import wait_until

KIB = 1024
# The requests of one slice.
MOST_AHEAD = 150
# What one read of a socket returns, twice, and a slice.
MOST_BYTES = 600 * KIB


class Served:
    """Application that responds with the length of a body, once it is released."""

    def __init__(self) -> None:
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self.ahead = self.calls = 0
        self.connection: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.connection = scope[CONNECTION]
        self.ahead = max(self.ahead, len(self.connection.pipeline))
        self.calls += 1
        self.arrived.set()
        await self.released.wait()
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message["body"])
            if not message["more_body"]:
                break
        self.ahead = max(self.ahead, len(self.connection.pipeline))
        await RawResponse(b"%d" % size, [])(scope, receive, send)


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Served, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A server on a socket, and a connection to it."""
    served, state = Served(), ServerState()
    config = uvicorn.Config(served, lifespan="off", log_config=None)
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(60):
            yield served, reader, writer
    finally:
        served.released.set()
        writer.close()
        server.close()
        for connection in tuple(state.connections):
            connection.shutdown()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of the next response."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200 ")
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return await reader.readexactly(length)


async def test_few_pipelined_requests_are_read_ahead() -> None:
    async with serving() as (served, reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 5_000)
        await served.arrived.wait()
        served.released.set()
        for _ in range(5_000):
            assert await answer(reader) == b"0"
        assert 0 < served.ahead < MOST_AHEAD
        assert served.calls == 5_000


async def test_waiting_requests_do_not_fill_memory() -> None:
    async with serving() as (served, reader, writer):
        request = b"GET / HTTP/1.1\r\nx-a: " + b"a" * 4 * KIB + b"\r\n\r\n"
        writer.write(request * 2_000)
        await served.arrived.wait()
        await wait_until(lambda: served.connection.flow.read_paused)
        served.released.set()
        for _ in range(2_000):
            assert await answer(reader) == b"0"
            assert len(served.connection._data) <= MOST_BYTES
        assert served.ahead < MOST_AHEAD


async def test_bodies_and_requests_in_one_write_arrive_whole() -> None:
    sizes = [0, 1, 2_047, 2_048, 2_049, 16_384, 70_000, 5, 300_000, 1, 1_000_000, 0, 3]
    sent = [b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size) for size in sizes]
    small = b"".join(b"%x\r\n%b\r\n" % (size, b"y" * size) for size in (1, 2, 3, 4_000) * 500)
    sent.append(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + small + b"0\r\n\r\n")
    async with serving() as (served, reader, writer):
        served.released.set()
        writer.write(b"".join(sent * 2))
        for size in (*sizes, 4_006 * 500) * 2:
            assert await answer(reader) == b"%d" % size


async def test_body_that_is_not_read_does_not_fill_memory() -> None:
    size = 8 * KIB * KIB
    async with serving() as (served, reader, writer):
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
        await served.arrived.wait()
        # During requests of another connection, all available data is read.
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(served.connection.cycle.body) <= MOST_BYTES
        served.released.set()
        assert await answer(reader) == b"%d" % size


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET /" + b"a" * 200 * KIB, id="address"),
        pytest.param(b"GET / HTTP/1.1\r\nx-a: " + b"a" * 200 * KIB, id="header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 40 * KIB, id="many headers"),
        pytest.param(
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 40 * KIB,
            id="trailers",
        ),
    ],
)
async def test_headers_beyond_the_limit_are_refused(sent: bytes) -> None:
    before = refusals.recorder().totals["long_headers"]
    async with serving() as (_, reader, writer):
        writer.write(sent)
        # The connection is reset if not all was read.
        with contextlib.suppress(ConnectionResetError):
            response = await reader.read()
            assert response.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert refusals.recorder().totals["long_headers"] == before + 1


async def test_headers_of_sixty_kib_are_accepted() -> None:
    async with serving() as (served, reader, writer):
        served.released.set()
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nx-a: " + b"a" * 60 * KIB + b"\r\n\r\n")
            assert await answer(reader) == b"0"


async def test_data_that_is_not_http_is_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    before = refusals.recorder().totals["invalid_request"]
    async with serving() as (_, reader, writer):
        writer.write(b"\0\0\0\0")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    async with serving() as (served, reader, writer):
        served.released.set()
        writer.write(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert await answer(reader) == b"0"
    assert refusals.recorder().totals["invalid_request"] == before + 1
    assert not caplog.records
