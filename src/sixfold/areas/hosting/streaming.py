"""Server-sent events of one prediction: status, progress and log lines until its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, assert_never

import msgspec

from sixfold.core.work.events import Event, Logged, Moved, Progressed
from sixfold.core.work.pipeline import Pipeline
from sixfold.core.work.records import Prediction

_KEEP_ALIVE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_KEEP_ALIVE = b": still here\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_MAX_ID_DIGITS = 12


def last_id(header: str | None) -> int:
    """The number of the last event that a client saw; 0 for none."""
    text = header or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS else 0


async def events(
    pipeline: Pipeline, prediction: Prediction, tell: Callable[[Prediction], Any], seen: int
) -> AsyncIterator[bytes]:
    """The stream, numbered on from `seen`; begins with how things stand, so coming back loses nothing."""
    source = aiter(pipeline.events(prediction))
    upcoming = asyncio.ensure_future(anext(source, None))
    quiet = 0.0
    try:
        while not pipeline.draining:
            done, _ = await asyncio.wait({upcoming}, timeout=_LOOK_SECONDS)
            if not done:
                quiet += _LOOK_SECONDS
                if quiet >= _KEEP_ALIVE_SECONDS:
                    quiet = 0.0
                    yield _KEEP_ALIVE
                continue
            event = upcoming.result()
            if event is None:
                return
            seen, quiet = seen + 1, 0.0
            yield _frame(event, tell, seen)
            upcoming = asyncio.ensure_future(anext(source, None))
    finally:
        upcoming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await upcoming


def _frame(event: Event, tell: Callable[[Prediction], Any], number: int) -> bytes:
    match event:
        case Moved():
            name, data = "status", tell(event.prediction)
        case Progressed():
            name, data = "progress", {"progress": event.fraction}
        case Logged():
            name, data = "log", {"line": event.line}
        case _:
            assert_never(event)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(data))
