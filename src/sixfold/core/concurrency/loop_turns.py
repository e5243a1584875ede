"""Turns of the event loop for long steps of concurrent tasks.

The event loop runs all tasks that are ready before it polls sockets again: a step of 10 ms in each of 30
tasks delays all other requests by 0.3 s.
"""

from __future__ import annotations

import asyncio

# A smaller input is handled in less than a millisecond.
_SMALL_BYTES = 16 * 1024


class LoopTurns:
    """Lets one of the waiting tasks continue in each iteration of the event loop, in the order of arrival."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def next(self, size: int) -> None:
        """Wait for a turn before a step that handles `size` bytes; a small step does not wait."""
        if size <= _SMALL_BYTES:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A lock belongs to the event loop in which tasks have waited for it.
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            await asyncio.sleep(0)


TURNS = LoopTurns()
