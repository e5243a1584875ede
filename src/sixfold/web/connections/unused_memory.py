"""Return of memory to the system after many connections have been closed.

Python returns memory only in arenas of 1 MiB that contain no object. After many open streams, nearly all of
their arenas are empty except for objects that were freed but are kept for reuse, in lists of at most 2,000
objects of each type. The interpreter empties its own lists in a full garbage collection. Those of asyncio and
uvloop cannot be emptied, but their objects can be replaced by objects that are next to each other.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

from sixfold import process_resources

# The peak of open connections from which their memory is returned, after three quarters of them have ended.
MANY_CONNECTIONS = 256
# Seconds in which memory is returned: periodic tasks replace some of their objects only after minutes.
SECONDS = 180
# With more new objects than this since the start, a garbage collection would delay requests.
_MAX_NEW_BLOCKS = 100_000
# At least the number of freed objects that asyncio and uvloop keep of each type.
_MOST_KEPT = 256


class UnusedMemory:
    """Calls `release` once a second after many connections have been closed."""

    def __init__(self, release: Callable[[], None] | None = None) -> None:
        self._release = release or _Release()
        self._peak = 0
        self._seconds_left = 0

    def check(self, connections: int) -> None:
        """Release memory if it is due; called once a second with the number of open connections."""
        if connections > self._peak:
            self._peak = connections
        elif self._peak >= MANY_CONNECTIONS and connections * 4 <= self._peak:
            self._peak, self._seconds_left = connections, SECONDS
        if self._seconds_left:
            self._seconds_left -= 1
            self._release()


class _Release:
    """Frees objects that are kept for reuse; create it after all modules have been imported."""

    def __init__(self) -> None:
        self._blocks_at_start = sys.getallocatedblocks()

    def __call__(self) -> None:
        if sys.getallocatedblocks() - self._blocks_at_start < _MAX_NEW_BLOCKS:
            release(asyncio.get_running_loop())


def release(loop: asyncio.AbstractEventLoop) -> None:
    """Free the objects that the interpreter, asyncio and uvloop keep for reuse; requires the running loop."""
    future = loop.create_future()
    _free_newest_first([future.__await__() for _ in range(2 * _MOST_KEPT)])
    handles = [loop.call_soon(_nothing) for _ in range(2 * _MOST_KEPT)]
    timers = [loop.call_later(SECONDS, _nothing) for _ in range(2 * _MOST_KEPT)]
    for timer in timers:
        timer.cancel()
    # The loop refers to the handles until it has called them.
    loop.call_soon(_finish, handles, timers)


def _finish(handles: list[asyncio.Handle], timers: list[asyncio.TimerHandle]) -> None:
    _free_newest_first(handles)
    _free_newest_first(timers)
    gc.collect()
    process_resources.trim_heap()


def _free_newest_first(objects: list[Any]) -> None:
    """Free objects of a type of which up to half as many are kept for reuse.

    The first half come from that list. The second half are freed first and fill it again, which releases the
    memory of the first half.
    """
    del objects[len(objects) // 2 :]
    objects.clear()


def _nothing() -> None:
    pass
