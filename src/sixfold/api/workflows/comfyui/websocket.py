"""The websocket of a ComfyUI client, which receives the events of its prompts."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from itertools import count
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.loop_turns import TURNS
from sixfold.core.workflows.comfyui.websocket_hub import HubClient, WebSocketHub

_MAX_CHARS = 65_536
# Small messages that are sent without a turn, and their share of an iteration of the event loop.
_BATCH, _BATCH_BYTES = 32, 64 * 1024
TOO_SLOW = 4008
_CLOSE_SECONDS = 5.0


class ComfySocket:
    def __init__(self, websocket: WebSocket, hub: WebSocketHub, flags: Mapping[str, Any]) -> None:
        self._websocket = websocket
        self._hub = hub
        self._flags = flags

    async def serve(self, tenant: Tenant, status: Mapping[str, Any]) -> None:
        """Serve the socket until the client disconnects."""
        client_id = self._websocket.query_params.get("clientId", "")[:200] or uuid.uuid4().hex
        with self._hub.open(tenant, client_id) as client:
            client.send({"type": "status", "data": {"status": status, "sid": client_id}})
            receiving = asyncio.create_task(self._receive(client))
            sending = asyncio.create_task(self._send_messages(client))
            behind = asyncio.create_task(client.behind.wait())
            tasks = (receiving, sending, behind)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if client.behind.is_set():
                with contextlib.suppress(RuntimeError, OSError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await self._websocket.close(TOO_SLOW, "too_slow")

    async def _send_messages(self, client: HubClient) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            for number in count(1):
                content = await client.next()
                # Each of many clients copies a message of megabytes, or sends its queue without a pause.
                await TURNS.next(max(len(content), _BATCH_BYTES * (number % _BATCH == 0)))
                if isinstance(content, bytes):
                    await self._websocket.send_bytes(content)
                else:
                    await self._websocket.send_text(content)

    async def _receive(self, client: HubClient) -> None:
        while (event := await self._websocket.receive())["type"] != "websocket.disconnect":
            text = event.get("text") or ""
            if len(text) <= _MAX_CHARS and '"feature_flags"' in text:
                client.send({"type": "feature_flags", "data": self._flags})
