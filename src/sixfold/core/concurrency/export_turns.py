"""Turns of exports: the batches of all exports are read and compressed one after another.

A batch takes up to tens of megabytes, and its export may wait minutes for a slow client before the next one.
A batch is therefore in memory only within its turn, and not while its export waits. Such a turn lasts while a
thread writes the batch, unlike those of `loop_turns`, which last one iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ExportTurns:
    """Lets one of the exports of the running event loop have a batch in memory, in the order of arrival."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def next(self) -> AsyncGenerator[None]:
        """Wait for a turn: read a batch, write it in a thread, and drop it within the block."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A lock belongs to the event loop in which tasks have waited for it.
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            yield


TURNS = ExportTurns()
