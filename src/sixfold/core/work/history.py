"""What was told of predictions lately, for followers who come back.

Each event has a number, the ms since its prediction was accepted (or the next one that is free), so numbers
only grow, for every follower alike and past a restart.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from sixfold.core.clock import Clock, steady_clock
from sixfold.core.work.events import Event, Moved

_MAX_EVENTS = 1000  # of one prediction
_MAX_HISTORIES = 2000  # those that were told of last
_MS_US = 1000


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
        if len(self.events) > _MAX_EVENTS:
            self.events.popleft()
            self.whole = False

    def since(self, number: int) -> tuple[tuple[int, Event], ...] | None:
        """What came after an event; None where some of that is missing."""
        if not self.whole and (not self.events or self.events[0][0] > number):
            return None
        return tuple(told for told in self.events if told[0] > number)


class Histories:
    """The histories of the predictions that were told of last."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or steady_clock()
        self._histories: OrderedDict[str, History] = OrderedDict()

    def note(self, prediction_id: str, event: Event) -> None:
        """Remember an event."""
        history = self._histories.get(prediction_id)
        if history is None:
            if not isinstance(event, Moved):
                return
            first = event.prediction.attempt == 0 and not event.prediction.is_terminal
            history = self._histories[prediction_id] = History(event.prediction.created_at, first)
            if len(self._histories) > _MAX_HISTORIES:
                self._histories.popitem(last=False)
        history.add(self._clock(), event)
        self._histories.move_to_end(prediction_id)

    def of(self, prediction_id: str) -> History | None:
        """What was told of a prediction; None where that was long ago, or never here."""
        return self._histories.get(prediction_id)
