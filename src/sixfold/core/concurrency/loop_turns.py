"""Turns of the event loop for long steps of concurrent tasks and connections.

The event loop runs all tasks that are ready, and reads all connections that have data, before it polls
sockets again: a step of 10 ms in each of 30 tasks delays all other requests by 0.3 s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# A smaller input is handled in less than a millisecond.
_SMALL_BYTES = 16 * 1024
# Bytes that the steps of one iteration handle together, unless a single step handles more.
TURN_BYTES = 256 * 1024
# A connection parses data with many small parts, such as chunks of a body or frames of a websocket, in slices
# of this size, and in one turn until it has had this many parts. One read of 256 KiB can have 40,000 of them.
SLICE_BYTES = 4096
MAX_PARTS = 256


class LoopTurns:
    """Lets waiting steps continue in the order of arrival, a few in each iteration of the event loop."""

    def __init__(self, turn_bytes: int = TURN_BYTES) -> None:
        self._turn_bytes = turn_bytes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        # Bytes of the steps in this iteration.
        self._bytes = 0

    async def next(self, size: int = TURN_BYTES) -> None:
        """Wait for a turn before a step that handles `size` bytes; a small step does not wait."""
        if self.take(size):
            return
        turn: asyncio.Future[None] = asyncio.Future()
        self._waiting.append((size, turn))
        await turn

    def take(self, size: int) -> bool:
        """Count a step in this iteration; return False, without effect, if it must wait for a later one."""
        if size <= _SMALL_BYTES:
            return True
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._waiting, self._bytes = loop, deque(), 0
        if self._waiting or not self._fits(size):
            return False
        if not self._bytes:
            loop.call_soon(self._begin)
        self._bytes += size
        return True

    def call(self, step: Callable[[], object]) -> None:
        """Call a function in its own turn, in a later iteration."""
        # Without bytes of this iteration, the next one would not begin with the waiting steps.
        self.take(self._turn_bytes)
        turn: asyncio.Future[None] = asyncio.Future()
        turn.add_done_callback(lambda _turn: step())
        self._waiting.append((self._turn_bytes, turn))

    def _fits(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._turn_bytes

    def _begin(self) -> None:
        """Begin an iteration with the first of the waiting steps."""
        self._bytes = 0
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._bytes += size
        if self._bytes:
            asyncio.get_running_loop().call_soon(self._begin)


TURNS = LoopTurns()
# Turns of the clients' connections whose data has many small parts, one in each iteration.
CONNECTION_TURNS = LoopTurns()
