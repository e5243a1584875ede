"""A gateway on a real port, and the official client of the Realtime API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import uvicorn
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from tests.api.gateway import Gateway, running_gateway
from tests.harness.embedded_server import EmbeddedServer, open_listener

PATIENCE_SECONDS = 30
TEXT: Any = {"type": "realtime", "output_modalities": ["text"]}


@dataclass(frozen=True)
class RealtimeServer:
    """The gateway and its address."""

    gateway: Gateway
    address: str

    def afresh(self) -> RealtimeServer:
        """Reset the model servers and return the server."""
        self.gateway.afresh()
        return self

    def client(self, key: str | None = None) -> openai.AsyncOpenAI:
        """Return the official client, unmodified except for its base URL."""
        return openai.AsyncOpenAI(
            api_key=key or self.gateway.app.key, base_url=f"http://{self.address}/v1", max_retries=0
        )

    @asynccontextmanager
    async def connect(
        self, session: Any = None, *, model: str = "acme/small", key: str | None = None
    ) -> AsyncIterator[AsyncRealtimeConnection]:
        async with (
            self.client(key) as client,
            client.realtime.connect(model=model) as connection,
        ):
            assert (await event(connection)).type == "session.created"
            if session is not None:
                await connection.session.update(session=session)
                assert (await event(connection)).type == "session.updated"
            yield connection


async def event(connection: AsyncRealtimeConnection) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await connection.recv()


async def until(connection: AsyncRealtimeConnection, kind: str) -> list[Any]:
    """Return the events up to the first one of a type."""
    events: list[Any] = []
    while not events or events[-1].type != kind:
        events.append(await event(connection))
    return events


async def say(connection: AsyncRealtimeConnection, text: str) -> list[Any]:
    """Add a message of the user, request a response, and return all events up to its end."""
    await connection.conversation.item.create(item=user_message(text))
    await connection.response.create()
    return await until(connection, "response.done")


def user_message(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@asynccontextmanager
async def running_realtime(
    folder: Path, *, send_buffer: int = 0, **options: Any
) -> AsyncIterator[RealtimeServer]:
    """Run the gateway with its model servers on a real socket, with a send buffer of `send_buffer` bytes."""
    async with running_gateway(folder, **options) as gateway:
        with open_listener() as listener:
            if send_buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            config = uvicorn.Config(
                gateway.app.asgi,
                lifespan="off",
                log_config=None,
                ws=WebSocketProtocol,
                ws_max_size=256 * 1024,
                timeout_graceful_shutdown=2,
            )
            server = EmbeddedServer(config)
            serving = asyncio.create_task(server.serve([listener]))
            try:
                yield RealtimeServer(gateway, f"127.0.0.1:{listener.getsockname()[1]}")
            finally:
                server.should_exit = True
                await serving
