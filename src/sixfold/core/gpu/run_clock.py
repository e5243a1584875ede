"""The clock of a prediction's run, which stops while the run waits for the GPU."""

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


def waited_seconds() -> float:
    """Return the total seconds that the current run has waited."""
    clock = current.get()
    return 0.0 if clock is None else clock.waited
