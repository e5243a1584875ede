"""The memory budget of this machine: which workers fit, and idle workers that are stopped to free memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.pool import WorkerPool, WorkerSlot
from sixfold.core.workers.ports import MeasuredWorker

_LOG = logging.getLogger("sixfold.scheduler")
_GIB = 2**30
# After this time, engines whose workers fit must wait for an engine whose worker does not.
PATIENCE_SECONDS = 30.0


class MemoryBudget:
    """The memory that all workers of this machine may use, and an estimate for each worker.

    The estimate is the maximum of the engine's `ram_gb`, the result of `expected_bytes` and the highest peak
    measured for a worker of that engine. if `total_bytes` is 0, memory is not limited.
    """

    def __init__(
        self, total_bytes: int = 0, expected_bytes: Callable[[EngineSpec], int] = lambda _: 0
    ) -> None:
        self.total_bytes = total_bytes
        # Engines whose next worker waits for memory, with the monotonic time at which the wait began.
        self.waiting_since: dict[str, float] = {}
        self._expected_bytes = expected_bytes
        # Results of `expected_bytes` since the last measurement.
        self._expected: dict[str, int] = {}
        self._peaks: dict[str, int] = {}

    def required_bytes(self, engine: EngineSpec) -> int:
        """Return the bytes that a worker of an engine needs; 0 for an engine on another machine."""
        if engine.remote:
            return 0
        # `expected_bytes` may walk through folders, and every claim calls this.
        if engine.name not in self._expected:
            self._expected[engine.name] = self._expected_bytes(engine)
        return max(int(engine.ram_gb * _GIB), self._expected[engine.name], self._peaks.get(engine.name, 0))

    def used_bytes(self, pools: Collection[WorkerPool]) -> int:
        """Return the total bytes that the existing workers need."""
        return sum(self.required_bytes(pool.engine) * len(pool.slots) for pool in pools if pool.slots)

    def measure(self, pools: Collection[WorkerPool]) -> None:
        """Measure the workers' peak memory for later estimates, and call `expected_bytes` again."""
        self._expected.clear()
        for pool in pools:
            for slot in pool.slots:
                if isinstance(slot.worker, MeasuredWorker):
                    peak = slot.worker.peak_bytes()
                    self._peaks[pool.engine.name] = max(peak, self._peaks.get(pool.engine.name, 0))

    def fits(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> bool:
        """Return whether one more worker fits; a single worker always fits."""
        free = self.total_bytes - self.used_bytes(pools)
        fits = (
            not self.total_bytes
            or self.required_bytes(engine) <= free
            or not any(pool.slots for pool in pools)
        )
        if fits:
            self.waiting_since.pop(engine.name, None)
        return fits

    def must_wait(self, engine: EngineSpec) -> bool:
        """Return whether an engine must wait because another engine has waited too long for memory."""
        threshold = time.monotonic() - PATIENCE_SECONDS
        other_times = (since for name, since in self.waiting_since.items() if name != engine.name)
        return any(since < threshold for since in other_times) and self.required_bytes(engine) > 0

    def discard_waits(self, queued: Collection[str]) -> None:
        """Discard the wait times of engines without queued predictions."""
        self.waiting_since = {name: since for name, since in self.waiting_since.items() if name in queued}

    def pop_idle(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> list[WorkerSlot]:
        """Remove idle workers, longest idle first, until one more fits; return the removed slots.

        If removing all idle workers would not free enough memory, none of them is removed.
        """
        idle = [(slot, pool) for pool in pools for slot in pool.slots if slot.worker and not slot.runs]
        removed: list[WorkerSlot] = []
        missing = self.required_bytes(engine) - (self.total_bytes - self.used_bytes(pools))
        for slot, pool in sorted(idle, key=lambda each: each[0].since):
            if missing > 0:
                missing -= self.required_bytes(pool.engine)
                removed.append(slot)
        if missing > 0 and len(idle) < sum(len(pool.slots) for pool in pools):
            self._record_wait(engine, pools)
            return []
        for pool in pools:
            pool.slots = [slot for slot in pool.slots if slot not in removed]
        return removed

    def _record_wait(self, engine: EngineSpec, pools: Collection[WorkerPool]) -> None:
        if engine.name not in self.waiting_since:
            self.waiting_since[engine.name] = time.monotonic()
            sizes = {
                "needs": self.required_bytes(engine),
                "taken": self.used_bytes(pools),
                "total": self.total_bytes,
            }
            _LOG.info("a worker waits for memory", extra={"engine": engine.name, **sizes})
