"""uvicorn's protocol with the fast path, over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from sixfold.web import refusals
from sixfold.web.connections.sweep import ConnectionSweep
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.raw_asgi import CONNECTION, RawResponse, abort
from tests.harness.waiting import wait_until

SWEEP = ConnectionSweep(idle_seconds=30, header_seconds=10, body_bytes_per_second=100)
_REQUEST = b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the path, also in a header with every `!` as a line end; `late` waits for its event."""
    path = scope["path"][1:].encode()
    if path == b"body":
        scope["state"]["asked"].set()
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        scope["state"]["told"].set()
    if path in (b"part", b"part-of-10"):
        headers = [(b"content-length", b"10")] if path.endswith(b"10") else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        await scope["state"]["told"].wait()
        assert abort(scope)
        return
    if path == b"late":
        scope["state"]["asked"].set()
        await scope["state"]["told"].wait()
    await RawResponse(path, [(b"x-path", path.replace(b"!", b"\r\n"))])(scope, receive, send)


@asynccontextmanager
async def _served() -> AsyncGenerator[tuple[int, ServerState, asyncio.Event, asyncio.Event]]:
    request, response, state = asyncio.Event(), asyncio.Event(), ServerState()
    state.default_headers = [(b"date", b"now")]
    config = uvicorn.Config(_app, lifespan="off", log_config=None)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: HttpProtocol(
            config=config, server_state=state, app_state={"asked": request, "told": response}
        ),
        "127.0.0.1",
        0,
    )
    try:
        yield server.sockets[0].getsockname()[1], state, request, response
    finally:
        response.set()
        server.close()
        for connection in tuple(state.connections):
            connection.shutdown()


async def _answer(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    length = next(line for line in head if line.startswith(b"content-length: "))
    return head, await reader.readexactly(int(length[16:]))


async def test_complete_response_has_its_own_and_server_headers() -> None:
    async with _served() as (port, *_), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"one")
        head, body = await _answer(reader)
        assert (head[0], body) == (b"HTTP/1.1 200 OK", b"one")
        assert {b"date: now", b"x-path: one", b"content-type: application/json"} < set(head)
        writer.close()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with _served() as (port, state, request, response), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"late" + _REQUEST % b"two" + _REQUEST % b"three")
        await request.wait()
        response.set()
        assert [(await _answer(reader))[1] for _ in range(3)] == [b"late", b"two", b"three"]
        assert state.total_requests == 3
        writer.close()


async def test_header_with_a_line_break_is_never_sent() -> None:
    async with _served() as (port, *_), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"one!set-cookie:")
        # uvicorn closes the connection.
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("path", [b"part", b"part-of-10"])
async def test_aborted_response_is_not_taken_for_complete(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with _served() as (port, state, _, response), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % path)
        await reader.readuntil(b"part")
        response.set()
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).strip() == b""
        await _until(lambda: not state.tasks)
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        writer.close()


async def test_head_has_no_body_and_connection_close_is_obeyed() -> None:
    async with _served() as (port, *_), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HEAD /one HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"content-length: 3" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"GET /two HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        head, body = await _answer(reader)
        assert b"connection: close" in head
        assert (body, await reader.read()) == (b"two", b"")
        writer.close()


async def test_idle_connection_is_closed_and_waiting_one_is_not() -> None:
    async with _served() as (port, state, request, response), asyncio.timeout(60):
        idle, closing = await asyncio.open_connection("127.0.0.1", port)
        closing.write(_REQUEST % b"one")
        await _answer(idle)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"one")
        await _answer(reader)
        writer.write(_REQUEST % b"late")
        await request.wait()
        moment = asyncio.get_running_loop().time()
        SWEEP.run(state.connections, moment + 29)
        assert len(state.connections) == 2
        SWEEP.run(state.connections, moment + 31)
        assert await idle.read() == b""
        response.set()
        assert (await _answer(reader))[1] == b"late"
        for each in (closing, writer):
            each.close()


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: 1"])
async def test_sweep_headers_late_answers_408_and_closes(sent: bytes) -> None:
    refusal_count = refusals.recorder().totals["slow_headers"]
    async with _served() as (port, state, *_), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"one")
        await _answer(reader)
        silent, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(sent)
        await _until(lambda: len(state.connections) == 2)
        lines = cast("list[Any]", list(state.connections))
        await _until(lambda: not sent or all(line.headers is not None for line in lines))
        moment = asyncio.get_running_loop().time()
        SWEEP.run(state.connections, moment + 9)
        assert len(state.connections) == 2
        SWEEP.run(state.connections, moment + 11)
        assert (await silent.read()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        writer.write(_REQUEST % b"two")
        assert (await _answer(reader))[1] == b"two"
        assert refusals.recorder().totals["slow_headers"] == refusal_count + 1
        for each in (writer, other):
            each.close()


async def test_sweep_gives_next_headers_time_after_a_long_response() -> None:
    async with _served() as (port, state, request, response), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST % b"late" + b"GET /two HTTP/1.1\r\n")
        await request.wait()
        SWEEP.run(state.connections, asyncio.get_running_loop().time() + 3600)
        response.set()
        assert (await _answer(reader))[1] == b"late"
        SWEEP.run(state.connections, asyncio.get_running_loop().time() + 9)
        writer.write(b"host: x\r\n\r\n")
        assert (await _answer(reader))[1] == b"two"
        writer.close()


async def test_sweep_body_below_the_rate_answers_408_and_closes() -> None:
    async with _served() as (port, state, request, response), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n")
        await request.wait()
        (connection,) = cast("list[Any]", list(state.connections))
        for second in range(60):  # 150 bytes a second
            writer.write(b"x" * 150)
            await _until(lambda count=150 * (second + 1): connection.body_bytes == count)
            SWEEP.run(state.connections, 0)
        assert (await _answer(reader))[1] == b"body"
        request.clear()
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n")
        await request.wait()
        for _ in range(30):
            SWEEP.run(state.connections, 0)
        assert not connection.transport.is_closing()
        SWEEP.run(state.connections, 0)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        # The handler received the end.
        await response.wait()
        writer.close()


async def _until(condition: Callable[[], bool]) -> None:
    await wait_until(condition)


async def test_response_falls_back_without_the_fast_path() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    class Busy:
        def send_response(self, scope: Any, answer: Any) -> bool:
            return False

    await RawResponse(b"one", [])({"method": "GET", CONNECTION: Busy()}, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_answered_request_leaves_no_garbage_cycles() -> None:
    async with _served() as (port, *_), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                writer.write(_REQUEST % b"one")
                await _answer(reader)
            assert gc.collect() < 50
        finally:
            gc.enable()
        writer.close()
