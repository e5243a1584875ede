"""Background writing of node outputs to a graph's cache, in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from functools import partial

from sixfold.core.concurrency import background
from sixfold.core.workflows.ports import CachedOutput, NodeCachePort
from sixfold.errors import StoreFailed

_LOG = logging.getLogger(__name__)
_BATCH = 256
_DELAY_SECONDS = 0.1
_RETRY_SECONDS = 1.0
# A flush drops the queue after this many consecutive failures, because it is only a cache.
_FLUSH_ATTEMPTS = 3
# A run pauses while more than this many bytes wait to be written.
_MAX_WAITING_BYTES = 64 * 2**20


class CacheWriter:
    """Writes node outputs in the background, in batches of 256 or of the outputs added within 0.1 seconds."""

    def __init__(self, cache: NodeCachePort | None) -> None:
        self._cache = cache
        self._waiting: dict[str, CachedOutput] = {}
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._flushing = asyncio.Event()

    def add(self, key: str, output: CachedOutput) -> None:
        """Queue an output; must be called on the event loop."""
        if self._cache is None:
            return
        self._waiting[key] = output
        self._bytes += len(output.packed or b"")
        if len(self._waiting) >= _BATCH:
            self._due.set()
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(self._cache))

    async def wait_for_capacity(self) -> None:
        """Wait while too many bytes are queued."""
        while self._task is not None and self._bytes > _MAX_WAITING_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until all queued outputs are written, or dropped because the cache cannot be written."""
        self._flushing.set()
        self._due.set()
        try:
            while self._task is not None:
                await asyncio.shield(self._task)
        finally:
            self._flushing.clear()

    async def stop(self) -> None:
        """Discard all outputs that are not written yet."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_all(self, cache: NodeCachePort) -> None:
        try:
            # An unexpected error of the cache must not fail the run.
            if not await background.attempt("cache of node outputs", partial(self._write, cache)):
                self._waiting.clear()
        finally:
            self._bytes = 0
            self._task = None

    async def _write(self, cache: NodeCachePort) -> None:
        failures = 0
        while self._waiting:
            await _wait(self._due, _DELAY_SECONDS)
            batch = {key: self._waiting.pop(key) for key in list(self._waiting)[:_BATCH]}
            try:
                await cache.keep(batch)
            except (OSError, StoreFailed) as error:
                self._waiting = batch | self._waiting
                failures += 1
                await self._failed(failures, error)
                continue
            failures = 0
            self._bytes -= _size(batch)
            if len(self._waiting) < _BATCH and not self._flushing.is_set():
                self._due.clear()

    async def _failed(self, failures: int, error: Exception) -> None:
        """Wait before the next attempt; during a flush, drop the queue after too many failures."""
        if failures == 1:
            _LOG.warning("node outputs could not be cached; retrying: %s", error)
        if not self._flushing.is_set():
            await _wait(self._flushing, _RETRY_SECONDS)
        elif failures < _FLUSH_ATTEMPTS:
            await asyncio.sleep(_DELAY_SECONDS)
        else:
            _LOG.error("%d node outputs were not cached: %s", len(self._waiting), error)
            self._waiting = {}


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _size(entries: Mapping[str, CachedOutput]) -> int:
    return sum(len(stored.packed or b"") for stored in entries.values())
