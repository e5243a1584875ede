"""Turns of the event loop in which requests start.

The event loop runs all requests that have arrived before it polls sockets again. A page takes milliseconds,
so 800 requests that one client sends at once would block all other clients for seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

# Requests that arrive after this time in one iteration of the event loop start in a later one.
MAX_SECONDS = 0.05
# Waiting requests that start in one iteration.
_REQUESTS = 4


class RequestTurns:
    """Delays requests if those that started in the same iteration of the event loop take long.

    Waiting requests start a few at a time, and the addresses of clients take turns.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # The time at which the first request of this iteration started.
        self._started: float | None = None
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def start(self, peer: str) -> asyncio.Future[None] | None:
        """Return None if a request of an address may start now, otherwise the future of its turn."""
        if self._started is None:
            self._started = self._clock()
            # This runs in the next iteration.
            asyncio.get_running_loop().call_soon(self._end)
        elif self._waiting or self._clock() - self._started > MAX_SECONDS:
            turn: asyncio.Future[None] = asyncio.Future()
            self._waiting.setdefault(peer, deque()).append(turn)
            return turn
        return None

    def _end(self) -> None:
        """End an iteration, and let some of the waiting requests start in the next one."""
        self._started = None
        started = 0
        while self._waiting and started < _REQUESTS:
            peer = next(iter(self._waiting))
            turns = self._waiting.pop(peer)
            turn = turns.popleft()
            if turns:
                self._waiting[peer] = turns
            if not turn.done():
                turn.set_result(None)
                started += 1
        if self._waiting:
            self._started = self._clock()
            asyncio.get_running_loop().call_soon(self._end)
