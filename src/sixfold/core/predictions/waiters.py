"""Those who wait for the end of a run, and how long a server that stops lets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState

Look = Callable[[], Awaitable[Prediction]]


class RunWaiters:
    """The callers that wait at one server.

    When it drains, a caller that can ask again by an id is answered at once. One that cannot is *patient*: it
    stays for a run that has begun, until it ends or `let_go` says that the server cannot wait any longer.
    """

    def __init__(self) -> None:
        self._draining = asyncio.Event()
        self._over = asyncio.Event()
        self._patient: set[asyncio.Task[Prediction]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server is on its way out."""
        return self._draining.is_set()

    def drain(self) -> None:
        """Let go of all but the patient."""
        self._draining.set()

    async def stay(self, seconds: float) -> None:
        """Wait until the patient have their answers, for at most `seconds`."""
        if self._patient:
            await asyncio.wait(set(self._patient), timeout=seconds)

    def let_go(self) -> None:
        """Let go of everybody."""
        self._over.set()

    async def ending(
        self, events: asyncio.Queue[Event], look: Look, seconds: float, *, patient: bool
    ) -> Prediction:
        """What a prediction came to, or as `look` finds it after the time-out, or when one has to go."""
        ending = asyncio.create_task(_ending(events))
        if patient:
            self._patient.add(ending)
            ending.add_done_callback(self._patient.discard)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await _first(ending, self._draining)
                    if patient and not ending.done() and (await look()).state is not PredictionState.QUEUED:
                        await _first(ending, self._over)
            return ending.result() if ending.done() else await look()
        finally:
            ending.cancel()


async def _first(ending: asyncio.Task[Prediction], word: asyncio.Event) -> None:
    """Wait for an ending or for a word, whichever comes first."""
    given = asyncio.create_task(word.wait())
    try:
        await asyncio.wait({ending, given}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        given.cancel()


async def _ending(events: asyncio.Queue[Event]) -> Prediction:
    while True:
        event = await events.get()
        if isinstance(event, StateChanged) and event.prediction.is_terminal:
            return event.prediction
