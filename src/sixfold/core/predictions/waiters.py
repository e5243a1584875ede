"""Callers that wait for the end of a run, and the time for which they wait during a shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState

ReadCurrent = Callable[[], Awaitable[Prediction]]


class RunWaiters:
    """The callers waiting at this server.

    When the server drains, callers that can poll by an id return immediately. A caller that cannot poll is
    *patient*: it waits for a run that has started, until the run ends or `stop` is called because the server
    cannot wait any longer.
    """

    def __init__(self) -> None:
        self._draining = asyncio.Event()
        self._over = asyncio.Event()
        self._patient: set[asyncio.Task[Prediction]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining.is_set()

    def drain(self) -> None:
        """End all waits except those with `patient=True`."""
        self._draining.set()

    async def wait_drain(self) -> None:
        """Wait until the server shuts down."""
        await self._draining.wait()

    async def wait_patient(self, seconds: float) -> None:
        """Wait until the patient callers have returned, for at most `seconds`."""
        if self._patient:
            await asyncio.wait(set(self._patient), timeout=seconds)

    def stop(self) -> None:
        self._over.set()

    async def wait(
        self, events: asyncio.Queue[Event], read_current: ReadCurrent, seconds: float, *, patient: bool
    ) -> Prediction:
        """Return the ended prediction, or its current state after the timeout or when the server drains."""
        completion = asyncio.create_task(_ending(events))
        if patient:
            self._patient.add(completion)
            completion.add_done_callback(self._patient.discard)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await _first(completion, self._draining)
                    if patient and not completion.done():
                        current = await read_current()
                        if current.state is not PredictionState.QUEUED:
                            await _first(completion, self._over)
            return completion.result() if completion.done() else await read_current()
        finally:
            completion.cancel()


async def _first(completion: asyncio.Task[Prediction], event: asyncio.Event) -> None:
    """Wait for the end of the run or for the event, whichever comes first."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({completion, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _ending(events: asyncio.Queue[Event]) -> Prediction:
    while True:
        event = await events.get()
        if isinstance(event, StateChanged) and event.prediction.is_terminal:
            return event.prediction
