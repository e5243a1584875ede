"""Recent events of predictions, numbered, for clients that resume a stream.

The number of an event is the milliseconds since its prediction was accepted, or the next free number.
Therefore numbers increase, are the same for every client, and remain valid after a restart. The number of the
last event is odd and all other numbers are even, so a client that reconnects with an odd number has seen the
end, even if this process has not recorded it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Generator, Iterable

import msgspec

from sixfold.core.clock import Clock, steady_clock
from sixfold.core.predictions.events import Event, EventBus, LogEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.refunds import REFUNDED

# Maximum number of events of one prediction.
_MAX_EVENTS = 1000
_MAX_HISTORIES = 2000
# Maximum JSON bytes of documents and log lines in all histories; decoded, they use up to thirty times as
# much.
_MAX_BYTES = 4 * 2**20
_MS_US = 1000


def number(moment: int, created_at: int, *, after: int = 0, end: bool = False) -> int:
    """Return the number of an event that happened at `moment` (epoch µs), greater than `after`."""
    minimum = max(1, (moment - created_at) // _MS_US, after + 1)
    return minimum + (minimum % 2 != end)


def is_end(event: Event) -> bool:
    return isinstance(event, StateChanged) and event.prediction.is_terminal


def _is_refund(event: Event) -> bool:
    return isinstance(event, StateChanged) and event.prediction.error_kind == REFUNDED


def has_seen_end(prediction: Prediction, last_event: int) -> bool:
    """Return whether `last_event`, the number of a client's last event, is the number of the end event."""
    if not prediction.is_terminal or last_event % 2 == 0:
        return False
    return last_event >= number(_end_of(prediction), prediction.created_at, end=True)


def _size(event: Event) -> int:
    match event:
        case StateChanged(prediction):
            return prediction.size
        case LogEvent(line):
            return len(line)
        case _:
            return 0


def _end_of(prediction: Prediction) -> int:
    return prediction.completed_at or prediction.created_at


class EventHistory(msgspec.Struct):
    """The recent events of one prediction; `complete` if none is missing; `size` is in bytes."""

    created_at: int
    complete: bool
    size: int = 0
    events: deque[tuple[int, Event]] = msgspec.field(default_factory=deque[tuple[int, Event]])

    @property
    def last(self) -> int:
        """The number of the last event, or 0 if there is none."""
        return self.events[-1][0] if self.events else 0

    @property
    def ended(self) -> bool:
        """Whether the last event is the end."""
        return bool(self.events) and is_end(self.events[-1][1])

    def add(self, moment: int, event: Event) -> None:
        """Append an event that happened at `moment` (epoch µs). After the end, only a refund is appended."""
        if self.ended and not _is_refund(event):
            return
        end = is_end(event)
        if isinstance(event, StateChanged) and end:
            moment = _end_of(event.prediction)
        self.events.append((number(moment, self.created_at, after=self.last, end=end), event))
        self.size += _size(event)
        if len(self.events) > _MAX_EVENTS:
            self.size -= _size(self.events.popleft()[1])
            self.complete = False

    def since(self, last_event: int) -> tuple[tuple[int, Event], ...] | None:
        """Return the events with numbers greater than `last_event`, or None if some of them are missing."""
        if not self.complete and (not self.events or self.events[0][0] > last_event):
            return None
        # Each of many clients reads the newest events.
        newer = itertools.takewhile(lambda event: event[0] > last_event, reversed(self.events))
        return tuple(newer)[::-1]


class EventHistories:
    """The histories of the predictions with the latest events, up to `max_bytes`."""

    def __init__(self, clock: Clock | None = None, max_bytes: int = _MAX_BYTES) -> None:
        self._clock = clock or steady_clock()
        self._max_bytes = max_bytes
        self.size = 0
        self._histories: OrderedDict[str, EventHistory] = OrderedDict()

    def add(self, prediction_id: str, event: Event) -> None:
        """Append an event to its prediction's history; subscribed to the event bus."""
        history = self._histories.get(prediction_id)
        if history is None:
            if not isinstance(event, StateChanged):
                return
            first = event.prediction.attempt == 0 and not event.prediction.is_terminal
            history = self._histories[prediction_id] = EventHistory(event.prediction.created_at, first)
        self.size -= history.size
        history.add(self._clock(), event)
        self.size += history.size
        self._histories.move_to_end(prediction_id)
        while len(self._histories) > 1 and (
            len(self._histories) > _MAX_HISTORIES or self.size > self._max_bytes
        ):
            _, oldest = self._histories.popitem(last=False)
            self.size -= oldest.size

    def get(self, prediction_id: str) -> EventHistory | None:
        """Return a prediction's history, or None if it was evicted or had no events on this server."""
        return self._histories.get(prediction_id)


class AcceptedRuns:
    """The events of runs from before their acceptance until the caller next awaits.

    A caller that waits immediately need not read the state of its run.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._backlogs: dict[str, asyncio.Queue[Event]] = {}

    @contextlib.contextmanager
    def accepting(self, prediction_ids: Iterable[str]) -> Generator[None]:
        """Record the events of runs that are accepted within the block.

        Recording begins before a run is accepted, so its final event is never missed.
        """
        with contextlib.ExitStack() as listening:
            backlogs = {
                prediction_id: listening.enter_context(self._bus.listen(prediction_id))
                for prediction_id in prediction_ids
            }
            yield
            self._backlogs |= backlogs
            asyncio.get_running_loop().call_soon(self._forget, tuple(backlogs), listening.pop_all())

    def _forget(self, prediction_ids: Iterable[str], listening: contextlib.ExitStack) -> None:
        for prediction_id in prediction_ids:
            self._backlogs.pop(prediction_id, None)
        listening.close()

    def state(self, prediction: Prediction) -> Prediction | None:
        """Return the current state of a run if it was accepted without an await since, otherwise None."""
        backlog = self._backlogs.get(prediction.id)
        if backlog is None:
            return None
        while not (prediction.is_terminal or backlog.empty()):
            event = backlog.get_nowait()
            if isinstance(event, StateChanged):
                prediction = event.prediction
        return prediction
