"""Contract of the transport to model servers, for each HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sixfold.clients.chat.transport import Transport
from sixfold.clients.chat.transports.asyncio_http import AsyncioTransport
from sixfold.clients.chat.transports.pyreqwest import PyreqwestTransport
from sixfold.core.gateway.ports import UpstreamFailure, read_all

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
_QUIET = 0.2


@dataclass
class Listening:
    """Server that sends configured bytes."""

    url: str
    heads: list[bytes] = field(default_factory=list[bytes])
    bodies: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[Listening]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener.connections += 1
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                listener.heads.append(head)
                listener.bodies.append(await reader.readexactly(int(length or 0)))
                await answer(writer)
        listener.disconnected.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    listener = Listening(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    writers: list[asyncio.StreamWriter] = []
    async with server:
        yield listener
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture(params=(AsyncioTransport, PyreqwestTransport))
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    client = request.param(1.0, _QUIET)
    yield client
    await client.aclose()


def _says(raw: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return answer


def _cut(raw: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    return answer


WHOLE = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"a": "b"'


async def test_body_and_response_are_transferred_unchanged(transport: Transport) -> None:
    async with listening(_says(WHOLE)) as server:
        for number in range(3):
            stream = await transport.post(server.url, {"X-Own": "1"}, b"{%d}" % number, stream=False)
            assert (stream.status, await read_all(stream)) == (200, b'{"a": "b"')
            await stream.aclose()
        assert server.bodies == [b"{0}", b"{1}", b"{2}"]
        head = server.heads[0].lower()
        assert b"x-sixfold-hop: 1" in head
        assert b"x-own: 1" in head
        assert b"user-agent: sixfold/" in head
        assert b"gzip" not in head
        # After a response was read, its connection is used for the next request.
        assert server.connections == 1


async def test_stream_is_read_before_its_end(transport: Transport) -> None:
    following = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        await following.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with listening(answer) as server:
        stream = await transport.post(server.url, {}, b"{}", stream=True)
        assert await stream.read() == b"one"
        following.set()
        assert await stream.read() == b"two"
        assert await stream.read() == b""
        await stream.aclose()


async def test_closing_a_stream_closes_the_connection(transport: Transport) -> None:
    async with listening(
        _says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
    ) as server:
        stream = await transport.post(server.url, {}, b"{}", stream=True)
        assert await stream.read() == b"one"
        await stream.aclose()
        await stream.aclose()
        async with asyncio.timeout(60):
            await server.disconnected.wait()


async def test_error_status_is_returned_as_a_response(transport: Transport) -> None:
    raw = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy"
    async with listening(_says(raw)) as server:
        stream = await transport.get(server.url, {})
        assert (stream.status, stream.retry_after, await read_all(stream)) == (429, "7", b"busy")
        await stream.aclose()


async def test_no_redirect_is_followed(transport: Transport) -> None:
    raw = b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with listening(_says(raw)) as server:
        stream = await transport.get(server.url, {})
        assert (stream.status, await read_all(stream), len(server.heads)) == (302, b"", 1)
        await stream.aclose()


async def test_refused_connection_is_an_upstream_failure(transport: Transport) -> None:
    async with listening(_says(WHOLE)) as server:
        url = server.url
    with pytest.raises(UpstreamFailure, match="could not be reached"):
        await transport.post(url, {}, b"{}", stream=False)


@pytest.mark.parametrize("stream", [False, True])
async def test_truncated_response_is_an_upstream_failure(transport: Transport, *, stream: bool) -> None:
    async with listening(_cut(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")) as server:
        with pytest.raises(UpstreamFailure, match="disconnected before the response was complete"):
            await _ask(transport, server.url, stream=stream)


async def _ask(transport: Transport, url: str, *, stream: bool) -> bytes:
    response = await transport.post(url, {}, b"{}", stream=stream)
    try:
        return await read_all(response)
    finally:
        await response.aclose()


async def test_silent_server_is_an_upstream_failure(transport: Transport) -> None:
    async with listening(_says(b"")) as server:
        with pytest.raises(UpstreamFailure, match="did not respond in time"):
            await transport.post(server.url, {}, b"{}", stream=False)
    async with listening(_says(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")) as server:
        response = await transport.post(server.url, {}, b"{}", stream=True)
        assert await response.read() == b"half"
        with pytest.raises(UpstreamFailure, match="stopped responding"):
            await response.read()
        await response.aclose()
