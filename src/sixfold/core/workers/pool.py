"""Pools: the workers of one engine, each a seat with as many lanes as it takes tasks at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.ports import Worker

_BACKOFF_FIRST, _BACKOFF_LAST = 0.1, 30.0
_AHEAD = 4  # runs that may wait for one slot where each holds it for less than BRISK_SECONDS
_BRISK_SECONDS = 0.05
_TURN_SECONDS = _AHEAD * _BRISK_SECONDS


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """One worker, from before its start to after its end, and how many runs it holds.

    `idle_seconds` is how long it may idle by what it ran last; None leaves that to its engine. `hardware` is
    what it was started on, where that matters.
    """

    starting: asyncio.Task[Worker] | None = None
    runs: int = 0
    since: float = 0.0  # when it became idle, monotonic seconds
    idle_seconds: float | None = None
    hardware: str = ""

    @property
    def worker(self) -> Worker | None:
        """The worker once it has started."""
        task = self.starting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def usable(self) -> bool:
        """Whether it can take a run, now or when it has started."""
        if self.starting is None or not self.starting.done():
            return True
        return self.worker is not None and self.worker.alive


@dataclass(slots=True, eq=False)
class SlotWaiter:
    """A run whose worker is not there yet, and that takes any on its hardware that is free before."""

    hardware: str
    found: asyncio.Future[WorkerSlot]


@dataclass(slots=True)
class WorkerPool:
    """The seats of one engine, and how long it has to wait after workers that did not start.

    It is `brisk` while its runs are over sooner than the commits that claim them.
    """

    engine: EngineSpec
    seats: list[WorkerSlot] = field(default_factory=list[WorkerSlot])
    waits: list[SlotWaiter] = field(default_factory=list[SlotWaiter])
    failures: int = 0
    resume_at: float = 0.0
    brisk: bool = False

    @property
    def busy(self) -> int:
        """Workers that hold a run."""
        return sum(1 for seat in self.seats if seat.runs)

    @property
    def idle(self) -> int:
        """Workers that hold none."""
        return len(self.seats) - self.busy

    def slots(self) -> int:
        """Worker slots that the pool fills; an engine on another machine fills none of this one."""
        return 0 if self.engine.remote else self.busy

    def open_lanes(self, *, taken: bool) -> list[WorkerSlot]:
        """A seat for every lane that is open, of seats that hold runs (`taken`) or of idle ones."""
        return [
            seat
            for seat in self.seats
            if seat.usable and bool(seat.runs) == taken
            for _ in range(self.engine.lanes - seat.runs)
        ]

    def may_grow(self, slots: int) -> bool:
        """Whether one more worker is allowed, with so many slots in the server."""
        return sum(1 for seat in self.seats if seat.usable) < (self.engine.concurrency or slots)

    def kinds(self) -> tuple[str, ...]:
        """The hardware that its workers stand on."""
        return tuple(dict.fromkeys(seat.hardware for seat in self.seats))

    async def seated(self, seat: WorkerSlot) -> WorkerSlot:
        """The first seat on the same hardware that a run may have: this one once it has started, or another.

        Raises `WorkerStartFailed`.
        """
        assert seat.starting is not None  # noqa: S101 - whoever claimed for it has seen to that
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
        """Note for how long a run held its worker."""
        self.brisk = seconds < _BRISK_SECONDS

    def ahead(self, slots: int) -> int:
        """How many runs more may be claimed before a worker is free for them."""
        return _AHEAD * slots - len(self.waits) if self.brisk and self.engine.lanes == 1 else 0

    def line_up(self, hardware: str = "") -> SlotWaiter:
        """The end of the line of runs that take whatever worker is free next."""
        wait = SlotWaiter(hardware, asyncio.get_running_loop().create_future())
        self.waits.append(wait)
        return wait

    async def turn(self, wait: SlotWaiter) -> WorkerSlot | None:
        """The seat that a run which was claimed ahead has come to; None where that takes too long."""
        try:
            await asyncio.wait({wait.found}, timeout=_TURN_SECONDS)
        finally:
            self.waits.remove(wait)
        if wait.found.done():
            return wait.found.result()
        self.brisk = False
        return None

    def offer(self, seat: WorkerSlot) -> None:
        """A seat has become free: whoever waits longest for such a one has it."""
        if seat.worker is None or not seat.worker.alive or seat.runs:
            return
        for wait in self.waits:
            if wait.hardware == seat.hardware and not wait.found.done():
                seat.runs += 1
                wait.found.set_result(seat)
                return

    def stuck(self, seconds: float) -> bool:
        """Whether a run has waited for so long for its worker to start."""
        before = time.monotonic() - seconds
        return any(seat.runs and seat.worker is None and seat.since < before for seat in self.seats)

    def failed(self) -> float:
        """Note that a worker did not start; gives the seconds to wait before the next."""
        self.failures += 1
        delay = min(_BACKOFF_LAST, _BACKOFF_FIRST * 2 ** (self.failures - 1))
        self.resume_at = time.monotonic() + delay
        return delay

    def tired(self, idle_seconds: float | None) -> Iterable[WorkerSlot]:
        """Take out the seats that have been idle for too long (`idle_seconds` where given), or have ended."""
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
