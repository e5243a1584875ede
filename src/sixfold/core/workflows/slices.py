"""Execution of long computations in slices, between which the event loop can serve other tasks.

A computation is a generator that yields every few dozen items and returns its result. A computation that ends
within a slice runs immediately; longer computations take turns, so that together they never block the loop
for more than a slice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Steps = Generator[None, None, T]

# Items between two points at which a computation may pause.
ITEMS: Final = 32
_SLICE_SECONDS = 0.004  # CPU time of the thread
# The turn of the long computations of an event loop.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def complete(steps: Steps[T]) -> T:
    """Run a computation without pauses and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value


async def run(steps: Steps[T]) -> T:
    """Return the result of a computation of this event loop; raises its errors."""
    try:
        _advance(steps)
        async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while True:
                await asyncio.sleep(0)
                _advance(steps)
    except _Ended as ended:
        return ended.result


class _Ended(Exception):
    """Carries the result of a finished computation."""

    def __init__(self, result: Any) -> None:
        self.result = result


def _advance(steps: Steps[Any]) -> None:
    """Compute for one slice; raises `_Ended` with the result at the end."""
    until = time.thread_time() + _SLICE_SECONDS
    try:
        while time.thread_time() < until:
            next(steps)
    except StopIteration as ended:
        raise _Ended(ended.value) from None
