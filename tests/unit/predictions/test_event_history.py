"""Recent events of a prediction: clients read the new ones without a search through the others."""

from __future__ import annotations

from collections import deque

from sixfold.core.predictions.event_history import EventHistory
from sixfold.core.predictions.events import ProgressEvent


class CountedNumber(int):
    """The number of an event, which counts its comparisons."""

    compared = 0

    def __gt__(self, other: int) -> bool:
        CountedNumber.compared += 1
        return super().__gt__(other)


def test_new_events_are_read_without_the_earlier_ones() -> None:
    events = [(CountedNumber(2 * number), ProgressEvent(number / 1000)) for number in range(1, 1001)]
    history = EventHistory(0, True, events=deque(events))
    assert history.since(1996) == tuple(events[-2:])
    assert CountedNumber.compared == 3
    assert history.since(2000) == ()
    assert history.since(0) == tuple(events)


def test_events_before_the_first_stored_one_are_missing() -> None:
    history = EventHistory(0, False, events=deque([(8, ProgressEvent(0.5)), (10, ProgressEvent(1.0))]))
    assert history.since(7) is None
    assert history.since(8) == ((10, ProgressEvent(1.0)),)
