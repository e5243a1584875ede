"""The routes of Cohere's chat."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from sixfold.api.gateway.chat_handler import ChatHandler
from sixfold.api.gateway.cohere import requests, responses
from sixfold.api.gateway.cohere.requests import CohereCall
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.core.accounts import rights
from sixfold.web import bodies
from sixfold.web.raw_asgi import RawHandler, RawRequest, RawResponse
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices


class CohereChatRoutes:
    """`POST /v1/chat` and `POST /v2/chat`."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._auth = auth
        self._first = ChatHandler(services, services.gateway, responses.FIRST)
        self._second = ChatHandler(services, services.gateway, responses.SECOND)

    async def first(self, request: RawRequest) -> Response | RawResponse:
        """Return the response to `/v1/chat`."""
        return await self._answer(request, requests.parse_first, self._first)

    async def second(self, request: RawRequest) -> Response | RawResponse:
        """Return the response to `/v2/chat`."""
        return await self._answer(request, requests.parse_second, self._second)

    async def _answer(
        self, request: RawRequest, parse: Callable[[bytes], CohereCall], handler: ChatHandler
    ) -> Response | RawResponse:
        principal = await self._auth.admit(request.headers)
        raw = await request.body()
        parsed = await bodies.parse(parse, raw)
        return await handler.answer(request, principal, parsed.call, parsed.body, sent=raw)


def routes(services: WebServices, auth: CachedKeyAuth) -> tuple[RouteEntry, ...]:
    """Return the routes of Cohere's chat."""
    chats, body = CohereChatRoutes(services, auth), services.settings.inline_body_bytes
    return (
        RouteEntry("/v1/chat", {"POST": RawHandler(chats.first)}, body, access=rights.RUN),
        RouteEntry("/v2/chat", {"POST": RawHandler(chats.second)}, body, access=rights.RUN),
    )
