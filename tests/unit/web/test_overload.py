"""Connections beyond the limit, over real sockets: their response, and which ones are closed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn.server import ServerState

from sixfold.api.gateway.openai import errors as openai
from sixfold.core.accounts.rights import PUBLIC
from sixfold.errors import SixfoldError
from sixfold.web import refusals, responses
from sixfold.web.app import WebApp
from sixfold.web.connections import overload
from sixfold.web.connections.overload import ConnectionCapacity
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.metrics import Metrics
from sixfold.web.routing import ApiGroup, RouteEntry
from tests.harness.waiting import wait_until

# Descriptors: 24 connections, and 8 refused ones that wait for a request.
LIMIT = 64


async def _ok(_request: Request) -> Response:
    return responses.json({"status": "ok"})


def _detail(error: SixfoldError, _request_id: str) -> Response:
    return JSONResponse({"detail": error.message}, error.status)


@pytest.fixture
def capacity(monkeypatch: pytest.MonkeyPatch) -> ConnectionCapacity:
    result = ConnectionCapacity(LIMIT)
    # The process of the tests has more descriptors than the limit under test.
    result.descriptors = 1 << 20
    monkeypatch.setattr(overload, "capacity", lambda: result)
    return result


@asynccontextmanager
async def _served() -> AsyncGenerator[tuple[int, ServerState]]:
    probes = (
        RouteEntry("/livez", {"GET": _ok}, access=PUBLIC),
        RouteEntry("/readyz", {"GET": _ok}, access=PUBLIC),
    )
    faces = (
        ApiGroup("platform", responses.error_response, probes),
        ApiGroup("v1", openai.dialect, (RouteEntry("/v1/models", {"GET": _ok}, access=PUBLIC),), ("/v1/",)),
        ApiGroup("image", _detail, (), ("/image/",)),
    )
    state = ServerState()
    config = uvicorn.Config(WebApp(faces, Metrics()), lifespan="off", log_config=None)
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1], state
    finally:
        server.close()
        for connection in tuple(state.connections):
            connection.shutdown()


async def _until(condition: Any) -> None:
    await wait_until(condition)


async def _connect(stack: AsyncExitStack, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    return reader, writer


async def _fill(stack: AsyncExitStack, port: int, state: ServerState, count: int, *, busy: bool) -> list[Any]:
    results: list[Any] = []
    for _ in range(count):
        reader, writer = await _connect(stack, port)
        if busy:
            writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"}")
        results.append((reader, writer))
    await _until(lambda: len(state.connections) == count)
    return results


async def _ask(
    stack: AsyncExitStack, port: int, path: str, body: bytes = b""
) -> tuple[int, dict[str, str], Any]:
    reader, writer = await _connect(stack, port)
    method = "POST" if body else "GET"
    writer.write(
        f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, json.loads(content)


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/v1/models", {"error"}), ("/image/x", {"detail"}), ("/x", {"error", "code", "status", "request_id"})],
)
async def test_refusal_over_the_limit_has_the_format_of_its_path(
    capacity: ConnectionCapacity, path: str, shape: set[str]
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        await _fill(stack, port, state, capacity.connections, busy=True)
        status, headers, document = await _ask(
            stack, port, path, b"x" * 300_000 if path == "/v1/models" else b""
        )
        assert (status, set(document)) == (503, shape)
        assert headers["x-request-id"].startswith("req")
        assert headers["connection"] == "close"
        if path == "/v1/models":
            assert document["error"]["code"] == "too_many_connections"
        assert len(state.connections) == capacity.connections


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_probe_over_the_limit_is_answered(capacity: ConnectionCapacity, path: str) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        await _fill(stack, port, state, capacity.connections, busy=True)
        status, headers, document = await _ask(stack, port, path)
        assert (status, document, headers["connection"]) == (200, {"status": "ok"}, "close")


async def test_connection_over_the_limit_replaces_the_oldest_silent(
    capacity: ConnectionCapacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overload, "MIN_SILENT_SECONDS", 0)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        refusal_count = refusals.recorder().totals["silent"]
        lines = await _fill(stack, port, state, capacity.connections, busy=False)
        reader, writer = lines[0]
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"}")
        other, asking = await _connect(stack, port)
        asking.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b" 200 OK" in await other.readuntil(b"}")
        assert await lines[1][0].read() == b""
        assert len(state.connections) == capacity.connections
        assert refusals.recorder().totals["silent"] == refusal_count + 1
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b" 200 OK" in await reader.readuntil(b"}")


async def test_refusal_above_the_waiting_limit_is_received_complete(capacity: ConnectionCapacity) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        await _fill(stack, port, state, capacity.connections, busy=True)
        capacity.max_waiting = 0
        for _ in range(50):
            status, headers, document = await _ask(stack, port, "/v1/models", b"x" * 4000)
            assert (status, document["code"]) == (503, "too_many_connections")
            assert headers["x-request-id"] == document["request_id"]


async def test_silent_refusals_leave_room_for_a_probe(
    capacity: ConnectionCapacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overload, "MIN_WAIT_SECONDS", 0)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        await _fill(stack, port, state, capacity.connections, busy=True)
        refusal_count = refusals.recorder().totals["too_many"]
        for _ in range(50):
            await _connect(stack, port)
        await _until(lambda: refusals.recorder().totals["too_many"] == refusal_count + 50)
        assert (await _ask(stack, port, "/livez"))[0] == 200


async def test_websocket_over_the_limit_is_refused_before_accept(
    capacity: ConnectionCapacity, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        port, state = await stack.enter_async_context(_served())
        await _fill(stack, port, state, capacity.connections, busy=True)
        reader, writer = await _connect(stack, port)
        upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        writer.write(b"GET /socket HTTP/1.1\r\nhost: x\r\n" + upgrade + b"\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        assert not caplog.records
