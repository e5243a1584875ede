"""Streams of the Replicate-compatible API: the output of a text model as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.states import PredictionState
from sixfold.web import responses

_KEEP_ALIVE_SECONDS = 15.0
_KEEP_ALIVE = b": still here\n\n"
_REASONS = {PredictionState.SUCCEEDED: None, PredictionState.CANCELED: "canceled"}


async def frames(service: PredictionService, prediction: Prediction) -> AsyncIterator[bytes]:
    """Yield the output and `done` once the prediction has succeeded, or `error` if it failed."""
    with service.bus.listen(prediction.id) as queue:
        current = await service.get_any(prediction.id)
        while not current.is_terminal and not service.draining:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                    event = await queue.get()
            except TimeoutError:
                yield _KEEP_ALIVE
                continue
            if isinstance(event, StateChanged):
                current = event.prediction
    if not current.is_terminal:
        return
    reason = _REASONS.get(current.state, "error")
    if reason is None:
        data = current.output.first.data if current.output is not None else {}
        yield _frame("output", 1, str(data.get("value", "")))
    elif reason == "error":
        yield _frame("error", 1, _json({"detail": current.error or "The run expired"}))
    yield _frame("done", 2, _json({} if reason is None else {"reason": reason}))


def _json(content: Any) -> str:
    return responses.encode(content).decode()


def _frame(event: str, number: int, text: str) -> bytes:
    # A text of two million line breaks would take half a second to split.
    lines = text.replace("\n", "\ndata: ")
    return f"event: {event}\nid: {number}\ndata: {lines}\n\n".encode()
