"""Pools: the workers of one engine, each with a slot for up to `max_tasks` runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import msgspec

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.ports import Worker

_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.1, 30.0
# Maximum number of runs that wait for one slot if each takes less than `BRISK_SECONDS`.
_MAX_AHEAD = 4
BRISK_SECONDS = 0.05
# Much longer than these runs take on an idle machine, because clients see a run that is put back change from
# running to queued.
TURN_SECONDS = 3.0


class WorkerSlot(msgspec.Struct, eq=False):
    """One worker, from before its start to after its end, and the number of runs assigned to it.

    `idle_seconds` is the idle limit set by the last run; None means the engine's limit. `hardware` is the
    hardware of the worker if the server places workers by hardware, otherwise empty.
    """

    starting: asyncio.Task[Worker] | None = None
    runs: int = 0
    # The monotonic time at which the worker became idle or began to start.
    since: float = 0.0
    idle_seconds: float | None = None
    hardware: str = ""

    @property
    def worker(self) -> Worker | None:
        """The worker, or None if it has not started."""
        task = self.starting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def usable(self) -> bool:
        """Whether the slot can take a run, now or once its worker has started."""
        if self.starting is None or not self.starting.done():
            return True
        return self.worker is not None and self.worker.alive


class SlotWaiter(msgspec.Struct, eq=False):
    """A run that waits for the first free worker on its hardware."""

    hardware: str
    slot: asyncio.Future[WorkerSlot]


class WorkerPool(msgspec.Struct):
    """The workers of one engine, and the backoff after failed starts.

    `brisk` is True while its runs finish faster than the commits that claim them.
    """

    engine: EngineSpec
    slots: list[WorkerSlot] = []
    waiters: list[SlotWaiter] = []
    failures: int = 0
    resume_at: float = 0.0
    brisk: bool = False

    @property
    def busy(self) -> int:
        """The number of workers that are assigned a run."""
        return sum(1 for slot in self.slots if slot.runs)

    @property
    def idle(self) -> int:
        """The number of workers without a run."""
        return len(self.slots) - self.busy

    def slots_in_use(self) -> int:
        """The number of this server's slots in use; 0 for an engine that runs on another machine."""
        return 0 if self.engine.remote else self.busy

    def open_slots(self, *, busy: bool) -> list[WorkerSlot]:
        """Return each slot once for each run that it can still take.

        Only the slots of busy workers are returned if `busy` is set, otherwise those of idle workers.
        """
        return [
            slot
            for slot in self.slots
            if slot.usable and bool(slot.runs) == busy
            for _ in range(self.engine.max_tasks - slot.runs)
        ]

    def can_grow(self, slot_count: int) -> bool:
        """Return whether one more worker is allowed on a server with `slot_count` slots."""
        return sum(1 for slot in self.slots if slot.usable) < (self.engine.concurrency or slot_count)

    def hardware_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(slot.hardware for slot in self.slots))

    async def wait_for_start(self, slot: WorkerSlot) -> WorkerSlot:
        """Wait for the first ready slot on the same hardware: `slot` once started, or another slot.

        Raises `WorkerStartFailed`.
        """
        assert slot.starting is not None  # noqa: S101 - set when the run was claimed
        waiter = self.add_waiter(slot.hardware)
        try:
            await asyncio.wait({slot.starting, waiter.slot}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiters.remove(waiter)
        if waiter.slot.done():
            slot.runs -= 1
            return waiter.slot.result()
        await asyncio.shield(slot.starting)
        return slot

    def record_run(self, seconds: float) -> None:
        """Record the seconds that a run occupied its worker."""
        self.brisk = seconds < BRISK_SECONDS

    def max_claims_ahead(self, slot_count: int) -> int:
        """Return how many more runs may be claimed before a worker is free for them."""
        return _MAX_AHEAD * slot_count - len(self.waiters) if self.brisk and self.engine.max_tasks == 1 else 0

    def add_waiter(self, hardware: str = "") -> SlotWaiter:
        """Append a waiter for the next free worker on `hardware`."""
        waiter = SlotWaiter(hardware, asyncio.get_running_loop().create_future())
        self.waiters.append(waiter)
        return waiter

    async def wait_for_turn(self, waiter: SlotWaiter) -> WorkerSlot | None:
        """Wait for the slot of a run that was claimed early; return None on timeout."""
        try:
            await asyncio.wait({waiter.slot}, timeout=TURN_SECONDS)
        finally:
            self.waiters.remove(waiter)
        if waiter.slot.done():
            return waiter.slot.result()
        self.brisk = False
        return None

    def assign(self, slot: WorkerSlot) -> None:
        """Assign a free slot to the longest waiting run on its hardware."""
        if slot.worker is None or not slot.worker.alive or slot.runs:
            return
        for waiter in self.waiters:
            if waiter.hardware == slot.hardware and not waiter.slot.done():
                slot.runs += 1
                waiter.slot.set_result(slot)
                return

    def has_slow_start(self, seconds: float) -> bool:
        """Return whether a run has waited longer than `seconds` for its worker to start."""
        started_before = time.monotonic() - seconds
        return any(slot.runs and slot.worker is None and slot.since < started_before for slot in self.slots)

    def record_start_failure(self) -> float:
        """Record a failed start and return the backoff in seconds."""
        self.failures += 1
        delay = min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2 ** (self.failures - 1))
        self.resume_at = time.monotonic() + delay
        return delay

    def pop_idle(self, idle_seconds: float | None) -> Iterable[WorkerSlot]:
        """Remove and return the slots whose worker has ended or was idle for too long.

        `idle_seconds` overrides the limits of the slots and the engine.
        """
        now = time.monotonic()
        removed = [
            slot
            for slot in self.slots
            if not slot.runs
            and (slot.starting is None or slot.starting.done())
            and (not slot.usable or now - slot.since >= self._idle_limit(slot, idle_seconds))
        ]
        if removed:
            self.slots = [slot for slot in self.slots if slot not in removed]
        return removed

    def _idle_limit(self, slot: WorkerSlot, idle_seconds: float | None) -> float:
        for seconds in (idle_seconds, slot.idle_seconds):
            if seconds is not None:
                return seconds
        return self.engine.idle_seconds
