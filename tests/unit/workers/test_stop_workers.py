"""The stop of idle workers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sixfold.core.workers.scheduler import Scheduler


class SlowWorker:
    """A worker that stops when the other worker stops, too."""

    def __init__(self, both: asyncio.Barrier, error: OSError | None = None) -> None:
        self._both = both
        self._error = error

    async def stop(self) -> None:
        await self._both.wait()
        if self._error is not None:
            raise self._error


async def test_workers_are_stopped_concurrently() -> None:
    both = asyncio.Barrier(2)
    workers = (SlowWorker(both, OSError("gone")), SlowWorker(both), None)
    slots = [SimpleNamespace(worker=worker) for worker in workers]
    async with asyncio.timeout(30):
        assert await Scheduler._stop_workers(cast("Any", None), cast("Any", slots)) == 2
