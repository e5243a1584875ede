"""The plain HTTP client: which connections are reused."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sixfold.clients.chat.transports import asyncio_http
from sixfold.clients.chat.transports.asyncio_http import AsyncioTransport
from sixfold.core.concurrency import loop_turns
from sixfold.core.gateway.ports import UpstreamFailure, read_all

Talk = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n%03d"


@asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[str]:
    """Run a server whose handler receives the number of the connection."""
    numbers = iter(range(1000))
    futures: list[asyncio.Future[None]] = []
    readers: list[asyncio.StreamReader] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = asyncio.get_running_loop().create_future()
        futures.append(end)
        readers.append(reader)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await talk(next(numbers), reader, writer)
        writer.close()
        end.set_result(None)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        for reader in readers:
            reader.feed_eof()
        await asyncio.gather(*futures)


@pytest.fixture
async def client() -> AsyncIterator[AsyncioTransport]:
    transport = AsyncioTransport(30, 30)
    yield transport
    await transport.aclose()


async def _ask(client: AsyncioTransport, url: str, body: bytes = b"{}") -> bytes:
    answer = await client.post(url, {}, body, stream=False)
    try:
        return await read_all(answer)
    finally:
        await answer.aclose()


async def test_idle_connection_closed_by_peer_is_replaced(client: AsyncioTransport) -> None:
    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(_WHOLE % number)
        if number == 0:
            # The second request is read, but never answered.
            await reader.readuntil(b"{}")
            return
        await reader.read()

    async with serving(talk) as url:
        assert await _ask(client, url) == b"000"
        assert await _ask(client, url) == b"001"


async def test_closed_new_connection_is_not_retried(client: AsyncioTransport) -> None:
    counts: list[int] = []

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        counts.append(number)

    async with serving(talk) as url:
        with pytest.raises(UpstreamFailure, match="could not be reached"):
            await _ask(client, url)
    assert counts == [0]


@pytest.mark.parametrize("stray", [b"x", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"])
async def test_unrequested_response_is_discarded(client: AsyncioTransport, stray: bytes) -> None:
    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"{}"):
            writer.write(_WHOLE % number + (stray if number == 0 else b""))

    async with serving(talk) as url:
        assert [await _ask(client, url) for _ in range(3)] == [b"000", b"001", b"001"]


async def test_body_without_a_length_ends_at_the_end_of_connection(client: AsyncioTransport) -> None:
    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with serving(talk) as url:
        assert await _ask(client, url) == b"all of it"


async def test_interim_responses_are_skipped(client: AsyncioTransport) -> None:
    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n" + _WHOLE % number)
        await reader.read()

    async with serving(talk) as url:
        assert await _ask(client, url) == b"000"


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"HTTP/1.1 200 OK\r\na: ", b"a" * 65_536),
        (b"HTTP/1.1 200 OK\r\n", b"a: 1\r\n" * 10_000),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: ", b"a" * 65_536),
    ],
    ids=["header", "headers", "interim", "trailer"],
)
async def test_endless_headers_are_refused(client: AsyncioTransport, first: bytes, more: bytes) -> None:
    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(first)
        while True:
            writer.write(more)
            await writer.drain()

    async with serving(talk) as url:
        with pytest.raises(UpstreamFailure, match="headers of more than"):
            async with asyncio.timeout(30):
                await _ask(client, url)


async def test_body_in_small_chunks_takes_little_more_than_its_bytes(client: AsyncioTransport) -> None:
    count = 200_000

    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(count // 1_000):
            writer.write(b"2\r\nab\r\n" * 1_000)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with serving(talk) as url:
        tracemalloc.start()
        try:
            body = await _ask(client, url)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert body == b"ab" * count
    assert most < 6 * 2**20


async def test_small_chunks_are_parsed_in_different_turns(
    client: AsyncioTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, count = 8, 30_000
    parts_by_turn: list[int] = [0]
    take = asyncio_http.HttpReply.take

    def count_part(reply: asyncio_http.HttpReply, data: bytes) -> None:
        parts_by_turn[-1] += 1
        take(reply, data)

    async def count_turns() -> None:
        while True:
            await asyncio.sleep(0)
            parts_by_turn.append(0)

    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"1\r\na\r\n" * count + b"0\r\n\r\n")
        await writer.drain()

    monkeypatch.setattr(asyncio_http.HttpReply, "take", count_part)
    async with serving(talk) as url:
        turns = asyncio.create_task(count_turns())
        bodies = await asyncio.gather(*(_ask(client, url) for _ in range(connections)))
        turns.cancel()
    assert bodies == [b"a" * count] * connections
    slice_parts = loop_turns.SLICE_BYTES // len(b"1\r\na\r\n")
    # The first data of each connection may arrive in the same turn.
    assert max(parts_by_turn) <= (connections + 1) * (loop_turns.MAX_PARTS + slice_parts)
    assert sum(number > loop_turns.MAX_PARTS + slice_parts for number in parts_by_turn) <= connections


async def test_large_reads_are_parsed_in_different_turns(
    client: AsyncioTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, chunk = 24, b"1;" + b"a" * 60_000 + b"\r\na\r\n"
    bytes_by_turn: list[int] = [0]
    feed = asyncio_http._Connection._feed

    def count_bytes(connection: Any, data: bytes) -> None:
        bytes_by_turn[-1] += len(data)
        feed(connection, data)

    async def count_turns() -> None:
        while True:
            await asyncio.sleep(0)
            bytes_by_turn.append(0)

    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 20 + b"0\r\n\r\n")
        await writer.drain()

    monkeypatch.setattr(asyncio_http._Connection, "_feed", count_bytes)
    async with serving(talk) as url:
        turns = asyncio.create_task(count_turns())
        bodies = await asyncio.gather(*(_ask(client, url) for _ in range(connections)))
        turns.cancel()
    assert bodies == [b"a" * 20] * connections
    # One more read, and one of a connection that waited.
    assert max(bytes_by_turn) <= asyncio_http.READ_BYTES + 2 * 2**18


async def test_data_after_small_chunks_closes_the_connection(
    client: AsyncioTransport,
) -> None:
    body = b"1\r\na\r\n" * 3_000 + b"0\r\n\r\n"

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + body + (head + body) * (not number))
        await writer.drain()
        await reader.read()

    async with serving(talk) as url:
        assert await _ask(client, url) == b"a" * 3_000
        assert await _ask(client, url) == b"a" * 3_000


async def test_response_that_is_not_http_is_a_failure(client: AsyncioTransport) -> None:
    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"SSH-2.0-other\r\n")
        await reader.read()

    async with serving(talk) as url:
        with pytest.raises(UpstreamFailure, match="cannot be parsed"):
            await _ask(client, url)


async def test_slow_reader_delays_the_server_and_loses_nothing(client: AsyncioTransport) -> None:
    size, sent = 64 * 2**20, asyncio.Event()

    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // 2**20):
            writer.write(bytes(2**20))
            await writer.drain()
        sent.set()

    async with serving(talk) as url:
        response = await client.post(url, {}, b"{}", stream=True)
        read = 0
        while block := await response.read():
            # The server had not sent most of the response before the first read.
            assert read or not sent.is_set()
            assert len(block) < 4 * 2**20
            read += len(block)
        await response.aclose()
        assert read == size


async def test_canceled_call_closes_its_connection(client: AsyncioTransport) -> None:
    request, closed = asyncio.Event(), asyncio.Event()

    async def talk(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        request.set()
        await reader.read()
        closed.set()

    async with serving(talk) as url, asyncio.timeout(60):
        asking = asyncio.create_task(_ask(client, url))
        await request.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await closed.wait()


async def test_idle_connections_are_closed_after_a_while(
    client: AsyncioTransport, monkeypatch: pytest.MonkeyPatch, without_gc: None
) -> None:
    monkeypatch.setattr(asyncio_http, "IDLE_SECONDS", 0.01)
    ends, freed = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(_WHOLE % number)
        assert await reader.read() == b""
        ends.release()

    async with serving(talk) as url, asyncio.timeout(60):
        await asyncio.gather(*(_ask(client, url) for _ in range(3)))
        idle = [each for connections in client._idle.values() for each in connections]
        assert len([weakref.finalize(each, freed.release) for each in idle]) == 3
        idle.clear()
        for event in (ends, freed) * 3:
            await event.acquire()


async def test_header_with_a_line_break_is_refused(client: AsyncioTransport) -> None:
    with pytest.raises(UpstreamFailure, match="contains a line break"):
        await client.post("http://127.0.0.1:1/v1", {"X": "a\r\nY: b"}, b"{}", stream=False)


async def test_last_of_two_spellings_of_a_header_is_sent(client: AsyncioTransport) -> None:
    heads: list[bytes] = []

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"{}"))
        writer.write(_WHOLE % number)
        await reader.read()

    async with serving(talk) as url:
        answer = await client.post(url, {"Content-Type": "a/b", "content-type": "c/d"}, b"{}", stream=False)
        await answer.aclose()
    assert b"c/d" in heads[0]
    assert b"a/b" not in heads[0]


@pytest.mark.parametrize("stream", [True, False])
async def test_sent_body_is_not_kept_during_the_response(client: AsyncioTransport, stream: bool) -> None:
    size, received, answering = 8 * 2**20, asyncio.Event(), asyncio.Event()

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left = size
        while left:
            left -= len(await reader.read(2**16))
        received.set()
        await answering.wait()
        writer.write(_WHOLE % number)

    async with serving(talk) as url:
        tracemalloc.start()
        try:
            opening = asyncio.create_task(client.post(url, {}, bytes(size), stream=stream))
            await received.wait()
            # The frames of the calls that have returned.
            await asyncio.sleep(0)
            current, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        answering.set()
        reply = await opening
        await reply.aclose()
    assert current < 2**20
    assert most < 2.5 * size


async def test_large_body_is_sent_on_a_new_connection(client: AsyncioTransport) -> None:
    large = 2 * 2**20

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(_WHOLE % number)

    async with serving(talk) as url:
        bodies = [await _ask(client, url, bytes(size)) for size in (1, 1, large, 1)]
    assert bodies[0] == bodies[1] != bodies[2]
