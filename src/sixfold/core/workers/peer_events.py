"""Reception of events from other servers on a shared database: queued, canceled or ended runs.

The database notifies about each change. Because a notification may be lost with a connection, the listener
also polls four times a second, unless this server has neither runs nor waiting callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from sixfold.core.concurrency import background
from sixfold.core.database import Database, Query, Transaction, encode_json
from sixfold.core.predictions.events import EventBus, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers.scheduler import Scheduler

SWEEP_SECONDS = 0.25

EventCallback = Callable[[str, str, str], None]


@runtime_checkable
class SharedDatabase(Database, Protocol):
    """A database that is shared by servers."""

    async def join(self, boot: str, on_event: EventCallback) -> None:
        """Register this server as `boot` and listen for changes made by other servers.

        `on_event` is called with the state, the id and the engine of each prediction that changed.
        """
        ...


class PeerEventListener:
    """A listener for the events of other servers, to be started before the scheduler claims predictions."""

    def __init__(self, database: SharedDatabase, bus: EventBus, scheduler: Scheduler) -> None:
        self._database = database
        self._bus = bus
        self._scheduler = scheduler
        self._notified: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register with the database and start to listen; raises `StoreFailed` if it cannot be reached."""
        await self._database.join(self._scheduler.boot, self._on_event)
        self._task = asyncio.create_task(self._listen_forever(), name="peer-events")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_event(self, state: str, prediction_id: str, engine: str) -> None:
        if state == PredictionState.QUEUED:
            self._scheduler.notify_work(engine)
        elif state == PredictionState.CANCELING:
            self._scheduler.cancel_run(prediction_id)
        if prediction_id in self._bus.listened_ids():
            self._notified.add(prediction_id)
            self._wake.set()

    async def _listen_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            notified_ids, self._notified = self._notified, set()
            # The next poll finds the changes that this poll missed.
            await background.attempt("peer events", functools.partial(self._poll, notified_ids))

    async def _poll(self, notified_ids: set[str]) -> None:
        """Publish the notified changes, and the changes whose notification was lost."""
        ids = {*self._bus.listened_ids(), *self._scheduler.running()}
        if not ids:
            return
        for prediction in await self._database.read(_changed_predictions(ids - notified_ids, notified_ids)):
            if prediction.state is PredictionState.CANCELING:
                self._scheduler.cancel_run(prediction.id)
            if prediction.is_terminal or prediction.id in notified_ids:
                self._bus.publish(prediction.id, StateChanged(prediction))


def _changed_predictions(
    ids: Iterable[str], notified_ids: Iterable[str]
) -> Transaction[tuple[Prediction, ...]]:
    rows = yield Query("predictions_ended", {"ids": _json(ids)})
    current = (yield Query("predictions_by_id", {"ids": _json(notified_ids)})) if notified_ids else ()
    return tuple(Prediction.from_row(row) for row in (*rows, *current))


def _json(ids: Iterable[str]) -> str:
    return encode_json(sorted(ids))
