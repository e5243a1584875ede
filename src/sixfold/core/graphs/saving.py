"""Outcomes of a running graph's nodes, written to its cache in batches."""

from __future__ import annotations

import asyncio
import contextlib

from sixfold.core.graphs.ports import Cache, Stored

_BATCH = 256
_DELAY_SECONDS = 0.1
# A run pauses while outcomes of this many bytes wait to be written.
_MOST_WAITING_BYTES = 64 * 2**20


class OutcomeWriter:
    """Writes outcomes beside the run, in batches of 256 or of what is added within 0.1 seconds."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        self._waiting: dict[str, Stored] = {}
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._flushing = False

    def add(self, key: str, stored: Stored) -> None:
        """Queue an outcome; must be called on the event loop."""
        if self._cache is None:
            return
        self._waiting[key] = stored
        self._bytes += len(stored.packed or b"")
        if len(self._waiting) >= _BATCH:
            self._due.set()
        if self._task is None:
            self._task = asyncio.create_task(self._write(self._cache))

    async def room(self) -> None:
        """Wait while too many bytes are queued."""
        while self._task is not None and self._bytes > _MOST_WAITING_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything queued is written; raises what the cache raised."""
        self._flushing = True
        self._due.set()
        while self._task is not None:
            await asyncio.shield(self._task)
        self._flushing = False

    async def stop(self) -> None:
        """Give up what is not written yet."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self, cache: Cache) -> None:
        while self._waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DELAY_SECONDS):
                    await self._due.wait()
            batch = {key: self._waiting.pop(key) for key in list(self._waiting)[:_BATCH]}
            await cache.keep(batch)
            self._bytes -= sum(len(stored.packed or b"") for stored in batch.values())
            if len(self._waiting) < _BATCH and not self._flushing:
                self._due.clear()
        self._task = None
