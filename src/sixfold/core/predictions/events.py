"""What happens to predictions, as it happens: progress, log lines, and the end.

Events live in this process; the database is the truth. Whoever waits therefore subscribes first and
reads second, and never misses an ending.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sixfold.core.predictions.node_events import NodeStateChanged

if TYPE_CHECKING:
    from sixfold.core.predictions.models import Prediction

_MAX_BACKLOG = 1000


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A run reported how far it is, from 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A run wrote a line."""

    line: str


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A prediction took a step of its state machine; the last one is terminal."""

    prediction: Prediction


Event = ProgressEvent | LogEvent | StateChanged | NodeStateChanged


class EventBus:
    """Events by prediction id, for one event loop: not thread-safe. `watchers` are told everything."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[str, Event], None]] = []
        self._queues: defaultdict[str, set[asyncio.Queue[Event]]] = defaultdict(set)
        self._progress: dict[str, float] = {}

    def publish(self, prediction_id: str, event: Event) -> None:
        """Tell everyone who listens; a listener that is far behind loses its oldest events."""
        if isinstance(event, ProgressEvent):
            self._progress[prediction_id] = event.fraction
        elif isinstance(event, StateChanged) and event.prediction.is_terminal:
            self._progress.pop(prediction_id, None)
        for watch in self.watchers:
            watch(prediction_id, event)
        for queue in self._queues.get(prediction_id, ()):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def progress(self, prediction_id: str) -> float:
        """The last progress that was reported; 0 when none was."""
        return self._progress.get(prediction_id, 0.0)

    def listened(self) -> tuple[str, ...]:
        """Every prediction that somebody here listens to."""
        return tuple(self._queues)

    @contextmanager
    def listen(self, prediction_id: str) -> Generator[asyncio.Queue[Event]]:
        """Events of one prediction from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_MAX_BACKLOG)
        self._queues[prediction_id].add(queue)
        try:
            yield queue
        finally:
            listeners = self._queues[prediction_id]
            listeners.discard(queue)
            if not listeners:
                del self._queues[prediction_id]
