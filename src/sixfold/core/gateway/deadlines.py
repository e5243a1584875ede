"""One limit of time for many calls, with one timer for all of them.

A timer of the event loop costs as much as several steps of a call, and hardly any ever rings. As every call
has the same time, those that began first are due first: it is enough to watch the oldest.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """Gives every `with` block so many seconds; raises `TimeoutError` in one that takes longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Deadline, None] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Deadline:
        """For one block."""
        return Deadline(self)

    def enter(self, deadline: Deadline) -> float:
        """Watch one; gives when it is due."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds
        self._running[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(due, self._ring)
        return due

    def leave(self, deadline: Deadline) -> None:
        """Watch it no more."""
        self._running.pop(deadline, None)

    def _ring(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        moment = loop.time()
        for deadline in list(self._running):
            if deadline.due > moment:
                self._timer = loop.call_at(deadline.due, self._ring)
                return
            del self._running[deadline]
            deadline.expire()


class Deadline:
    """The time of one block, which runs in one task."""

    __slots__ = ("_canceling", "_expired", "_of", "_task", "due")

    def __init__(self, of: Deadlines) -> None:
        self._of = of
        self._task: asyncio.Task[Any] | None = None
        self._canceling = 0
        self._expired = False
        self.due = 0.0

    def expire(self) -> None:
        """Its time is over."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._canceling = task.cancelling() if task is not None else 0
        self.due = self._of.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._of.leave(self)
        task, self._task = self._task, None
        if self._expired and task is not None:
            others = task.uncancel() > self._canceling
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error
