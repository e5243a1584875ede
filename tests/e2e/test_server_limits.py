"""Limits that each server counts separately, with two servers on one PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e import limits_child
from tests.e2e.servers import Server, running
from tests.harness import backends, postgres

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
PROGRAM = (sys.executable, limits_child.__file__)
CONNECTIONS, UNFINISHED, SOCKETS = 12, 4, 2
LIMITS = {
    "SIXFOLD_CONNECTIONS_PER_PEER": str(CONNECTIONS),
    "SIXFOLD_UNFINISHED_REQUESTS_PER_PEER": str(UNFINISHED),
    "SIXFOLD_WEBSOCKETS": str(SOCKETS),
}
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def two_servers(folder: Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two servers on one database, whose limits apply to this machine."""
    homes = [folder / "first", folder / "second"]
    for home in homes:
        home.mkdir()
    backends.database_url(homes[0], "postgres")
    backends.database_url(homes[1], "sqlite")
    environ = {**backends.environ(homes[0]), **LIMITS, "SIXFOLD_BLOB_URL": f"file://{folder / 'store'}"}
    async with running(homes[0], PROGRAM, environ) as first, running(homes[1], PROGRAM, environ) as second:
        yield first, second


async def open_connection(stack: AsyncExitStack, server: Server) -> Pair:
    pair = await asyncio.open_connection("127.0.0.1", server.port)
    stack.callback(pair[1].close)
    return pair


async def status(pair: Pair, sent: bytes) -> int:
    """The status of the response to a request."""
    pair[1].write(sent)
    async with asyncio.timeout(60):
        head = await pair[0].readuntil(b"\r\n\r\n")
    return int(head.split()[1])


def get(path: str, key: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n{more}\r\n".encode()


async def wait_for_status(server: Server, sent: bytes, expected: int) -> None:
    """Repeat a request on new connections until the server responds with a status."""
    async with asyncio.timeout(60):
        while True:
            async with AsyncExitStack() as stack:
                if await status(await open_connection(stack, server), sent) == expected:
                    return


async def test_each_server_limits_connections_of_an_address(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (first, second):
        request = get("/api/account", first.key)
        async with AsyncExitStack() as stack:
            for server in (first, second):
                results = [
                    await status(await open_connection(stack, server), request)
                    for _ in range(CONNECTIONS + 1)
                ]
                assert results == [200] * CONNECTIONS + [429]
        for server in (first, second):
            await wait_for_status(server, request, 200)


async def test_each_server_limits_incomplete_requests(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (first, second):
        request = get("/api/account", first.key)
        async with AsyncExitStack() as stack:
            for _ in range(UNFINISHED):
                (await open_connection(stack, first))[1].write(
                    b"POST /api/pages HTTP/1.1\r\nContent-Length: 9\r\n"
                )
            await wait_for_status(first, request, 429)
            assert await status(await open_connection(stack, second), request) == 200
        await wait_for_status(first, request, 200)


async def test_each_server_limits_websockets(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (first, second):
        upgrade = get(
            "/ws?clientId=a",
            first.key,
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        )
        async with AsyncExitStack() as stack:
            for server in (first, second):
                results = [
                    await status(await open_connection(stack, server), upgrade) for _ in range(SOCKETS + 1)
                ]
                assert results == [101] * SOCKETS + [503]
        for server in (first, second):
            await wait_for_status(server, upgrade, 101)
