"""The server as one ASGI application: request ids, body limits, dispatch, and the access log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.connections import (
    Connections,
    CredentialEnded,
    current,
    has_credential,
    reset,
    shared_folder,
)
from sixfold.core.concurrency import memory_limit
from sixfold.core.concurrency.request_turns import RequestTurns
from sixfold.web import admission, bodies, refusals, sessions
from sixfold.web.admission import Admission
from sixfold.web.connections import encoded_bodies, late_bodies
from sixfold.web.connections.overload import OVERLOADED, PROBES
from sixfold.web.connections.peers import network
from sixfold.web.metrics import Metrics
from sixfold.web.raw_asgi import RawHandler, RawRequest, RawResponse, abort, late_headers
from sixfold.web.responses import LongResponse, compress_page, error_response
from sixfold.web.routing import ApiGroup, RouteMatch, Router

_LOG = logging.getLogger("sixfold.web")
_ACCESS = logging.getLogger("sixfold.access")
_HEADERS = ((b"x-content-type-options", b"nosniff"),)
_READS = frozenset({"GET", "HEAD"})
# Proxies store responses to a key in `x-api-key` or in the URL, which they do not know as credentials.
_PRIVATE = (b"cache-control", b"private, no-cache")
_HTTPS_HEADERS = (*_HEADERS, (b"strict-transport-security", b"max-age=31536000"))
# The status in logs of a request whose client disconnected before the response (as in nginx).
_CLIENT_DISCONNECTED = 499
_REVOKED = b'event: error\ndata: {"error": {"message": "This credential was revoked", "code": "revoked"}}\n\n'
_LONG = (StreamingResponse, LongResponse)
_HOP = b"x-sixfold-hop"
# Many clients send {} with every method, so a route that reads no body accepts a small one.
_UNREAD_BYTES = 64 * 1024
_UNLOGGED = (errors.EngineFailed, errors.EngineUnavailable, errors.NotSupported, errors.TooManyConnections)
_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
# The close code of a websocket that the server cannot accept now.
TRY_AGAIN_LATER = 1013
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
FALLBACK = ApiGroup("none", error_response, ())


class WebApp:
    """Dispatches requests to the APIs; every response passes through here."""

    def __init__(
        self,
        apis: Iterable[ApiGroup],
        metrics: Metrics,
        not_found: ApiGroup = FALLBACK,
        admission: Admission | None = None,
        connections: Connections | None = None,
        *,
        is_https: bool = False,
    ) -> None:
        """Build the route table.

        `not_found` answers browsers for paths that belong to no API, by its only route if it has one.
        `connections` ends streams whose credential is revoked. `is_https` states that clients reach this
        server by an https URL, so that responses carry `Strict-Transport-Security`.
        """
        self._admission = admission
        self._router = Router(apis, FALLBACK)
        self._not_found = RouteMatch(not_found, next(iter(not_found.routes), None))
        self._metrics = metrics
        self._connections = connections
        self._headers = _HTTPS_HEADERS if is_https else _HEADERS
        self._turns = RequestTurns()

    @property
    def table(self) -> Router:
        """The routes, with the access that each requires."""
        return self._router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await _complete_lifespan(receive, send)
            case _:
                await self._serve_websocket(WebSocket(scope, receive, send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        peer = network(_client(scope))
        reset(peer)
        if scope["path"] not in PROBES and (turn := self._turns.start(peer)) is not None:
            await turn
        sessions.begin(scope["path"])
        late_headers.set(None)
        request_id = ids.new("req")
        match = self._router.find(scope["path"])
        if match.api is FALLBACK and _is_browser(scope):
            match = self._not_found
        scope["sixfold.request_id"] = request_id
        scope["path_params"] = match.params
        memory = memory_limit.MemoryScope()
        memory_limit.scope.set(memory)
        status = _CLIENT_DISCONNECTED
        try:
            response = await self._answer(scope, receive, match)
            if response is not None:
                status = response.status_code
                if type(response) is Response:
                    await compress_page(dict(scope["headers"]), response)
                response.raw_headers += [(b"x-request-id", request_id.encode()), *self._headers]
                if scope["method"] in _READS and has_credential():
                    _keep_private(response)
                if (make_headers := late_headers.get()) is not None:
                    response.raw_headers += await make_headers()
                wrapped_send = send if scope["method"] != "HEAD" else _without_body(send)
                if self._connections is not None and isinstance(response, _LONG):
                    await _stream(self._connections, response, scope, receive, wrapped_send)
                else:
                    await response(scope, receive, wrapped_send)
        finally:
            memory.close()
            admission.release(scope)
            self._log_request(scope, match, status, time.perf_counter() - start)

    async def _serve_websocket(self, websocket: WebSocket) -> None:
        """Run a websocket; refuse an unknown path with 4404 and an untrusted Origin with 4403."""
        reset(network(_client(websocket.scope)))
        scope = websocket.scope
        scope["sixfold.request_id"] = ids.new("req")
        route_match = self._router.find_socket(scope["path"])
        if route_match is None or not route_match[0].trusts(websocket):
            await websocket.receive()
            await websocket.close(4404 if route_match is None else 4403)
            return
        socket, scope["path_params"] = route_match
        rights.declared.set(socket.access or rights.UNDECLARED)
        start = time.perf_counter()
        try:
            # The ASGI server logs any other exception and closes the websocket.
            with contextlib.suppress(WebSocketDisconnect):
                if await self._admit_websocket(websocket):
                    await socket.handler(websocket)
        finally:
            admission.release(scope)
            _ACCESS.info("WS %s %.1f s", socket.path, time.perf_counter() - start)

    async def _admit_websocket(self, websocket: WebSocket) -> bool:
        """Return whether the server has capacity for another websocket; reject the handshake otherwise."""
        if self._admission is None:
            return True
        try:
            self._admission.keyless(websocket)
            self._admission.websockets.enter(websocket.scope, _client(websocket.scope))
        except errors.SixfoldError as error:
            await websocket.receive()
            if "websocket.http.response" in websocket.scope.get("extensions", {}):
                await websocket.send_denial_response(
                    error_response(error, websocket.scope["sixfold.request_id"])
                )
            else:
                await websocket.close(TRY_AGAIN_LATER)
            return False
        return True

    async def _answer(
        self, scope: Scope, receive: Receive, match: RouteMatch
    ) -> Response | RawResponse | None:
        try:
            return await self._handle(scope, receive, match)
        except errors.SixfoldError as error:
            failure = self._report(error, scope)
        except ClientDisconnect:
            return None
        except Exception:  # noqa: BLE001 - the outermost loop of a request: the caller gets a 500, the log why
            extra = {"request_id": scope["sixfold.request_id"]}
            _LOG.exception("an unexpected exception in a request", extra=extra)
            failure = errors.SixfoldError()
        response = match.api.format_of(scope["headers"])(failure, scope["sixfold.request_id"])
        # Break the cycle of the traceback and this frame, so that the data of the request is freed at once.
        failure.__traceback__ = None
        return response

    async def _handle(self, scope: Scope, receive: Receive, match: RouteMatch) -> Response | RawResponse:
        headers = dict(reversed(scope["headers"]))
        if (
            self._admission is not None
            and b"authorization" not in headers
            and b"x-api-key" not in headers
            and (match.route is None or match.route.path not in PROBES)
        ):
            self._admission.keyless(HTTPConnection(scope))
        max_bytes = match.route.body_bytes if match.route is not None else 0
        if b"content-encoding" in headers:
            receive = encoded_bodies.decode(scope, receive, max_bytes or _UNREAD_BYTES)
            headers = dict(reversed(scope["headers"]))
        if (
            self._admission is None
            or max_bytes > self._admission.held_bytes
            or not bodies.may_be_large(headers)
        ):
            return await _dispatch(scope, self._rechecked(receive), match, headers)
        with self._admission.body(scope, receive) as counted:
            return await _dispatch(scope, self._rechecked(counted), match, headers)

    def _rechecked(self, receive: Receive) -> Receive:
        return receive if self._connections is None else late_bodies.recheck(self._connections, receive)

    def _report(self, error: errors.SixfoldError, scope: Scope) -> errors.SixfoldError:
        """Log an error that operators need to know about, and return the error for the response."""
        if isinstance(error, errors.Unauthenticated) and self._admission is not None and _has_key(scope):
            try:
                self._admission.keyless(HTTPConnection(scope))
            except errors.TooManyRequests as refusal:
                return refusal
        elif isinstance(error, errors.NotConfigured):
            refusals.recorder().add("not_configured", _client(scope), error.message)
        elif error.status >= 500 and not isinstance(error, _UNLOGGED):
            trace = None if isinstance(error, errors.ShuttingDown) else error
            _LOG.warning(error.message, exc_info=trace, extra={"request_id": scope["sixfold.request_id"]})
        return error

    def _log_request(self, scope: Scope, match: RouteMatch, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = match.route.path if match.route is not None else "unknown"
        scope["sixfold.route"] = route
        self._metrics.count_response(match.api.name, route, method, status, seconds)
        if _ACCESS.isEnabledFor(logging.INFO):
            client = scope.get("client")
            extra: dict[str, Any] = {
                "request_id": scope["sixfold.request_id"],
                "method": method,
                "path": scope["path"][:200],
                "face": match.api.name,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 2),
                "peer": client[0] if client else None,
            }
            _ACCESS.info("%s %s %d", method, route, status, extra=extra)


def _is_browser(scope: Scope) -> bool:
    accepts_html = any(
        name == b"accept" and value.startswith(b"text/html") for name, value in scope["headers"]
    )
    return accepts_html and not scope["path"].startswith("/api/")


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _has_key(scope: Scope) -> bool:
    return any(name in _KEY_HEADERS for name, _ in scope["headers"])


async def _dispatch(
    scope: Scope, receive: Receive, match: RouteMatch, headers: Mapping[bytes, bytes]
) -> Response | RawResponse:
    route = match.route
    if OVERLOADED in scope and (route is None or route.path not in PROBES):
        raise scope[OVERLOADED]
    if route is None:
        raise match.api.missing(scope)
    method = scope["method"]
    handler = route.handler(method)
    if handler is None:
        error_format = match.api.format_of(scope["headers"])
        response = error_format(match.api.wrong_method(scope), scope["sixfold.request_id"])
        response.headers["Allow"] = ", ".join(sorted(route.handlers))
        return response
    rights.declared.set(route.needs(method) or rights.UNDECLARED)
    if _HOP in headers:
        raise errors.Forbidden(
            "This request was sent by the same server: a gateway server must not be its own target"
        )
    max_bytes = route.body_bytes or _UNREAD_BYTES
    bodies.check_content_length(scope, max_bytes)
    if isinstance(handler, RawHandler):
        return await handler.handle(RawRequest(scope, receive, headers, max_bytes))
    response = await handler(bodies.BufferedRequest(scope, bodies.limit_body(receive, max_bytes)))
    # A HEAD must not run the stream to its end.
    if method == "HEAD" and isinstance(response, StreamingResponse):
        return Response(None, response.status_code, dict(response.headers))
    return response


def _keep_private(response: Response | RawResponse) -> None:
    """Forbid proxies to store a response, unless its handler has set `Cache-Control`."""
    if not any(name == _PRIVATE[0] for name, _ in response.raw_headers):
        response.raw_headers.append(_PRIVATE)


async def _stream(
    connections: Connections, response: Response, scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve a long response until it ends or its credential is revoked.

    The client of a file must not take it for complete, so its connection is closed.
    """
    try:
        with connections.during(current()), connections.during(shared_folder.get()):
            await response(scope, receive, send)
    except CredentialEnded:
        text = response.revocation if isinstance(response, LongResponse) else b""
        if response.media_type == "text/event-stream":
            text = _REVOKED
        if not text and abort(scope):
            return
        if text:
            await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _without_body(send: Send) -> Send:
    async def wrapped_send(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return wrapped_send


async def _complete_lifespan(receive: Receive, send: Send) -> None:
    """Complete the lifespan protocol; the caller starts and stops the application."""
    while True:
        message: Message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
