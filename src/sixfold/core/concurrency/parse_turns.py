"""Turns of the event loop in which connections parse data that consists of many small parts.

A parser calls a method for each chunk of a body and each frame of a websocket, and one read of 256 KiB can
have 40,000 of them. The event loop reads all connections that have data before it runs anything else, so 90
connections would block it for seconds if each parsed its own read at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

# Data is parsed in slices of this size, and in one turn until it has had this many parts.
SLICE_BYTES = 4096
MAX_PARTS = 256
# Bytes of large reads that one iteration parses; a byte of a chunk's header takes as long as ten of its body.
_SMALL_BYTES, TURN_BYTES = 16 * 1024, 2**20


class ParseTurns:
    """Lets one of the waiting connections continue in each iteration of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        # Bytes of large reads in this iteration of the event loop.
        self._read_bytes = 0

    def is_spent(self, size: int) -> bool:
        """Count a read; return whether it must wait, because others of this iteration were large enough."""
        if size <= _SMALL_BYTES:
            return False
        if not self._read_bytes:
            asyncio.get_running_loop().call_soon(self._begin)
        is_spent = self._read_bytes >= TURN_BYTES
        self._read_bytes += size
        return is_spent

    def _begin(self) -> None:
        self._read_bytes = 0

    def add(self, continue_parsing: Callable[[], None]) -> None:
        """Call a function in a later iteration of the running event loop."""
        self._waiting.append(continue_parsing)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        continue_parsing = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        continue_parsing()


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ParseTurns] = WeakKeyDictionary()


def shared() -> ParseTurns:
    """Return the turns that all connections of clients share in the running event loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), ParseTurns())
