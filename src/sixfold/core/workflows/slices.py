"""Long computations in slices: the event loop serves others between them.

A computation is a generator that yields every few dozen items and returns its result. One that is over within
a slice runs at once; of longer ones, one at a time goes on, so that together they never take more than a
slice of a turn of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

ITEMS: Final = 32  # between two points at which a computation may pause
_SLICE_SECONDS = 0.004  # of the thread's CPU time


def complete(steps: Steps[T]) -> T:
    """The result, computed in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value


class Slices:
    """Runs computations on an event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """The result; raises what the computation raises."""
        try:
            _advance(steps)
            async with self._turn:
                while True:
                    await asyncio.sleep(0)
                    _advance(steps)
        except _Ended as ended:
            return ended.result


class _Ended(Exception):
    """The computation is over."""

    def __init__(self, result: Any) -> None:
        self.result = result


def _advance(steps: Steps[Any]) -> None:
    """Compute for a slice; raises `_Ended` with the result."""
    until = time.thread_time() + _SLICE_SECONDS
    try:
        while time.thread_time() < until:
            next(steps)
    except StopIteration as ended:
        raise _Ended(ended.value) from None
