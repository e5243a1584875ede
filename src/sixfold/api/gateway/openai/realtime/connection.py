"""The websocket of a realtime session: frames in and out, its limits and its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.realtime.configuration import SessionConfiguration
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.api.gateway.openai.realtime.session import RealtimeSession, event_id
from sixfold.core import ids
from sixfold.core.concurrency.loop_turns import TURNS
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits.json_limits import JsonLimits
from sixfold.web import bodies

SESSION_SECONDS = 60 * 60
# 16 s of PCM in base64; a larger event closes the websocket with 1009.
MAX_EVENT_BYTES = 2**20
# Client events beyond this rate wait, after a burst.
EVENTS_PER_SECOND, _BURST = 200, 400
GOING_AWAY, NORMAL = 1001, 1000
_CLOSE_SECONDS = 5.0
_LIMITS = JsonLimits(containers=20_000, members=50_000, values=100_000)
_encode = msgspec.json.Encoder().encode


class SessionExpired(errors.SixfoldError):
    """The session has reached its maximum length."""

    status = 400
    code = "session_expired"


class EventPace:
    """Delays the events of a client that sends more than `per_second`, after a burst."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._step = 1 / per_second
        self._burst_seconds = burst / per_second
        self._clock = clock
        self._due = 0.0

    def delay(self) -> float:
        """Count one event; return the seconds to wait before it is handled."""
        now = self._clock()
        self._due = max(self._due, now) + self._step
        return max(0.0, self._due - now - self._burst_seconds)


class RealtimeSocket:
    """Serves one websocket until it is closed."""

    def __init__(
        self,
        websocket: WebSocket,
        services: RealtimeServices,
        configuration: SessionConfiguration,
        seconds: float = SESSION_SECONDS,
    ) -> None:
        self._websocket = websocket
        self._seconds = seconds
        self._services = services
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._closed = False
        self._crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pace = EventPace(EVENTS_PER_SECOND, _BURST)
        expires_at = int(time.time() + seconds)
        self._session = RealtimeSession(configuration, services, self.send, self._track, expires_at)

    async def serve(self) -> None:
        """Serve until the client disconnects, the server shuts down or the session expires."""
        receiving = asyncio.create_task(self._receive())
        draining = asyncio.create_task(self._services.wait_drain())
        try:
            await self._session.begin()
            ends = {receiving, draining, self._crashed}
            done, _ = await asyncio.wait(ends, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                minutes = round(self._seconds / 60)
                await self._end(
                    SessionExpired(f"A session can last at most {minutes} minutes: connect again"), NORMAL
                )
            elif draining in done and not receiving.done():
                await self._finish_responses(receiving)
                await self._end(errors.ShuttingDown(), GOING_AWAY)
            for task in done:
                task.result()
        finally:
            self._closed = True
            self._session.close()
            rest = {receiving, draining, *self._tasks}
            for task in rest:
                task.cancel()
            try:
                await asyncio.gather(*rest, return_exceptions=True)
            finally:  # also when the server cancels the connection: the bytes count for all sessions
                self._session.discard_items()

    async def send(self, kind: str, /, **fields: Any) -> None:
        """Send an event; wait while the client does not read. Nothing is sent after the end."""
        message = _encode({"type": kind, "event_id": ids.new("event"), **fields}).decode()
        async with self._sending:
            if self._closed:
                return
            try:
                await self._websocket.send_text(message)
            except (WebSocketDisconnect, RuntimeError, OSError):
                self._closed = True

    async def _receive(self) -> None:
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            if (delay := self._pace.delay()) > 0:
                await asyncio.sleep(delay)
            content = message.get("text") or message.get("bytes") or b""
            await TURNS.next(len(content))
            # Many sessions at once wait for their turns and the parser, with one copy of their events.
            raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
            del message, content
            event: dict[str, Any] = {}
            try:
                event = await PARSER.run_large(len(raw), bodies.parse_object, raw, _LIMITS)
                await self._session.handle(event)
            except errors.SixfoldError as error:
                await self._send_error(error, event_id(event))

    async def _send_error(self, error: errors.SixfoldError, client_event_id: str | None) -> None:
        body = openai_errors.document(error)["error"]
        await self.send("error", error={**body, "event_id": client_event_id})

    def _track(self, task: asyncio.Task[None]) -> None:
        """Watch a task: its exception ends the connection."""
        self._tasks.add(task)
        task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._crashed.done():
            self._crashed.set_exception(error)

    async def _finish_responses(self, receiving: asyncio.Task[None]) -> None:
        """Wait for the responses in progress; new ones are refused while the server shuts down."""
        while self._tasks and not receiving.done():
            await asyncio.wait({receiving, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self, error: errors.SixfoldError, code: int) -> None:
        with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError, OSError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._send_error(error, None)
                await self._websocket.close(code, error.code)
