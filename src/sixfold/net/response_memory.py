"""The memory of large responses of model servers and of recordings for them, limited for all runs together.

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
# A run waits with its recording like in a queue; all concurrent runs may wait.
_UPLOAD_WAIT_SECONDS, _MAX_WAITING = 600.0, 64
_UPLOAD_MESSAGE = "Large files of other runs are being sent: try again when they have ended"


class _Limits:
    """The limits of one event loop."""

    def __init__(self) -> None:
        self.responses = MemoryLimit(MAX_BYTES, _MESSAGE, WAIT_SECONDS)
        self.uploads = MemoryLimit(MAX_BYTES, _UPLOAD_MESSAGE, _UPLOAD_WAIT_SECONDS, _MAX_WAITING)


# A limit waits for events of its loop; a process has one loop, except in tests.
_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, _Limits] = WeakKeyDictionary()


class ResponseMemory:
    """The share of one run in the memory for large responses.

    The responses that one task receives replace each other; those of the run's other tasks count, too.
    """

    def __init__(self, lease: MemoryLease, uploads: MemoryLease) -> None:
        self._lease = lease
        self._uploads = uploads
        self._sizes: dict[int, int] = {}

    async def resize(self, response_bytes: int) -> None:
        """Wait for the memory of a response of this size; raises `TooManyRequests` after a minute."""
        task = id(asyncio.current_task())
        self._sizes[task] = _COPIES * response_bytes if response_bytes > _SMALL_BYTES else 0
        size = sum(self._sizes.values())
        if size != self._lease.size:
            await self._lease.resize(size)

    async def hold(self, upload_bytes: int) -> None:
        """Wait for the memory of a file for the server; raises `TooManyRequests` after ten minutes."""
        await self._uploads.resize(self._uploads.size + upload_bytes)


@contextmanager
def response_memory(server: str) -> Generator[ResponseMemory]:
    """Return the share of a run of a server, which is released at the end of the block."""
    loop = asyncio.get_running_loop()
    limits = _limits.setdefault(loop, _Limits())
    lease, uploads = limits.responses.lease(server), limits.uploads.lease(server)
    try:
        yield ResponseMemory(lease, uploads)
    finally:
        lease.release()
        uploads.release()
