"""Turns of the event loop for long steps of concurrent tasks.

The event loop runs all tasks that are ready before it polls sockets again: a step of 10 ms in each of 30
tasks delays all other requests by 0.3 s.
"""

from __future__ import annotations

import asyncio
from collections import deque

# A smaller input is handled in less than a millisecond.
_SMALL_BYTES = 16 * 1024
# Bytes that the steps of one iteration handle together, unless a single step handles more.
TURN_BYTES = 256 * 1024


class LoopTurns:
    """Lets waiting tasks continue in the order of arrival, a few in each iteration of the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        # Bytes of the steps in this iteration.
        self._bytes = 0

    async def next(self, size: int) -> None:
        """Wait for a turn before a step that handles `size` bytes; a small step does not wait."""
        if size <= _SMALL_BYTES:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._waiting, self._bytes = loop, deque(), 0
        if not self._waiting and self._fits(size):
            if not self._bytes:
                loop.call_soon(self._begin)
            self._bytes += size
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, turn))
        await turn

    def _fits(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= TURN_BYTES

    def _begin(self) -> None:
        """Begin an iteration with the first of the waiting tasks."""
        self._bytes = 0
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._bytes += size
        if self._bytes:
            asyncio.get_running_loop().call_soon(self._begin)


TURNS = LoopTurns()
