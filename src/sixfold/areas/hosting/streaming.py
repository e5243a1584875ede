"""Server-sent events of one prediction: status, progress and log lines until its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_never

import msgspec

from sixfold.core.clock import steady_clock
from sixfold.core.work.events import Event, Logged, Moved, Progressed
from sixfold.core.work.records import Prediction
from sixfold.core.work.steps import NodeMoved
from sixfold.web.services import Services

_KEEP_ALIVE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_KEEP_ALIVE = b": still here\n\n"
_NOTHING_MORE = b": nothing more\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_MAX_ID_DIGITS = 12
Tell = Callable[[Prediction], Awaitable[Any]]


def last_id(header: str | None) -> int:
    """The number of the last event that a client saw; 0 for none."""
    text = header or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS else 0


class Stream:
    """What one follower is told. It begins after the event that he saw last, or with how things stand."""

    def __init__(self, services: Services, prediction: Prediction, tell: Tell, seen: int) -> None:
        self._pipeline = services.pipeline
        self._histories = services.histories
        self._id = prediction.id
        self._account_id = prediction.account_id
        self._tell = tell
        self._seen = seen
        self._ended = False

    async def frames(self) -> AsyncIterator[bytes]:
        """The stream, to the prediction's end or the server's."""
        with self._pipeline.bus.listen(self._id) as queue:
            for frame in await self._begin():
                yield frame
            quiet = 0.0
            while not self._ended and not self._pipeline.draining:
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await queue.get()
                except TimeoutError:
                    quiet += _LOOK_SECONDS
                    if quiet >= _KEEP_ALIVE_SECONDS:
                        quiet = 0.0
                        yield _KEEP_ALIVE
                    continue
                quiet = 0.0
                for frame in await self._news() or ():
                    yield frame

    async def _begin(self) -> list[bytes]:
        """What he missed, where that is still known; else how the prediction stands now."""
        history = self._histories.of(self._id)
        missed = await self._news()
        if missed is not None:
            if not missed and history is not None and _is_over(history.events[-1][1]):
                self._ended = True
                return [_NOTHING_MORE]
            return missed
        current = await self._pipeline.get(self._id, self._account_id)
        moment = current.completed_at or steady_clock()()
        last = history.events[-1][0] if history is not None and history.events else 0
        number = max(self._seen + 1, last, (moment - current.created_at) // 1000)
        return [await self._frame(number, Moved(current))]

    async def _news(self) -> list[bytes] | None:
        """Every event after the last that he saw; None where some of them are forgotten."""
        history = self._histories.of(self._id)
        told = None if history is None else history.since(self._seen)
        return None if told is None else [await self._frame(number, event) for number, event in told]

    async def _frame(self, number: int, event: Event) -> bytes:
        self._seen = number
        self._ended = self._ended or _is_over(event)
        match event:
            case Moved():
                name, data = b"status", await self._tell(event.prediction)
            case Progressed():
                name, data = b"progress", {"progress": event.fraction}
            case Logged():
                name, data = b"log", {"line": event.line}
            case NodeMoved():
                name, data = b"node", event.record
            case _:
                assert_never(event)
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name, msgspec.json.encode(data))


def _is_over(event: Event) -> bool:
    return isinstance(event, Moved) and event.prediction.is_terminal
