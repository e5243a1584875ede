"""Server-sent events of one prediction: status, progress and log lines until its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_never

import msgspec

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import steady_clock
from sixfold.core.concurrency.loop_turns import TURNS
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.predictions.event_history import EventHistory, has_seen_end, is_end
from sixfold.core.predictions.event_history import number as event_number
from sixfold.core.predictions.events import Event, LogEvent, NodeStateChanged, ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.web.services import WebServices

_KEEP_ALIVE_SECONDS = 15.0
_POLL_SECONDS = 1.0
_KEEP_ALIVE = b": still here\n\n"
_NOTHING_MORE = b": nothing more\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_MAX_ID_DIGITS = 12
# The size of an event other than a change of state, for turns of the event loop.
_SMALL_BYTES = 1024
# The current state is numbered slightly below the clock, so that events of the same moment follow it.
_MARGIN_US = 2_000
Renderer = Callable[[Prediction], Awaitable[Any]]


def last_id(header: str | None) -> int:
    """Return the number of the last event that the client received; 0 if there is none."""
    text = header or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS else 0


class EventStream:
    """The events of one prediction for one client: those after the last one it received, then new ones."""

    def __init__(
        self, services: WebServices, prediction: Prediction, render: Renderer, last_event: int
    ) -> None:
        self._predictions = services.predictions
        self._histories = services.event_histories
        self._prediction = prediction
        self._render = render
        self._seen = last_event
        self._ended = False

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the stream until the prediction ends or the server shuts down."""
        if has_seen_end(self._prediction, self._seen):
            yield _NOTHING_MORE
            return
        with self._predictions.bus.listen(self._prediction.id) as queue:
            missed = await self._new_frames()
            history = self._histories.get(self._prediction.id)
            if not missed and history is not None and history.ended:
                yield _NOTHING_MORE
                return
            for frame in missed:
                yield frame
            silent_seconds = 0.0
            while not self._ended and not self._predictions.draining:
                try:
                    async with asyncio.timeout(_POLL_SECONDS):
                        await queue.get()
                except TimeoutError:
                    silent_seconds += _POLL_SECONDS
                    if silent_seconds >= _KEEP_ALIVE_SECONDS:
                        silent_seconds = 0.0
                        yield _KEEP_ALIVE
                    continue
                silent_seconds = 0.0
                # The history contains the events of the queue.
                while not queue.empty():
                    queue.get_nowait()
                for frame in await self._new_frames() or await self._late_end():
                    yield frame

    async def _new_frames(self) -> list[bytes]:
        """Return the events after the last one received, or the current state if some are not stored."""
        history = self._histories.get(self._prediction.id)
        missed = None if history is None else history.since(self._seen)
        if missed is None:
            return [await self._current_state(history)]
        return [await self._frame(number, event) for number, event in missed]

    async def _current_state(self, history: EventHistory | None) -> bytes:
        """Return the current state, numbered below every later event."""
        current = await self._predictions.get(self._prediction.id, Tenant.of(self._prediction))
        last = history.last if history is not None else 0
        end = current.is_terminal
        if last > self._seen and (last % 2 == 1) == end:
            return await self._frame(last, StateChanged(current))
        time_us = current.completed_at or steady_clock()() - _MARGIN_US
        after = max(self._seen, last) if end else self._seen
        return await self._frame(
            event_number(time_us, current.created_at, after=after, end=end), StateChanged(current)
        )

    async def _late_end(self) -> list[bytes]:
        """Return the end if the client's number is higher than any number of this process."""
        history = self._histories.get(self._prediction.id)
        if history is None or not history.ended:
            return []
        _, event = history.events[-1]
        return [await self._frame(event_number(0, 0, after=self._seen, end=True), event)]

    async def _frame(self, number: int, event: Event) -> bytes:
        self._seen = number
        self._ended = self._ended or is_end(event)
        size = _SMALL_BYTES
        match event:
            case StateChanged(prediction):
                await TURNS.next(prediction.size)
                name, data, size = b"status", await self._render(prediction), prediction.size
            case ProgressEvent():
                name, data = b"progress", {"progress": event.fraction}
            case LogEvent():
                name, data = b"log", {"line": event.line}
            case NodeStateChanged():
                name, data = b"node", event.record
            case _:
                assert_never(event)
        # Many clients may follow one prediction.
        content = await PARSER.run_large(size, msgspec.json.encode, data)
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name, content)
