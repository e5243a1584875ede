"""The route of realtime sessions: authentication, limits and the websocket.

Source: https://platform.openai.com/docs/api-reference/realtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.realtime import configuration
from sixfold.api.gateway.openai.realtime.configuration import SessionConfiguration
from sixfold.api.gateway.openai.realtime.connection import MAX_EVENT_BYTES, RealtimeSocket
from sixfold.api.gateway.openai.realtime.services import (
    DEFAULT,
    OPENAI_NAMES,
    RealtimeParts,
    RealtimeServices,
)
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.connections import Credential, CredentialEnded, current
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import SECOND_US
from sixfold.core.database import now
from sixfold.core.gateway.realtime import client_secrets
from sixfold.web import auth, bodies, idempotency, responses
from sixfold.web.app import TRY_AGAIN_LATER
from sixfold.web.connections.websocket_protocol import SET_MESSAGE_BYTES
from sixfold.web.routing import ApiGroup, RouteEntry, SocketRoute
from sixfold.web.services import WebServices

PATH, SECRETS_PATH = "/v1/realtime", "/v1/realtime/client_secrets"
UNAUTHORIZED = 4401
# The subprotocol that clients name, and the prefix of the one with the key of a browser.
_PROTOCOL, _KEY_PROTOCOL = "realtime", "openai-insecure-api-key."
_DENIAL = "websocket.http.response"
_MAX_MODEL = 200
_CLOSE_SECONDS = 2.0
# The validity of a client secret in seconds, as at OpenAI.
_SHORTEST, _USUAL, _LONGEST = 10, 600, 7200


class SecretSessionSchema(TypedDict):
    """The configuration of the session that a client secret opens."""

    id: str
    object: str
    type: str
    model: NotRequired[str]
    output_modalities: NotRequired[list[str]]


class ClientSecretSchema(TypedDict):
    """A client secret, and its expiration time in seconds since the epoch."""

    value: str
    expires_at: int
    session: SecretSessionSchema


class _Caller(NamedTuple):
    """Caller of a session, with the configuration of its client secret."""

    principal: Principal
    session: dict[str, Any]


class RealtimeRoutes:
    """`/v1/realtime` and `/v1/realtime/client_secrets`."""

    def __init__(self, services: WebServices, parts: RealtimeParts) -> None:
        self._services = services
        self._parts = parts

    def trusts(self, websocket: WebSocket) -> bool:
        """Return whether a page may connect: one of this server, or any with a client secret."""
        hosts = self._services.trusted_hosts
        has_secret = (_key(websocket) or "").startswith(client_secrets.PREFIX)
        return hosts.trusts_host(websocket) and (has_secret or hosts.trusts_origin(websocket))

    async def create_secret(self, request: Request) -> Response:
        """`POST /v1/realtime/client_secrets`."""
        principal = await self._parts.auth.enter(request)
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        seconds = _validity(configuration.mapping(body, "expires_after"))
        session = dict(configuration.mapping(body, "session"))
        settings = _settings(session, {})
        if principal.key_id is None:
            raise errors.BadRequest("A client secret can be created only with an API key of an account")
        created_at = await self._services.database.read(now())
        expires_at = created_at // SECOND_US + seconds
        value = self._services.client_secrets.encrypt(principal.key_id, expires_at * SECOND_US, session)
        shared = {"id": ids.new("sess"), "object": settings.object_type}
        document = {**shared, **configuration.document(settings)}
        return responses.json(
            {"value": value, "expires_at": expires_at, "session": document},
            headers={"Cache-Control": "no-store"},
        )

    async def converse(self, websocket: WebSocket) -> None:
        """Serve a session until one side closes its websocket."""
        try:
            caller = await self._enter(websocket)
            self._services.admission.websockets.hold(websocket.scope, caller.principal.account_id)
            settings = _settings(caller.session, websocket.query_params)
            principal = caller.principal
            services = RealtimeServices(
                self._services, self._parts, principal.account_id, principal.key_id or ""
            )
            services.check_transcription(settings.audio.input.transcription)
        except errors.SixfoldError as error:
            await _deny(websocket, error)
            return
        protocols: list[str] = websocket.scope.get("subprotocols") or []
        await websocket.accept(_PROTOCOL if _PROTOCOL in protocols else None)
        set_message_bytes = websocket.scope.get(SET_MESSAGE_BYTES)
        if set_message_bytes is not None:
            set_message_bytes(MAX_EVENT_BYTES)
        socket = RealtimeSocket(websocket, services, settings)
        try:
            with self._services.connections.during(current()):
                await socket.serve()
        except CredentialEnded:
            # A client that does not read cannot be closed in order.
            with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError, OSError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await websocket.close(UNAUTHORIZED, "revoked")

    async def _enter(self, websocket: WebSocket) -> _Caller:
        """Authenticate by a key, or by a client secret of a key that is valid."""
        key, authenticator = _key(websocket), self._services.authenticator
        if key is None or not key.startswith(client_secrets.PREFIX):
            return _Caller(await authenticator.key(key), {})
        now_us = await self._services.database.read(now())
        secret = self._services.client_secrets.decrypt(key, now_us)
        if not await self._services.connections.is_valid(Credential("key", secret.key_id)):
            raise errors.Unauthenticated("The API key of this client secret has expired or was revoked")
        return _Caller(await authenticator.key(authenticator.delegate(secret.key_id)), secret.session)


def _settings(session: dict[str, Any], query: Mapping[str, str]) -> SessionConfiguration:
    """Return the configuration of a session; that of a client secret takes precedence over the URL."""
    name = session.get("model") or query.get("model") or ""
    if not isinstance(name, str) or len(name) > _MAX_MODEL:
        raise InvalidRequest(f"model must be a string of at most {_MAX_MODEL} characters", param="model")
    if session.get("type", query.get("intent")) == configuration.TRANSCRIPTION:
        # Clients name a realtime model too, which does not transcribe.
        model = "" if name.startswith(OPENAI_NAMES) else name
        return configuration.updated(configuration.initial_transcription(model), session)
    return configuration.updated(configuration.initial(name or DEFAULT), session)


def _validity(expires_after: Any) -> int:
    fields = parsing.mapping(expires_after, "expires_after")
    if fields.get("anchor", "created_at") != "created_at":
        raise InvalidRequest("expires_after.anchor must be created_at", param="expires_after.anchor")
    seconds = fields.get("seconds", _USUAL)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not _SHORTEST <= seconds <= _LONGEST:
        raise InvalidRequest(
            f"expires_after.seconds must be an integer from {_SHORTEST} to {_LONGEST}",
            param="expires_after.seconds",
        )
    return seconds


def _key(websocket: WebSocket) -> str | None:
    """Return the key in the header, else the one in a subprotocol, which browsers can set."""
    token = auth.token_of(websocket.headers.get("authorization"))
    if token is not None:
        return token
    protocols: list[str] = websocket.scope.get("subprotocols") or []
    named = (name for name in protocols if name.startswith(_KEY_PROTOCOL))
    return next((name.removeprefix(_KEY_PROTOCOL) for name in named), None)


async def _deny(websocket: WebSocket, error: errors.SixfoldError) -> None:
    """Refuse the handshake with an error, or close the websocket if the ASGI server lacks support."""
    await websocket.receive()
    if _DENIAL in websocket.scope.get("extensions", {}):
        response = openai_errors.dialect(error, websocket.scope["sixfold.request_id"])
        await websocket.send_denial_response(response)
    else:
        await websocket.close(TRY_AGAIN_LATER if error.status in (429, 503) else UNAUTHORIZED)


def build_api(services: WebServices, parts: RealtimeParts) -> ApiGroup:
    """Return the routes of realtime sessions."""
    realtime = RealtimeRoutes(services, parts)
    small = services.settings.json_body_bytes
    create_secret = idempotency.refused(parts.auth.enter, realtime.create_secret)
    secrets = RouteEntry(SECRETS_PATH, {"POST": create_secret}, small, access=rights.RUN)
    socket = SocketRoute(PATH, realtime.converse, realtime.trusts, access=rights.RUN)
    return ApiGroup("openai-realtime", openai_errors.dialect, (secrets,), sockets=(socket,))
