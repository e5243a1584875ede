"""The route of realtime sessions: authentication, limits and the websocket.

Source: https://platform.openai.com/docs/api-reference/realtime.
"""

from __future__ import annotations

from starlette.websockets import WebSocket

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.realtime import configuration
from sixfold.api.gateway.openai.realtime.connection import RealtimeSocket
from sixfold.api.gateway.openai.realtime.services import DEFAULT, RealtimeParts, RealtimeServices
from sixfold.core.accounts import rights
from sixfold.core.accounts.connections import CredentialEnded, current
from sixfold.core.accounts.keys import Principal
from sixfold.web import auth
from sixfold.web.app import TRY_AGAIN_LATER
from sixfold.web.routing import ApiGroup, SocketRoute
from sixfold.web.services import WebServices

PATH = "/v1/realtime"
UNAUTHORIZED = 4401
# The subprotocol that clients name, and the prefix of the one with the key of a browser.
_PROTOCOL, _KEY_PROTOCOL = "realtime", "openai-insecure-api-key."
_DENIAL = "websocket.http.response"
_MAX_MODEL = 200


class RealtimeRoutes:
    """`/v1/realtime`."""

    def __init__(self, services: WebServices, parts: RealtimeParts) -> None:
        self._services = services
        self._parts = parts

    async def converse(self, websocket: WebSocket) -> None:
        """Serve a session until one side closes its websocket."""
        try:
            principal = await self._services.authenticator.key(_key(websocket))
            self._services.admission.websockets.hold(websocket.scope, principal.account_id)
            model = self._model(websocket, principal)
        except errors.SixfoldError as error:
            await _deny(websocket, error)
            return
        protocols: list[str] = websocket.scope.get("subprotocols") or []
        await websocket.accept(_PROTOCOL if _PROTOCOL in protocols else None)
        services = RealtimeServices(self._services, self._parts, principal.key_id or "")
        socket = RealtimeSocket(websocket, services, configuration.initial(model))
        try:
            with self._services.connections.during(current()):
                await socket.serve()
        except CredentialEnded:
            await websocket.close(UNAUTHORIZED, "revoked")

    def _model(self, websocket: WebSocket, principal: Principal) -> str:
        name = websocket.query_params.get("model") or DEFAULT
        if len(name) > _MAX_MODEL:
            raise errors.UnknownModel
        return name


def _key(websocket: WebSocket) -> str | None:
    """Return the key in the header, else the one in a subprotocol, which browsers can set."""
    token = auth.token_of(websocket.headers.get("authorization"))
    if token is not None:
        return token
    protocols: list[str] = websocket.scope.get("subprotocols") or []
    named = (name for name in protocols if name.startswith(_KEY_PROTOCOL))
    return next((name.removeprefix(_KEY_PROTOCOL) for name in named), None)


async def _deny(websocket: WebSocket, error: errors.SixfoldError) -> None:
    """Answer the handshake with an error, or close the websocket where a server cannot do that."""
    await websocket.receive()
    if _DENIAL in websocket.scope.get("extensions", {}):
        response = openai_errors.dialect(error, websocket.scope["sixfold.request_id"])
        await websocket.send_denial_response(response)
    else:
        await websocket.close(TRY_AGAIN_LATER if error.status in (429, 503) else UNAUTHORIZED)


def build_api(services: WebServices, parts: RealtimeParts) -> ApiGroup:
    """Return the route of realtime sessions."""
    realtime = RealtimeRoutes(services, parts)
    socket = SocketRoute(PATH, realtime.converse, services.trusted_hosts.trusts, access=rights.RUN)
    return ApiGroup("openai-realtime", openai_errors.dialect, (), sockets=(socket,))
