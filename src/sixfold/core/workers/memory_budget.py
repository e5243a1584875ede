"""The memory budget of this machine: which workers fit, and which idle ones are stopped for others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.pool import WorkerPool, WorkerSlot
from sixfold.core.workers.ports import MeasuredWorker

_LOG = logging.getLogger("sixfold.supervisor")
_GIB = 2**30
# After this time, engines whose workers fit must wait for one whose worker does not.
_PATIENCE_SECONDS = 30.0


class MachineMemory:
    """The memory that all workers of this machine may use, and an estimate for each.

    The estimate is the maximum of the engine's `ram_gb`, the result of `beforehand` and the highest peak
    measured for a worker of that engine. `total_bytes` 0 means no limit.
    """

    def __init__(self, total_bytes: int = 0, beforehand: Callable[[EngineSpec], int] = lambda _: 0) -> None:
        self.total_bytes = total_bytes
        # Engines whose next worker waits for memory, by the monotonic time since when.
        self.cramped: dict[str, float] = {}
        self._beforehand = beforehand
        # Results of `beforehand` since the last measurement.
        self._told: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def needs(self, engine: EngineSpec) -> int:
        """Return the bytes that a worker of an engine needs; 0 for an engine that runs on another machine."""
        if engine.remote:
            return 0
        # `beforehand` may walk through folders, and every claim calls this.
        if engine.name not in self._told:
            self._told[engine.name] = self._beforehand(engine)
        return max(int(engine.ram_gb * _GIB), self._told[engine.name], self._seen.get(engine.name, 0))

    def taken(self, pools: Collection[WorkerPool]) -> int:
        """Return the bytes that the existing workers need together."""
        return sum(self.needs(pool.engine) * len(pool.seats) for pool in pools if pool.seats)

    def weigh(self, pools: Collection[WorkerPool]) -> None:
        """Measure the workers' peak memory for later estimates and discard the results of `beforehand`."""
        self._told.clear()
        for pool in pools:
            for seat in pool.seats:
                if isinstance(seat.worker, MeasuredWorker):
                    peak = seat.worker.peak_bytes()
                    self._seen[pool.engine.name] = max(peak, self._seen.get(pool.engine.name, 0))

    def holds(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> bool:
        """Return whether one more worker fits; a single worker always does."""
        free = self.total_bytes - self.taken(pools)
        fits = not self.total_bytes or self.needs(engine) <= free or not any(pool.seats for pool in pools)
        if fits:
            self.cramped.pop(engine.name, None)
        return fits

    def yields(self, engine: EngineSpec) -> bool:
        """Return whether an engine must wait because another one has waited too long for memory."""
        before = time.monotonic() - _PATIENCE_SECONDS
        others = (since for name, since in self.cramped.items() if name != engine.name)
        return any(since < before for since in others) and self.needs(engine) > 0

    def still(self, waiting: Collection[str]) -> None:
        """Discard the wait times of engines without queued predictions."""
        self.cramped = {name: since for name, since in self.cramped.items() if name in waiting}

    def idle(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> list[WorkerSlot]:
        """Remove idle workers, longest idle first, until one more fits; return the removed slots.

        If removing all idle workers would not free enough, none is removed.
        """
        resting = [(seat, pool) for pool in pools for seat in pool.seats if seat.worker and not seat.runs]
        gone: list[WorkerSlot] = []
        lacking = self.needs(engine) - (self.total_bytes - self.taken(pools))
        for seat, pool in sorted(resting, key=lambda each: each[0].since):
            if lacking > 0:
                lacking -= self.needs(pool.engine)
                gone.append(seat)
        if lacking > 0 and len(resting) < sum(len(pool.seats) for pool in pools):
            self._wait(engine, pools)
            return []
        for pool in pools:
            pool.seats = [seat for seat in pool.seats if seat not in gone]
        return gone

    def _wait(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> None:
        if engine.name not in self.cramped:
            self.cramped[engine.name] = time.monotonic()
            sizes = {"needs": self.needs(engine), "taken": self.taken(pools), "total": self.total_bytes}
            _LOG.info("a worker waits for memory", extra={"engine": engine.name, **sizes})
