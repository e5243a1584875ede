"""A ComfyUI client's websocket: told what its prompts do."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.graphs.hub import Client, Hub

_MOST_CHARS = 65_536
_encode = msgspec.json.Encoder().encode


class Talk:
    """One socket."""

    def __init__(self, websocket: WebSocket, hub: Hub, flags: Mapping[str, Any]) -> None:
        self._websocket = websocket
        self._hub = hub
        self._flags = flags

    async def go_on(self, tenant: Tenant, status: Mapping[str, Any]) -> None:
        """Until the client leaves."""
        client_id = self._websocket.query_params.get("clientId", "")[:200] or uuid.uuid4().hex
        with self._hub.open(tenant, client_id) as client:
            client.tell({"type": "status", "data": {"status": status, "sid": client_id}})
            hearing = asyncio.create_task(self._hear(client))
            speaking = asyncio.create_task(self._speak(client))
            try:
                await asyncio.wait({hearing, speaking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (hearing, speaking):
                    task.cancel()
                await asyncio.gather(hearing, speaking, return_exceptions=True)

    async def _speak(self, client: Client) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            while True:
                message = await client.queue.get()
                if isinstance(message, bytes):
                    await self._websocket.send_bytes(message)
                else:
                    await self._websocket.send_text(_encode(message).decode())

    async def _hear(self, client: Client) -> None:
        while (heard := await self._websocket.receive())["type"] != "websocket.disconnect":
            text = heard.get("text") or ""
            if len(text) <= _MOST_CHARS and '"feature_flags"' in text:
                client.tell({"type": "feature_flags", "data": self._flags})
