"""Reads shared by concurrent requests: a read in progress also answers requests that arrive meanwhile.

Otherwise all concurrent requests would repeat the read when an entry of a short-lived cache expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Reads in progress by key.

    The read itself continues if a request that waits for it is canceled.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return or raise the result of `read`, or of a read of `key` that is in progress."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.ensure_future(_run(read))
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    def _end(self, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            # Marks the exception as retrieved; the requests that waited have raised it.
            task.exception()


async def _run(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
