"""A time limit shared by many calls with a single event-loop timer.

A timer per call would cost as much as several steps of the call, and timers rarely expire. Because all calls
have the same limit, the oldest call is always due first, and only that call must be watched.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """Limits the duration of each `with` block in seconds; a block that exceeds it raises `TimeoutError`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # Ordered by due time.
        self._running: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Deadline:
        """Return a context manager for one block."""
        return Deadline(self)

    def enter(self, deadline: Deadline) -> float:
        """Start watching a deadline and return its due time (event-loop seconds)."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds
        self._running[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire_due)
        return due

    def leave(self, deadline: Deadline) -> None:
        self._running.pop(deadline, None)

    def _expire_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        current_time = loop.time()
        for deadline in list(self._running):
            if deadline.due > current_time:
                self._timer = loop.call_at(deadline.due, self._expire_due)
                return
            del self._running[deadline]
            deadline.expire()


class Deadline:
    """The deadline of one block, which runs in one task."""

    __slots__ = ("_canceling", "_deadlines", "_expired", "_task", "due")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._task: asyncio.Task[Any] | None = None
        self._canceling = 0
        self._expired = False
        self.due = 0.0

    def expire(self) -> None:
        """Cancel the task of the block."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._canceling = task.cancelling() if task is not None else 0
        self.due = self._deadlines.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._deadlines.leave(self)
        task, self._task = self._task, None
        if self._expired and task is not None:
            is_canceled_elsewhere = task.uncancel() > self._canceling
            if kind is asyncio.CancelledError and not is_canceled_elsewhere:
                raise TimeoutError from error
