"""Events of predictions as they happen: progress, log lines, node states and state changes.

Events are published within this process; the database is authoritative. Therefore a caller that waits for the
end subscribes first and then reads the state, and cannot miss the end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from sixfold.core.predictions.models import Prediction

_MAX_BACKLOG = 1000
PreviewCallback = Callable[[bytes], None]
NodeState = Literal["started", "progress", "finished", "cached", "failed"]


class ProgressEvent(msgspec.Struct, frozen=True):
    """The progress of a run, from 0 to 1."""

    fraction: float


class LogEvent(msgspec.Struct, frozen=True):
    """A log line of a run."""

    line: str


class StateChanged(msgspec.Struct, frozen=True):
    """A prediction changed its state; the last such event is terminal."""

    prediction: Prediction


class NodeStateChanged(msgspec.Struct, frozen=True):
    """A node changed its state.

    `progress` is from 0 to 1, and `details` are set for a finished node.
    """

    node: str
    class_type: str
    state: NodeState
    progress: float = 0.0
    details: Mapping[str, Any] = {}

    @property
    def record(self) -> dict[str, Any]:
        """The event as JSON."""
        facts = {"node": self.node, "class_type": self.class_type, "state": self.state}
        return {**facts, "progress": round(self.progress, 4), **self.details}


Event = ProgressEvent | LogEvent | StateChanged | NodeStateChanged


class EventBus:
    """The events by prediction id, for use in one event loop; `watchers` receive all events."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[str, Event], None]] = []
        self._queues: defaultdict[str, set[asyncio.Queue[Event]]] = defaultdict(set)
        self._progress: dict[str, float] = {}
        self._previews: defaultdict[str, list[PreviewCallback]] = defaultdict(list)

    def publish(self, prediction_id: str, event: Event) -> None:
        """Send an event to all listeners; a listener with a full queue loses its oldest event."""
        if isinstance(event, ProgressEvent):
            self._progress[prediction_id] = event.fraction
        elif isinstance(event, StateChanged) and event.prediction.is_terminal:
            self._progress.pop(prediction_id, None)
        for watcher in self.watchers:
            watcher(prediction_id, event)
        for queue in self._queues.get(prediction_id, ()):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def progress(self, prediction_id: str) -> float:
        """Return the last reported progress, or 0 if none was reported."""
        return self._progress.get(prediction_id, 0.0)

    def listened_ids(self) -> tuple[str, ...]:
        """Return the ids of predictions with listeners in this process."""
        return tuple(self._queues)

    @contextmanager
    def listen(self, prediction_id: str) -> Generator[asyncio.Queue[Event]]:
        """Subscribe to the events of one prediction within the block."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_MAX_BACKLOG)
        self._queues[prediction_id].add(queue)
        try:
            yield queue
        finally:
            listeners = self._queues[prediction_id]
            listeners.discard(queue)
            if not listeners:
                del self._queues[prediction_id]

    def publish_preview(self, prediction_id: str, content: bytes) -> None:
        """Show a partial result to callers that wait for the prediction; it is not stored."""
        for show in tuple(self._previews.get(prediction_id, ())):
            show(content)

    @contextmanager
    def showing(self, prediction_id: str, show: PreviewCallback) -> Generator[None]:
        """Call `show` with the partial results of one prediction within the block."""
        self._previews[prediction_id].append(show)
        try:
            yield
        finally:
            self._previews[prediction_id].remove(show)
            if not self._previews[prediction_id]:
                del self._previews[prediction_id]
