"""The routes of sessions: created, shown and closed over REST, and used over a websocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold import errors
from sixfold.api.hosting.sessions import schemas
from sixfold.core.accounts import rights
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.sessions.connection import (
    MAX_CREDIT,
    NORMAL,
    TOO_SLOW,
    Connection,
    EndMessage,
    ErrorMessage,
    PongMessage,
    StateMessage,
)
from sixfold.core.sessions.repository import SessionRecord
from sixfold.core.sessions.runner import SessionEnding, SessionRunner
from sixfold.core.sessions.service import SessionRequest
from sixfold.core.sessions.states import SessionEvent
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import RouteEntry, SocketRoute
from sixfold.web.services import ServiceHandlers, WebServices

UNAUTHORIZED, ELSEWHERE, TRY_AGAIN_LATER = 4401, 1013, 1013
# How long the server waits for `hello` before it resumes the session without it.
_GREETING_SECONDS = 0.5
FAREWELL_SECONDS = 2.0
# For a viewer that has stopped reading: the reason is sent once it reads again.
_SLOW_FAREWELL_SECONDS = 20.0
_TOO_LARGE = 1009


class SessionRoutes(ServiceHandlers):
    """Routes to create, read and end a live session, and its WebSocket."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._live = services.live_sessions
        self._base_url = services.settings.base_url

    async def create(self, request: Request) -> Response:
        principal = await self._enter(request)
        raw = await request.body()
        idempotent_request = IdempotentRequest(principal.replays, raw, responses.error_response)

        async def work(_idempotency_id: str | None) -> Response:
            body = schemas.parse_body(bodies.parse_object(raw) if raw.strip() else {})
            model = requests.path_value(request, "model_id")
            if model not in self._services.predictions.catalog:
                await self._services.predictions.find(model, principal.account_id)
                raise errors.BadRequest(f"{model} does not support sessions: create a prediction instead")
            order = SessionRequest(
                principal, requests.request_id(request), model, body.inputs, body.fps, body.hardware
            )
            session = await self._live.create(order)
            return self._answer(schemas.new_session(session, self._base_url), session.session, 201)

        return await self._services.idempotency.run(request, idempotent_request, work)

    async def show(self, request: Request) -> Response:
        principal = await self._enter(request)
        session = await self._live.find(requests.path_value(request, "session_id"), principal.tenant)
        return self._answer(schemas.session(session, self._base_url), session)

    async def close(self, request: Request) -> Response:
        """Close a session; a session that has ended is unchanged."""
        principal = await self._enter(request)
        expired = await self._live.close(requests.path_value(request, "session_id"), principal.tenant)
        return self._answer(schemas.session(expired, self._base_url), expired)

    def _answer(self, message: Mapping[str, Any], session: SessionRecord, status: int = 200) -> Response:
        headers = {"X-Sixfold-Engine": engine_name(session.engine), "X-Sixfold-Quality": session.quality}
        return responses.json(message, status, headers | {"Cache-Control": "no-store"})

    # -- the websocket ---------------------------------------------------------------------------

    async def converse(self, websocket: WebSocket) -> None:
        """Serve the websocket of a session until one side closes it."""
        await websocket.accept()
        session_id = str(websocket.scope["path_params"]["session_id"])
        token = websocket.query_params.get("token") or websocket.query_params.get("resume_token", "")
        admitted = await self._live.admit(session_id, token)
        if admitted is None:
            await websocket.close(UNAUTHORIZED, "unauthorised")
            return
        session, running = admitted
        try:
            self._services.admission.websockets.hold(websocket.scope, session.account_id)
        except errors.TooManyRequests as error:
            await websocket.close(TRY_AGAIN_LATER, error.code)
            return
        if running is None:
            await _send(websocket, schemas.encode(StateMessage(session.state, session.reason)))
            await websocket.close(NORMAL if session.is_terminal else ELSEWHERE)
            return
        viewer = running.attach()
        resumed = viewer.last_seq if session.is_resumed_by(token) else None
        session_socket = _SessionSocket(websocket, running, viewer, resumed)
        try:
            await session_socket.serve()
        finally:
            running.detach(viewer)


class _SessionSocket:
    """One websocket of one session: incoming and outgoing messages, and its close."""

    def __init__(
        self, websocket: WebSocket, running: SessionRunner, viewer: Connection, last_seq: int | None
    ) -> None:
        self._websocket = websocket
        self._running = running
        self._viewer = viewer
        self._last_seq = last_seq

    async def serve(self) -> None:
        """Serve until the session is closed or the client disconnects."""
        loop = asyncio.get_running_loop()
        greeting = loop.call_later(_GREETING_SECONDS, self._running.resume, self._viewer, self._last_seq)
        receiving = asyncio.create_task(self._receive())
        sending = asyncio.create_task(self._send_messages())
        closing = asyncio.create_task(self._viewer.wait_closed())
        try:
            await asyncio.wait({receiving, sending, closing}, return_when=asyncio.FIRST_COMPLETED)
            # Messages queued earlier may still be sent.
            if closing.done() and not sending.done():
                await asyncio.wait({sending}, timeout=self._close_timeout())
            await self._close()
        finally:
            greeting.cancel()
            for task in (receiving, sending, closing):
                task.cancel()
            await asyncio.gather(receiving, sending, closing, return_exceptions=True)

    def _close_timeout(self) -> float:
        end = self._viewer.end_message
        return _SLOW_FAREWELL_SECONDS if end is not None and end.code == TOO_SLOW else FAREWELL_SECONDS

    async def _close(self) -> None:
        end = self._viewer.end_message
        if end is not None:
            with contextlib.suppress(RuntimeError, TimeoutError, WebSocketDisconnect, OSError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._websocket.close(end.code, end.reason)

    async def _send_messages(self) -> None:
        while not isinstance(message := await self._viewer.next_message(), EndMessage):
            await _send(self._websocket, schemas.encode(message))

    async def _receive(self) -> None:
        while (event := await self._websocket.receive())["type"] != "websocket.disconnect":
            text = event.get("text") or ""
            if len(text) > schemas.MAX_MESSAGE:
                self._viewer.end(_TOO_LARGE, "too large")
                return
            try:
                self._take(schemas.message(text))
            except schemas.InvalidSessionMessage as problem:
                self._viewer.put(ErrorMessage(str(problem)))

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "hello" and message.get("last_seq") is not None:
            self._last_seq = schemas.integer(message, "last_seq")
        self._running.resume(self._viewer, self._last_seq)
        match kind:
            case "hello":
                pass
            case "input":
                self._running.apply_input(schemas.parse_input(message))
            case "credit":
                granted = schemas.integer(message, "n", MAX_CREDIT)
                self._viewer.credit = min(MAX_CREDIT, self._viewer.credit + granted)
            case "ping":
                self._viewer.put(PongMessage(schemas.ping_time(message)))
            case "close":
                self._running.end(SessionEnding(SessionEvent.CLOSE, "closed", NORMAL))
            case _:
                raise schemas.InvalidSessionMessage("type must be hello, input, credit, ping or close")


async def _send(websocket: WebSocket, messages: list[str | bytes]) -> None:
    for message in messages:
        if isinstance(message, bytes):
            await websocket.send_bytes(message)
        else:
            await websocket.send_text(message)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    sessions = SessionRoutes(services)
    small = services.settings.json_body_bytes
    return (
        RouteEntry(
            "/api/containers/{model_id}/sessions", {"POST": sessions.create}, small, access=rights.RUN
        ),
        RouteEntry(
            f"{schemas.PATH}/{{session_id}}",
            {"GET": sessions.show, "DELETE": sessions.close},
            small,
            access=rights.RUN,
        ),
    )


def sockets(services: WebServices) -> tuple[SocketRoute, ...]:
    sessions = SessionRoutes(services)
    return (
        SocketRoute(
            f"{schemas.SOCKET}/{{session_id}}",
            sessions.converse,
            services.trusted_hosts.trusts,
            access=rights.PUBLIC,
        ),
    )
