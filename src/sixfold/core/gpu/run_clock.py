"""The clock of a prediction's run, which does not count the time in which the run waits.

A run waits for the GPU, or in the queue of the space, container or provider that runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from contextvars import ContextVar


class RunClock:
    """Stops the time limit of a run while the run waits; `waited` is the total wait in seconds."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.waited = 0.0
        self._limit = limit
        self._depth = 0
        self._excluded_until = 0.0

    def exclude(self, began: float, ended: float) -> None:
        """Count an interval of the event loop's time as a wait, without the parts that are already counted.

        The time limit of the run includes this wait.
        """
        self.waited += max(0.0, ended - max(began, self._excluded_until))
        self._excluded_until = max(self._excluded_until, ended)

    @contextlib.contextmanager
    def stopped(self) -> Generator[None]:
        """Stop the clock within the block; blocks may overlap."""
        loop = asyncio.get_running_loop()
        began, due = loop.time(), self._limit.when()
        self._depth += 1
        if self._depth > 1 or due is None:
            try:
                yield
            finally:
                self._depth -= 1
            return
        self._limit.reschedule(None)
        try:
            yield
        finally:
            self._depth -= 1
            seconds = loop.time() - began
            self.waited += seconds
            # After the time limit has ended the run, it cannot be extended.
            with contextlib.suppress(RuntimeError):
                self._limit.reschedule(due + seconds)


current: ContextVar[RunClock | None] = ContextVar("run_clock", default=None)


def stopped() -> contextlib.AbstractContextManager[None]:
    """Stop the clock of the current run, if any, within the block."""
    clock = current.get()
    return contextlib.nullcontext() if clock is None else clock.stopped()


def exclude(began: float, ended: float) -> None:
    """Count an interval of the event loop's time as a wait of the current run, if any, see `RunClock`."""
    clock = current.get()
    if clock is not None:
        clock.exclude(began, ended)


def waited_seconds() -> float:
    """Return the total seconds that the current run has waited."""
    clock = current.get()
    return 0.0 if clock is None else clock.waited
