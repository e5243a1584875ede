"""Slow and silent clients over real sockets: each is disconnected, and its memory is released."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket
from uvicorn.server import ServerState

from sixfold.api.gateway.chat_handler import EventStreamResponse
from sixfold.core.accounts.rights import PUBLIC
from sixfold.settings import Settings
from sixfold.web import admission, refusals, responses
from sixfold.web.admission import Admission
from sixfold.web.app import WebApp
from sixfold.web.connections import overload
from sixfold.web.connections.overload import ConnectionCapacity
from sixfold.web.connections.peers import PeerLimits
from sixfold.web.connections.send_memory import SendMemory
from sixfold.web.connections.sweep import ConnectionSweep
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from sixfold.web.metrics import Metrics
from sixfold.web.routing import ApiGroup, RouteEntry, SocketRoute
from sixfold.web.trusted_hosts import TrustedHosts
from tests.harness.waiting import wait_until

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SWEEP = ConnectionSweep(idle_seconds=30, header_seconds=10, body_bytes_per_second=1024, send_seconds=60)
BLOCK = b"x" * 65_536
LARGE_BYTES = 8 * 2**20
UPGRADE = (
    b"GET /socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: " + base64.b64encode(b"k" * 16) + b"\r\n"
)
GET = b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"


class LoopbackLimits(PeerLimits):
    """Limits that also count addresses of this machine."""

    def peer(self, address: str) -> str | None:
        return address


class ServerFixture:
    """A server with one path of each kind."""

    def __init__(self, limits: PeerLimits, send_memory: SendMemory) -> None:
        self.limits = limits
        self.send_memory = send_memory
        self.state = ServerState()
        self.end_counts = Counter[str]()
        settings = Settings(database_url="sqlite:", websockets=3, event_streams_per_account=1)
        self.admission = Admission(settings, TrustedHosts(settings))
        routes = (
            RouteEntry("/ok", {"GET": self._ok}, access=PUBLIC),
            RouteEntry("/livez", {"GET": self._ok}, access=PUBLIC),
            RouteEntry("/body", {"POST": self._body}, 1 << 20, access=PUBLIC),
            RouteEntry("/events", {"GET": self._events}, access=PUBLIC),
            RouteEntry("/stream", {"GET": self._stream}, access=PUBLIC),
            RouteEntry("/large", {"GET": self._large}, access=PUBLIC),
        )
        face = ApiGroup(
            "a",
            responses.error_response,
            routes,
            sockets=(SocketRoute("/socket", self._talk, lambda _: True, PUBLIC),),
        )
        app = WebApp((face,), Metrics(), admission=self.admission)
        self.config = uvicorn.Config(app, ws=WebSocketProtocol, lifespan="off", log_config=None)

    async def _ok(self, _request: Request) -> Response:
        return responses.json({"status": "ok"})

    async def _large(self, _request: Request) -> Response:
        self.end_counts["large"] += 1
        return Response(bytes(LARGE_BYTES))

    async def _body(self, request: Request) -> Response:
        return responses.json({"bytes": len(await request.body())})

    async def _events(self, request: Request) -> Response:
        self.admission.event_stream(request, "ada")
        return StreamingResponse(self._frames())

    async def _stream(self, _request: Request) -> Response:
        return EventStreamResponse(self._silence())

    async def _silence(self) -> AsyncGenerator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            self.end_counts["stream"] += 1

    async def _frames(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield BLOCK
        finally:
            self.end_counts["events"] += 1

    async def _talk(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            self.admission.websockets.hold(websocket.scope, "ada")
            while True:
                await asyncio.sleep(0)
                await websocket.send_bytes(BLOCK)
        finally:
            self.end_counts["socket"] += 1

    def protocol(self) -> HttpProtocol:
        return HttpProtocol(
            config=self.config,
            server_state=self.state,
            app_state={},
            limits=self.limits,
            send_memory=self.send_memory,
        )

    def moment(self, seconds: float = 0) -> float:
        """A moment so many seconds from now."""
        return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def serving(
    limits: PeerLimits | None = None, send_memory: SendMemory | None = None
) -> AsyncGenerator[tuple[ServerFixture, int]]:
    """Run a server and yield its port; afterwards all counts are zero."""
    served = ServerFixture(limits or LoopbackLimits(1000, 1000, 1000), send_memory or SendMemory())
    listener = await asyncio.get_running_loop().create_server(served.protocol, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(200):
            yield served, listener.sockets[0].getsockname()[1]
            for each in tuple(served.state.connections):
                cast("Any", each).transport.abort()
            await poll_until(lambda: not served.state.connections)
            await poll_until(lambda: not served.state.tasks)
            counted = served.limits
            assert (counted.connections, counted.unfinished, counted.unfinished_total) == ({}, {}, 0)
            assert (served.admission.websockets.open, served.admission.event_streams.open) == (0, 0)
            assert not served.admission.websockets.holders
    finally:
        listener.close()


async def poll_until(condition: Callable[[], bool]) -> None:
    """Poll until bytes in transit have arrived; there is no event for it."""
    await wait_until(condition)


async def open_connection(stack: AsyncExitStack, port: int) -> Pair:
    """Return a connection that is closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    return reader, writer


async def answer(pair: Pair, sent: bytes) -> tuple[int, Any]:
    """Return the status and the document of the response to `sent`."""
    pair[1].write(sent)
    head = await pair[0].readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await pair[0].readexactly(length))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(b"", "slow_headers", id="silent connection"),
        pytest.param(b"GET /o", "slow_headers", id="half request line"),
        pytest.param(b"GET /ok HTTP/1.1\r\nhost: x\r\nx-a", "slow_headers", id="half header"),
        pytest.param(UPGRADE, "slow_headers", id="half websocket handshake"),
        pytest.param(POST, "slow_body", id="no body"),
        pytest.param(POST + b"x" * 5000, "slow_body", id="half body"),
    ],
)
async def test_client_that_stops_in_a_request_is_disconnected(sent: bytes, reason: str) -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        other = await open_connection(stack, port)
        reader, writer = await open_connection(stack, port)
        writer.write(sent)
        before = refusals.recorder().totals[reason]
        await poll_until(lambda: len(served.state.connections) == 2)
        assert await answer(other, GET) == (200, {"status": "ok"})
        await poll_until(lambda: served.limits.unfinished_total == 1)
        for second in range(50):
            SWEEP.run(served.state.connections, served.moment(second if second < 11 else 11))
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        assert refusals.recorder().totals[reason] == before + 1
        assert await answer(other, GET) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("first", "drop", "reason"),
    [
        pytest.param(b"GET /ok HTTP/1.1\r\nx-a: ", b"a", "slow_headers", id="header"),
        pytest.param(POST, b"x", "slow_body", id="body"),
    ],
)
async def test_client_that_drips_is_disconnected(first: bytes, drop: bytes, reason: str) -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        reader, writer = await open_connection(stack, port)
        writer.write(first)
        await poll_until(lambda: bool(served.state.connections))
        (connection,) = cast("list[HttpProtocol]", list(served.state.connections))
        before = refusals.recorder().totals[reason]
        for second in range(60):
            writer.write(drop)
            if reason == "slow_body":
                await poll_until(lambda least=second + 1: connection.body_bytes >= least)
            SWEEP.run(served.state.connections, served.moment(second / 5))
            if connection.transport.is_closing():
                break
        # The connection is reset if it contains data that was not read.
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        await poll_until(lambda: not served.state.connections)
        assert refusals.recorder().totals[reason] == before + 1


async def test_client_silent_after_its_response_is_disconnected() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        pair = await open_connection(stack, port)
        assert (await answer(pair, GET))[0] == 200
        assert served.limits.unfinished_total == 0
        SWEEP.run(served.state.connections, served.moment(31))
        assert await pair[0].read() == b""


@pytest.mark.parametrize(
    ("sent", "kind"), [(UPGRADE + b"\r\n", "socket"), (GET.replace(b"/ok", b"/events"), "events")]
)
async def test_client_that_never_reads_is_disconnected(sent: bytes, kind: str) -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        client = socket.socket()
        stack.callback(client.close)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(sent)
        limit = served.admission.websockets if kind == "socket" else served.admission.event_streams
        await poll_until(lambda: limit.open == 1 and len(served.state.connections) == 1)
        (connection,) = cast("list[Any]", list(served.state.connections))

        def is_full() -> bool:
            return connection.flow.write_paused if kind == "events" else not connection.writable.is_set()

        await poll_until(is_full)
        before = refusals.recorder().totals["slow_reader"]
        for second in (0, 1, 59):
            SWEEP.run(served.state.connections, served.moment(second))
        assert limit.holders == {"ada": 1}
        SWEEP.run(served.state.connections, served.moment(62))
        await poll_until(lambda: not served.state.connections)
        assert refusals.recorder().totals["slow_reader"] == before + 1
        await poll_until(lambda: served.end_counts[kind] == 1 and not served.state.tasks)
        assert (limit.open, limit.holders) == (0, {})


def unread_large(stack: AsyncExitStack, port: int) -> socket.socket:
    """Request a large response, which the caller reads itself."""
    client = socket.socket()
    stack.callback(client.close)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(GET.replace(b"/ok", b"/large"))
    return client


async def test_client_that_reads_a_few_bytes_at_a_time_is_disconnected() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        client = unread_large(stack, port)
        await poll_until(lambda: bool(served.state.connections))
        (connection,) = cast("list[Any]", list(served.state.connections))
        await poll_until(lambda: connection.flow.write_paused)
        client.setblocking(False)
        for second in range(40):
            with contextlib.suppress(BlockingIOError):
                client.recv(100)
            SWEEP.run(served.state.connections, served.moment(second))
        assert connection in served.state.connections
        for second in range(60, 130, 10):
            SWEEP.run(served.state.connections, served.moment(second))
        await poll_until(lambda: not served.state.connections)


async def test_unread_responses_together_are_limited() -> None:
    memory = SendMemory(3 * LARGE_BYTES)
    async with AsyncExitStack() as stack, serving(send_memory=memory) as (served, port):
        before = refusals.recorder().totals["send_memory"]
        for count in range(1, 9):
            unread_large(stack, port)
            await poll_until(lambda count=count: served.end_counts["large"] == count)
        unread = [cast("Any", each).transport.get_write_buffer_size() for each in served.state.connections]
        assert 0 < sum(unread) <= 3 * LARGE_BYTES
        assert refusals.recorder().totals["send_memory"] >= before + 4


async def test_pings_of_a_client_that_does_not_read_take_no_memory() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        reader, writer = await open_connection(stack, port)
        writer.write(UPGRADE + b"\r\n")
        await poll_until(lambda: served.admission.websockets.open == 1)
        lines = [each for each in served.state.connections if isinstance(each, WebSocketProtocol)]
        connection = cast("Any", lines[0])
        await poll_until(lambda: not connection.writable.is_set())
        before = connection.transport.get_write_buffer_size()
        received = connection.data_received
        frames: list[int] = []
        connection.data_received = lambda data: (received(data), frames.append(len(data)))
        ping = b"\x89\xfd" + bytes(4) + bytes(125)
        writer.write(ping * 20_000)
        await writer.drain()
        await poll_until(lambda: sum(frames) >= 131 * 15_000)
        assert connection.transport.get_write_buffer_size() <= before
        assert not reader.at_eof()


async def test_client_that_reads_slowly_is_not_disconnected() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        reader, writer = await open_connection(stack, port)
        writer.write(GET.replace(b"/ok", b"/events"))
        await poll_until(lambda: bool(served.state.connections))
        for second in range(0, 600, 30):
            await reader.readexactly(4 << 20)
            SWEEP.run(served.state.connections, served.moment(second))
        assert len(served.state.connections) == 1


async def test_event_stream_beyond_those_of_an_account_is_refused() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        stream = GET.replace(b"/ok", b"/events")
        reader, writer = await open_connection(stack, port)
        writer.write(stream)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        status, document = await answer(await open_connection(stack, port), stream)
        assert (status, document["code"]) == (429, "too_many_event_streams")
        writer.close()
        await poll_until(lambda: served.admission.event_streams.open == 0)
        reader, writer = await open_connection(stack, port)
        writer.write(stream)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")


async def test_address_with_too_many_connections_is_refused_alone() -> None:
    limits = LoopbackLimits(connections=5)
    async with AsyncExitStack() as stack, serving(limits) as (served, port):
        pairs = [await open_connection(stack, port) for _ in range(5)]
        await poll_until(lambda: len(served.state.connections) == 5)
        before = refusals.recorder().totals["peer_connections"]
        for _ in range(3):
            status, document = await answer(await open_connection(stack, port), GET)
            assert (status, document["code"]) == (429, "too_many_connections")
        assert (await answer(await open_connection(stack, port), GET.replace(b"/ok", b"/livez")))[0] == 200
        assert refusals.recorder().totals["peer_connections"] == before + 4
        assert limits.connect("192.0.2.1") is None
        limits.disconnect("192.0.2.1")
        pairs[0][1].close()
        await poll_until(lambda: len(served.state.connections) == 4)
        assert (await answer(await open_connection(stack, port), GET))[0] == 200


async def test_address_with_too_many_incomplete_requests_is_refused() -> None:
    limits = LoopbackLimits(unfinished=4)
    async with AsyncExitStack() as stack, serving(limits) as (_served, port):
        stayed = await open_connection(stack, port)
        assert (await answer(stayed, GET))[0] == 200
        for sent in (b"", b"GET /", POST, POST + b"x"):
            (await open_connection(stack, port))[1].write(sent)
        await poll_until(lambda: limits.unfinished_total == 4)
        status, document = await answer(await open_connection(stack, port), GET)
        assert (status, document["code"]) == (429, "too_many_unfinished_requests")
        status, document = await answer(stayed, POST)
        assert (status, document["code"]) == (429, "too_many_unfinished_requests")
        await poll_until(lambda: limits.connections["127.0.0.1"] == 4)


async def test_incomplete_requests_of_all_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "MIN_SILENT_SECONDS", 0)
    result = ConnectionCapacity(1 << 16)
    monkeypatch.setattr(overload, "capacity", lambda: result)
    async with AsyncExitStack() as stack, serving(LoopbackLimits(all_unfinished=4)) as (served, port):
        silent = [await open_connection(stack, port) for _ in range(4)]
        await poll_until(lambda: served.limits.unfinished_total == 4)
        assert (await answer(await open_connection(stack, port), GET))[0] == 200
        assert await silent[0][0].read() == b""


async def test_websocket_over_the_server_limit_is_refused_early() -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        for _ in range(3):
            reader, writer = await open_connection(stack, port)
            writer.write(UPGRADE + b"\r\n")
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        before = refusals.recorder().totals["websockets"]
        status, document = await answer(await open_connection(stack, port), UPGRADE + b"\r\n")
        assert (status, document["code"]) == (503, "too_many_connections")
        assert refusals.recorder().totals["websockets"] == before + 1
        assert served.admission.websockets.open == 3


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_thousands_of_connections_leave_nothing_counted(count: int) -> None:
    async with AsyncExitStack() as stack, serving() as (served, port):
        for number in range(count // 5):
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            pairs[0][1].write(GET)
            pairs[1][1].write(POST)
            pairs[2][1].write(b"GET /")
            if not number % 10:
                pairs[3][1].write(UPGRADE + b"\r\n")
            for _, writer in pairs:
                writer.close()
        await poll_until(lambda: not served.state.connections and not served.state.tasks)
        assert served.limits.unfinished_total == 0
        assert (await answer(await open_connection(stack, port), GET))[0] == 200


async def test_stream_ends_when_its_client_disconnects() -> None:
    async with serving() as (served, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET.replace(b"/ok", b"/stream"))
        await reader.readuntil(b"data: 1")
        tasks = len(served.state.tasks)
        writer.close()
        await poll_until(lambda: not served.state.tasks)
        assert (tasks, served.end_counts["stream"]) == (1, 1)


async def test_closed_connections_are_freed_without_garbage_collection(without_gc: None) -> None:
    async with serving() as (served, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await answer((reader, writer), GET))[0] == 200
        (connection,) = (weakref.ref(each) for each in served.state.connections)
        writer.close()
        await poll_until(lambda: connection() is None)


def test_release_of_a_request_that_held_nothing_does_nothing() -> None:
    admission.release({})
