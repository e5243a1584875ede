"""How long an event loop is held: the CPU time that its thread spends between two turns."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass
class LoopTime:
    """The longest CPU time, in seconds, between two turns of the loop."""

    longest: float = 0.0


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[LoopTime]:
    """Watch the running loop within the block; what the garbage collector takes is left out."""
    seen = LoopTime()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    before = time.thread_time()

    async def watch() -> None:
        nonlocal before
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            seen.longest = max(seen.longest, now - before)
            before = now

    watching = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)
        yield seen
        await asyncio.sleep(0)
    finally:
        watching.cancel()
        if was_enabled:
            gc.enable()
