"""The memory of this machine: which workers it holds together, and who goes to make room for another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.pool import WorkerPool, WorkerSlot
from sixfold.core.workers.ports import MeasuredWorker

_LOG = logging.getLogger("sixfold.supervisor")
_GIB = 2**30
_PATIENCE_SECONDS = 30.0  # after which those that fit let one that does not fit go first


class MachineMemory:
    """What all workers of this machine may take of its memory, and what each is thought to take.

    A worker takes what its engine's row says, what `beforehand` knows of it, or the most that one of its
    kind was seen to take, whichever is more. `total_bytes` 0 sets no bound.
    """

    def __init__(self, total_bytes: int = 0, beforehand: Callable[[EngineSpec], int] = lambda _: 0) -> None:
        self.total_bytes = total_bytes
        self.cramped: dict[str, float] = {}  # engines whose next worker waits for memory, and since when
        self._beforehand = beforehand
        self._told: dict[str, int] = {}  # what `beforehand` knew since the last look
        self._seen: dict[str, int] = {}

    def needs(self, engine: EngineSpec) -> int:
        """What a worker of an engine takes; nothing where it waits for another machine."""
        if engine.remote:
            return 0
        if engine.name not in self._told:  # it may walk through folders, and every claim asks
            self._told[engine.name] = self._beforehand(engine)
        return max(int(engine.ram_gb * _GIB), self._told[engine.name], self._seen.get(engine.name, 0))

    def taken(self, pools: Collection[WorkerPool]) -> int:
        """What the workers that there are take together."""
        return sum(self.needs(pool.engine) * len(pool.seats) for pool in pools if pool.seats)

    def weigh(self, pools: Collection[WorkerPool]) -> None:
        """Look at what the workers take, for the next time; what is known beforehand is asked anew."""
        self._told.clear()
        for pool in pools:
            for seat in pool.seats:
                if isinstance(seat.worker, MeasuredWorker):
                    peak = seat.worker.peak_bytes()
                    self._seen[pool.engine.name] = max(peak, self._seen.get(pool.engine.name, 0))

    def holds(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> bool:
        """Whether one more worker fits; alone, each does."""
        free = self.total_bytes - self.taken(pools)
        fits = not self.total_bytes or self.needs(engine) <= free or not any(pool.seats for pool in pools)
        if fits:
            self.cramped.pop(engine.name, None)
        return fits

    def yields(self, engine: EngineSpec) -> bool:
        """Whether an engine starts nothing more because another has waited for memory for too long."""
        before = time.monotonic() - _PATIENCE_SECONDS
        others = (since for name, since in self.cramped.items() if name != engine.name)
        return any(since < before for since in others) and self.needs(engine) > 0

    def still(self, waiting: Collection[str]) -> None:
        """Forget engines for which nothing waits any more."""
        self.cramped = {name: since for name, since in self.cramped.items() if name in waiting}

    def idle(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> list[WorkerSlot]:
        """Take out workers that idle, the longest first, until one more fits; none if they are too few."""
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
