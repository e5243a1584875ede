"""What happens to predictions, as it happens: progress, log lines, and the end.

Events live in this process; the database is the truth. Whoever waits therefore subscribes first and
reads second, and never misses an ending.

Each event has a number, the ms since its prediction was accepted (or the next one that is free), so numbers
only grow, for every follower alike and past a restart. What was told lately is kept for those who come back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sixfold.core.clock import Clock, steady_clock

if TYPE_CHECKING:
    from sixfold.core.work.records import Prediction

_MAX_BACKLOG = 1000
_MAX_HISTORIES = 2000  # of predictions, those that were told of last
_MS_US = 1000


@dataclass(frozen=True, slots=True)
class Progressed:
    """A run reported how far it is, from 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class Logged:
    """A run wrote a line."""

    line: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A prediction took a step of its state machine; the last one is terminal."""

    prediction: Prediction


Event = Progressed | Logged | Moved


@dataclass(slots=True)
class History:
    """What was told of one prediction lately. `whole` while nothing of it is missing."""

    created_at: int
    whole: bool
    events: deque[tuple[int, Event]] = field(default_factory=deque[tuple[int, Event]])

    def add(self, moment: int, event: Event) -> None:
        """Note an event that happened at `moment` (epoch µs)."""
        number = max(1, (moment - self.created_at) // _MS_US)
        if self.events:
            number = max(number, self.events[-1][0] + 1)
        self.events.append((number, event))
        if len(self.events) > _MAX_BACKLOG:
            self.events.popleft()
            self.whole = False

    def since(self, number: int) -> tuple[tuple[int, Event], ...] | None:
        """What came after an event; None where some of that is missing."""
        if not self.whole and (not self.events or self.events[0][0] > number):
            return None
        return tuple(told for told in self.events if told[0] > number)


class Bus:
    """Events by prediction id. Not thread-safe: for one event loop.

    `watchers` are told of every step of every prediction.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or steady_clock()
        self._histories: OrderedDict[str, History] = OrderedDict()
        self.watchers: list[Callable[[Prediction], None]] = []
        self._queues: defaultdict[str, set[asyncio.Queue[Event]]] = defaultdict(set)
        self._progress: dict[str, float] = {}

    def publish(self, prediction_id: str, event: Event) -> None:
        """Tell everyone who listens; a listener that is far behind loses its oldest events."""
        if isinstance(event, Progressed):
            self._progress[prediction_id] = event.fraction
        elif isinstance(event, Moved) and event.prediction.is_terminal:
            self._progress.pop(prediction_id, None)
        self._note(prediction_id, event)
        for queue in self._queues.get(prediction_id, ()):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def _note(self, prediction_id: str, event: Event) -> None:
        history = self._histories.get(prediction_id)
        if isinstance(event, Moved):
            if history is None:
                new = event.prediction.attempt == 0 and not event.prediction.is_terminal
                history = self._histories[prediction_id] = History(event.prediction.created_at, new)
                if len(self._histories) > _MAX_HISTORIES:
                    self._histories.popitem(last=False)
            for watch in self.watchers:
                watch(event.prediction)
        if history is not None:
            history.add(self._clock(), event)
            self._histories.move_to_end(prediction_id)

    def history(self, prediction_id: str) -> History | None:
        """What was told of a prediction lately; None where that was long ago, or never here."""
        return self._histories.get(prediction_id)

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
