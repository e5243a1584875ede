"""Server in this process on a real port, and a client of its sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import websockets
from websockets.asyncio.client import ClientConnection

from sixfold.app import asgi
from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.harness.embedded_server import EmbeddedServer, open_listener

WAIT_SECONDS = 60


@dataclass(frozen=True)
class SessionServer:
    """App on a port."""

    app: AppFixture
    port: int

    async def create(self, model: str = "motion-model", **body: Any) -> dict[str, Any]:
        path = f"/api/containers/{model}/sessions"
        response = await self.app.client.post(path, json=body, headers=self.app.bearer)
        assert response.status_code == 201, response.text
        return response.json()

    async def status(self, session: dict[str, Any]) -> dict[str, Any]:
        path = f"/api/containers/sessions/{session['session_id']}"
        return (await self.app.client.get(path, headers=self.app.bearer)).json()

    @asynccontextmanager
    async def inside(self, session: dict[str, Any], **more: Any) -> AsyncIterator[Guest]:
        """Connect to the websocket of a session."""
        async with websockets.connect(session["ws_url"], **more) as connection:
            yield Guest(connection)


@dataclass
class Guest:
    """Client that records the messages it receives."""

    connection: ClientConnection
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def say(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        """Return the next message; a frame has its image under `image`."""
        async with asyncio.timeout(WAIT_SECONDS):
            message = json.loads(await self.connection.recv())
            if message["type"] == "frame":
                message["image"] = await self.connection.recv()
        self.messages.append(message)
        return message

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next message of a kind with these fields."""
        while True:
            message = await self.next()
            if message["type"] == kind and fields.items() <= message.items():
                return message

    async def several(self, kind: str, count: int) -> list[dict[str, Any]]:
        """Return the next messages of a kind."""
        return [await self.until(kind) for _ in range(count)]

    async def closed(self) -> int:
        """Receive until the socket closes, and return its close code."""
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self.next()
        assert self.connection.close_code is not None
        return self.connection.close_code

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the received messages of a kind."""
        return [message for message in self.messages if message["type"] == kind]


@asynccontextmanager
async def running_session_server(folder: Path, **changes: Any) -> AsyncIterator[SessionServer]:
    with open_listener() as listener:
        port = listener.getsockname()[1]
        async with running_app(folder, app_catalog.models_document(), port=port, **changes) as app:
            asgi_app = asgi.create_app(app.server)
            config = uvicorn.Config(asgi_app, ws="websockets-sansio", lifespan="off", log_config=None)
            server = EmbeddedServer(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield SessionServer(app, port)
            finally:
                await app.server.live_sessions.drain()
                server.should_exit = True
                await serving
