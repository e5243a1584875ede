"""The services of this server that a realtime session uses, as the key that opened it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sixfold import errors
from sixfold.api.gateway.chat_handler import SERVICES, CachedKeyAuth
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import ModelRouter
from sixfold.web import admission
from sixfold.web.services import WebServices

_ENDPOINT = "realtime"
# OpenAI's names of realtime models, which the default chat model replaces if no server has them.
_OPENAI_NAMES = ("gpt-realtime", "gpt-4o-realtime", "gpt-4o-mini-realtime", "gpt-audio")
DEFAULT = "default"


class RealtimeServices:
    """Chats of one session, with the checks and charges of requests with its key."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth, key_id: str) -> None:
        self._services = services
        self._auth = auth
        self._credential = f"Bearer {services.authenticator.delegate(key_id)}".encode()

    async def wait_drain(self) -> None:
        """Wait until the server shuts down."""
        await self._services.predictions.waiters.wait_drain()

    @asynccontextmanager
    async def stream_chat(
        self, request_id: str, chat: ChatRequest, model: str
    ) -> AsyncGenerator[ResponseStream]:
        """Open the stream of a chat, which counts as a streamed chat of the account.

        Raises what `Gateway.stream_chat` raises, and `TooManyRequests`.
        """
        if self._services.predictions.draining:
            raise errors.ShuttingDown
        principal = await self._principal()
        slot: dict[str, Any] = {}
        self._services.admission.chat_streams.hold(slot, principal.account_id)
        try:
            gateway = self._services.gateway
            name = chat_model(gateway.router, model)
            yield await gateway.stream_chat(principal, request_id, chat, name, _ENDPOINT, SERVICES)
        finally:
            admission.release(slot)

    async def _principal(self) -> Principal:
        """Return the key as it is now, and count a request of it."""
        return await self._auth.admit({b"authorization": self._credential})


def chat_model(router: ModelRouter, name: str) -> str:
    """Return the chat model for a name: the default one for a name of OpenAI that no server has."""
    if name.startswith(_OPENAI_NAMES):
        try:
            router.resolve_chat(name)
        except errors.SixfoldError:
            return DEFAULT
    return name
