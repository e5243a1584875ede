"""The memory of large responses of model servers, limited for all runs of a process together.

A server that a user chooses, such as a Gradio space, can send tens of megabytes to each of many runs at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit

MAX_BYTES = 192 * 2**20
# Smaller responses are not counted.
_SMALL_BYTES = 2**20
# The bytes of a response, a copy of one line of them, and the values that are decoded from it.
_COPIES = 3
WAIT_SECONDS = 60.0
_MESSAGE = "Large results of other runs are being received: try again when they have ended"

# A limit waits for events of its loop; a process has one loop, except in tests.
_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryLimit] = WeakKeyDictionary()


class ResponseMemory:
    """The share of one run in the memory for large responses."""

    def __init__(self, lease: MemoryLease) -> None:
        self._lease = lease

    async def resize(self, response_bytes: int) -> None:
        """Wait for the memory of a response of this size; raises `TooManyRequests` after a minute."""
        size = _COPIES * response_bytes if response_bytes > _SMALL_BYTES else 0
        if size != self._lease.size:
            await self._lease.resize(size)


@contextmanager
def response_memory(server: str) -> Generator[ResponseMemory]:
    """Return the share of a run of a server, which is released at the end of the block."""
    loop = asyncio.get_running_loop()
    if loop not in _limits:
        _limits[loop] = MemoryLimit(MAX_BYTES, _MESSAGE, WAIT_SECONDS)
    lease = _limits[loop].lease(server)
    try:
        yield ResponseMemory(lease)
    finally:
        lease.release()
