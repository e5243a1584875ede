"""Application on a real loopback socket, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.harness.embedded_server import EmbeddedServer, open_listener


@asynccontextmanager
async def serve(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an application within the block and yield its origin; `port` 0 selects a free port."""
    config = uvicorn.Config(
        app, lifespan="off", log_level="error", access_log=False, timeout_graceful_shutdown=2
    )
    server = EmbeddedServer(config)
    listener = open_listener(port)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


def with_key(app: ASGIApp, key: str) -> ASGIApp:
    """Wrap an application to add a key to every request, for clients that cannot send one."""
    header = (b"authorization", f"Bearer {key}".encode())

    async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], header]}
        await app(scope, receive, send)

    return keyed
