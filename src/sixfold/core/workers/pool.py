"""Pools: the workers of one engine, each a slot with one lane per task that it can run at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.ports import Worker

_BACKOFF_FIRST, _BACKOFF_LAST = 0.1, 30.0
# Runs that may wait for one slot if each takes less than `_BRISK_SECONDS`.
_AHEAD = 4
_BRISK_SECONDS = 0.05
_TURN_SECONDS = _AHEAD * _BRISK_SECONDS


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """One worker, from before its start to after its end, and the number of runs assigned to it.

    `idle_seconds` is the idle limit set by its last run; None means the engine's limit. `hardware` is what
    the worker was started on if the server places workers by hardware, else empty.
    """

    starting: asyncio.Task[Worker] | None = None
    runs: int = 0
    # The monotonic time at which it became idle or began to start.
    since: float = 0.0
    idle_seconds: float | None = None
    hardware: str = ""

    @property
    def worker(self) -> Worker | None:
        """Return the worker if it has started."""
        task = self.starting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def usable(self) -> bool:
        """Return whether it can take a run, now or once it has started."""
        if self.starting is None or not self.starting.done():
            return True
        return self.worker is not None and self.worker.alive


@dataclass(slots=True, eq=False)
class SlotWaiter:
    """A run that waits for the first free worker on its hardware."""

    hardware: str
    found: asyncio.Future[WorkerSlot]


@dataclass(slots=True)
class WorkerPool:
    """The workers of one engine, and the backoff after workers that failed to start.

    `brisk` is True while its runs finish faster than the commits that claim them.
    """

    engine: EngineSpec
    seats: list[WorkerSlot] = field(default_factory=list[WorkerSlot])
    waits: list[SlotWaiter] = field(default_factory=list[SlotWaiter])
    failures: int = 0
    resume_at: float = 0.0
    brisk: bool = False

    @property
    def busy(self) -> int:
        """Return the number of workers that hold a run."""
        return sum(1 for seat in self.seats if seat.runs)

    @property
    def idle(self) -> int:
        """Return the number of workers without a run."""
        return len(self.seats) - self.busy

    def slots(self) -> int:
        """Return the number of this server's slots in use; 0 for an engine that runs on another machine."""
        return 0 if self.engine.remote else self.busy

    def open_lanes(self, *, taken: bool) -> list[WorkerSlot]:
        """Return one entry per open lane, either of busy workers (`taken`) or of idle ones."""
        return [
            seat
            for seat in self.seats
            if seat.usable and bool(seat.runs) == taken
            for _ in range(self.engine.lanes - seat.runs)
        ]

    def may_grow(self, slots: int) -> bool:
        """Return whether one more worker is allowed on a server with `slots` slots."""
        return sum(1 for seat in self.seats if seat.usable) < (self.engine.concurrency or slots)

    def kinds(self) -> tuple[str, ...]:
        """Return the hardware names of its workers."""
        return tuple(dict.fromkeys(seat.hardware for seat in self.seats))

    async def seated(self, seat: WorkerSlot) -> WorkerSlot:
        """Wait for the first ready slot on the same hardware: `seat` once started, or another one.

        Raises `WorkerStartFailed`.
        """
        assert seat.starting is not None  # noqa: S101 - set when the run was claimed
        wait = self.line_up(seat.hardware)
        try:
            await asyncio.wait({seat.starting, wait.found}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waits.remove(wait)
        if wait.found.done():
            seat.runs -= 1
            return wait.found.result()
        await asyncio.shield(seat.starting)
        return seat

    def took(self, seconds: float) -> None:
        """Record how long a run occupied its worker."""
        self.brisk = seconds < _BRISK_SECONDS

    def ahead(self, slots: int) -> int:
        """Return how many more runs may be claimed before a worker is free for them."""
        return _AHEAD * slots - len(self.waits) if self.brisk and self.engine.lanes == 1 else 0

    def line_up(self, hardware: str = "") -> SlotWaiter:
        """Append a waiter for the next free worker on `hardware`."""
        wait = SlotWaiter(hardware, asyncio.get_running_loop().create_future())
        self.waits.append(wait)
        return wait

    async def turn(self, wait: SlotWaiter) -> WorkerSlot | None:
        """Wait for the slot of a run that was claimed ahead; return None on timeout."""
        try:
            await asyncio.wait({wait.found}, timeout=_TURN_SECONDS)
        finally:
            self.waits.remove(wait)
        if wait.found.done():
            return wait.found.result()
        self.brisk = False
        return None

    def offer(self, seat: WorkerSlot) -> None:
        """Assign a free slot to the longest waiting run on its hardware."""
        if seat.worker is None or not seat.worker.alive or seat.runs:
            return
        for wait in self.waits:
            if wait.hardware == seat.hardware and not wait.found.done():
                seat.runs += 1
                wait.found.set_result(seat)
                return

    def stuck(self, seconds: float) -> bool:
        """Return whether a run has waited longer than `seconds` for its worker to start."""
        before = time.monotonic() - seconds
        return any(seat.runs and seat.worker is None and seat.since < before for seat in self.seats)

    def failed(self) -> float:
        """Record a failed start and return the backoff in seconds."""
        self.failures += 1
        delay = min(_BACKOFF_LAST, _BACKOFF_FIRST * 2 ** (self.failures - 1))
        self.resume_at = time.monotonic() + delay
        return delay

    def tired(self, idle_seconds: float | None) -> Iterable[WorkerSlot]:
        """Remove and return the slots whose worker ended or was idle for too long.

        `idle_seconds` overrides the limits of the slots and the engine.
        """
        moment = time.monotonic()
        gone = [
            seat
            for seat in self.seats
            if not seat.runs
            and (seat.starting is None or seat.starting.done())
            and (not seat.usable or moment - seat.since >= self._may_idle(seat, idle_seconds))
        ]
        self.seats = [seat for seat in self.seats if seat not in gone]
        return gone

    def _may_idle(self, seat: WorkerSlot, idle_seconds: float | None) -> float:
        for wanted in (idle_seconds, seat.idle_seconds):
            if wanted is not None:
                return wanted
        return self.engine.idle_seconds
