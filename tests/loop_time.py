"""Measurement of how long an event loop is blocked: CPU time of its thread between two turns.

The time is divided by how much slower a fixed piece of work runs just then than on a quiet machine, since a
processor that other programs share takes up to twice the CPU time for the same work.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

# CPU time of `_fixed_work` on a quiet machine.
_QUIET_SECONDS = 0.0062


@dataclass
class LoopTime:
    """The longest CPU time, in seconds, between two turns of the loop."""

    longest: float = 0.0


def _fixed_work() -> float:
    before = time.thread_time()
    table = {str(number): [number, {"a": number}] for number in range(20_000)}
    assert len(table) == 20_000
    return time.thread_time() - before


def slowdown() -> float:
    """Return how many times longer than on a quiet machine fixed work takes now, at least 1."""
    return max(1.0, statistics.median(_fixed_work() for _ in range(5)) / _QUIET_SECONDS)


def cpu_seconds(work: Callable[[], object], aim: float) -> float:
    """Return the CPU time, in seconds of a quiet machine, that some work takes at its quickest.

    That is the least of five tries, of which the first below `aim` is the last one: other programs, imports
    at a first call and collections of garbage can only add to it.
    """
    least = _cpu_seconds(work)
    for _ in range(4):
        if least < aim:
            break
        least = min(least, _cpu_seconds(work))
    return least


def _cpu_seconds(work: Callable[[], object]) -> float:
    before_slowdown = slowdown()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    before = time.thread_time()
    try:
        work()
        seconds = time.thread_time() - before
    finally:
        if was_enabled:
            gc.enable()
    return seconds / max(before_slowdown, slowdown())


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[LoopTime]:
    """Watch the running loop within the block, excluding garbage collection.

    `longest` is complete after the block.
    """
    loop = LoopTime()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    before_slowdown = slowdown()
    before = time.thread_time()

    async def watch() -> None:
        nonlocal before
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            loop.longest = max(loop.longest, now - before)
            before = now

    watching = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)
        yield loop
        await asyncio.sleep(0)
    finally:
        watching.cancel()
        loop.longest /= max(before_slowdown, slowdown())
        if was_enabled:
            gc.enable()
