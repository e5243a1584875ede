"""The supervisor: claims what waits, keeps workers, runs, stores, captures; and gives up nothing.

One dispatcher hands free slots to the engines that have work, in turn. Every claimed prediction has a
`Run` (see `runs`) that takes it to exactly one end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.core import ids
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database, Query, Transaction, now
from sixfold.core.work import predictions
from sixfold.core.work.catalog import EngineSpec
from sixfold.core.work.events import Bus, Moved
from sixfold.core.work.pools import Pool, Seat
from sixfold.core.work.ports import Driver, Worker, WorkerSpec, WorkerStartFailed
from sixfold.core.work.predictions import Lease
from sixfold.core.work.records import Prediction
from sixfold.core.work.runs import Finisher, Run, WorkerCrashed

_LOG = logging.getLogger("sixfold.supervisor")
_SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How many runs at once, for how long, and how often a lost one is tried again.

    A worker idles for `idle_seconds` where that is given, else as long as `idle_of` says of the model that it
    ran last, else as its engine's row says.
    """

    slots: int
    run_limit_seconds: float
    lease_seconds: float
    max_attempts: int
    queue_ttl_seconds: float
    idle_seconds: float | None
    memory_bytes: int
    scratch: Path
    idle_of: Callable[[str], float | None] = lambda _model: None


def worker_spec(engine: EngineSpec, policy: Policy) -> WorkerSpec:
    """The worker that an engine runs in."""
    return WorkerSpec(
        engine=engine.name,
        factory=engine.factory,
        memory_bytes=policy.memory_bytes if engine.memory_bytes is None else engine.memory_bytes,
        scratch=policy.scratch,
        cpu_seconds=math.ceil(policy.run_limit_seconds) if engine.lanes == 1 else 0,
        options=engine.options,
        lanes=engine.lanes,
        remote=engine.remote,
        start_seconds=engine.start_seconds,
        cancel_seconds=engine.cancel_seconds,
    )


class Supervisor:
    """Runs every prediction that this server accepts. One per server; see `start` and `stop`."""

    def __init__(
        self,
        database: Database,
        driver: Driver,
        engines: Mapping[str, EngineSpec],
        finisher: Finisher,
        bus: Bus,
        policy: Policy,
    ) -> None:
        self._database = database
        self._driver = driver
        self._finisher = finisher
        self._bus = bus
        self._policy = policy
        self._pools = {name: Pool(engine) for name, engine in engines.items()}
        self._hungry: deque[str] = deque()
        self._wake = asyncio.Event()
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self.boot = ids.new("boot")
        self._lease = Lease(self.boot, int(policy.lease_seconds * SECOND_US))

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take back what a server before this one left, and begin to work."""
        await asyncio.to_thread(shutil.rmtree, self._policy.scratch, ignore_errors=True)
        self._policy.scratch.mkdir(parents=True, exist_ok=True)
        while await self._announce(predictions.recover(self.boot, self._policy.max_attempts)):
            pass
        await self._look_for_work()
        self._loops = [
            asyncio.create_task(self._dispatch_forever(), name="dispatch"),
            asyncio.create_task(self._every(self._policy.lease_seconds / 3, self._beat), name="heartbeat"),
            asyncio.create_task(self._every(_SWEEP_SECONDS, self._sweep), name="sweep"),
        ]

    async def drain(self, seconds: float) -> None:
        """Claim nothing more and let what runs finish, for at most `seconds`."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def stop(self) -> None:
        """End every worker; what still runs goes back into the queue for the next server."""
        self._stopping = True
        starting = [seat.starting for pool in self._pools.values() for seat in pool.seats if seat.starting]
        ending: list[asyncio.Task[Any]] = [*self._loops, *self._tasks, *starting]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._driver.close()

    def admit(self, engines: Sequence[EngineSpec]) -> None:
        """Know engines that came later than the catalogue."""
        for engine in engines:
            self._pools.setdefault(engine.name, Pool(engine))
            self.feed(engine.name)

    # -- what the pipeline tells -----------------------------------------------------------------

    def accepted(self, prediction: Prediction) -> None:
        """There is work for an engine."""
        self.feed(prediction.engine)

    def cancel(self, prediction: Prediction) -> None:
        """Somebody no longer wants a run."""
        self.cancel_run(prediction.id)

    def cancel_run(self, prediction_id: str) -> None:
        """The same by id; nothing when it does not run here."""
        run = self._runs.get(prediction_id)
        if run is not None:
            run.cancel()

    def running(self) -> tuple[str, ...]:
        """Every prediction that runs here."""
        return tuple(self._runs)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Workers of each engine, for the metrics and the operator's page."""
        return {name: {"busy": pool.busy, "idle": pool.idle} for name, pool in self._pools.items()}

    # -- dispatching -----------------------------------------------------------------------------

    def feed(self, engine: str) -> None:
        """There may be work for an engine."""
        if engine in self._pools and engine not in self._hungry:
            self._hungry.append(engine)
        self._wake.set()

    async def _dispatch_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._dispatch()
            except errors.StoreFailed:
                _LOG.exception("cannot claim work; trying again")
                await asyncio.sleep(_SWEEP_SECONDS)
                self._wake.set()

    async def _dispatch(self) -> None:
        for _ in range(len(self._hungry)):
            if self._stopping:
                return
            name = self._hungry.popleft()
            pool = self._pools[name]
            if time.monotonic() < pool.resume_at:
                continue  # fed again by the timer that `Pool.failed` sets
            if not self._free_slots(pool) and not pool.open_lanes(taken=True):
                self._hungry.append(name)  # keeps its turn until some run ends
            elif await self._claim(pool):
                self.feed(name)  # else what comes, or the end of one of its runs, feeds it again

    def _free_slots(self, pool: Pool) -> int:
        if pool.engine.remote:
            return (pool.engine.concurrency or self._policy.slots) - pool.busy
        return self._policy.slots - sum(each.slots() for each in self._pools.values())

    def _places(self, pool: Pool) -> list[Seat]:
        """Where runs of this engine could go now: open lanes, then idle workers, then one worker more."""
        taken = pool.open_lanes(taken=True)
        free = self._free_slots(pool)
        if taken or free <= 0:
            return taken
        ready = pool.open_lanes(taken=False)[: free * pool.engine.lanes]
        if ready or not pool.may_grow(self._policy.slots):
            return ready
        return [Seat()] * pool.engine.lanes

    async def _claim(self, pool: Pool) -> bool:
        """Claim for the open places; False when there is none, or nothing waits."""
        places = self._places(pool)
        if not places:
            return False
        pool.seats.extend(seat for seat in places[:1] if seat not in pool.seats)
        for seat in places:  # before the claim, so that nobody else counts on them
            seat.runs += 1
        warm = all(seat.worker is not None for seat in places)
        claimed: tuple[Prediction, ...] = ()
        try:
            claimed = await self._database.write(
                predictions.claim(pool.engine.name, self._lease, len(places), warm=warm), durable=False
            )
        finally:
            for seat in places[len(claimed) :]:
                seat.runs -= 1
            pool.seats = [seat for seat in pool.seats if seat.runs or seat.starting is not None]
        for prediction, seat in zip(claimed, places, strict=False):
            seat.starting = seat.starting or asyncio.create_task(self._start(pool))
            seat.idle_seconds = self._policy.idle_of(prediction.model)
            self._bus.publish(prediction.id, Moved(prediction))
            run = Run(prediction, self._finisher, self._bus, self._policy.run_limit_seconds)
            self._runs[prediction.id] = run  # here, so that a cancel in the same commit finds it
            self._spawn(self._serve(pool, run, seat))
        return bool(claimed)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, pool: Pool, run: Run, seat: Seat) -> None:
        try:
            self._finisher.failpoints.hit("claim.after")
            worker = await self._worker(pool, run, seat)
            if worker is not None:
                await run.run(worker)
                pool.failures = 0
        except WorkerCrashed as crash:  # its prediction is tried again a few times; others need not wait
            _LOG.warning("a worker was lost", extra={"engine": pool.engine.name, "reason": str(crash)})
        except asyncio.CancelledError:
            if seat.worker is not None:
                await seat.worker.kill()
            await run.abandon()
            raise
        except Exception:  # noqa: BLE001 - the outermost loop of a run: a bug must not strand its prediction
            _LOG.exception("a run ended in a way that it should not")
            await run.give_back("the server erred")
        finally:
            del self._runs[run.id]
            self._leave(pool, seat)

    async def _worker(self, pool: Pool, run: Run, seat: Seat) -> Worker | None:
        """The seat's worker; None when it could not start (the run is ended then)."""
        if seat.worker is not None and seat.worker.alive:
            return seat.worker
        began = time.perf_counter_ns()
        assert seat.starting is not None  # noqa: S101 - `_claim` set it
        try:
            worker = await asyncio.shield(seat.starting)
        except WorkerStartFailed as failure:
            await run.give_back(f"the worker did not start: {failure}")
            return None
        run.cold_start_us = (time.perf_counter_ns() - began) // 1000
        return worker

    def _leave(self, pool: Pool, seat: Seat) -> None:
        seat.runs -= 1
        seat.since = time.monotonic()
        if not seat.usable and seat in pool.seats:
            pool.seats.remove(seat)
        self.feed(pool.engine.name)

    async def _start(self, pool: Pool) -> Worker:
        engine = pool.engine
        try:
            return await self._driver.start(worker_spec(engine, self._policy))
        except WorkerStartFailed as failure:
            _LOG.warning("a worker did not start", extra={"engine": engine.name, "reason": str(failure)})
            asyncio.get_running_loop().call_later(pool.failed(), self.feed, engine.name)
            raise

    # -- keeping house ---------------------------------------------------------------------------

    async def _every(self, seconds: float, chore: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await chore()
            except errors.StoreFailed:
                _LOG.exception("housekeeping failed; trying again")

    async def _beat(self) -> None:
        if self._runs:
            await self._database.write(predictions.heartbeat(self._lease), durable=False)

    async def _sweep(self) -> None:
        await self._announce(predictions.lapse(self._policy.max_attempts), if_any=_LAPSED)
        await self._expire()
        await self._look_for_work()
        await self._stop_idle()

    async def _expire(self) -> None:
        before_us = int(self._policy.queue_ttl_seconds * SECOND_US)
        stale = await self._database.read(_count_stale(before_us))
        if stale:
            await self._announce(_expire_older(before_us))

    async def _announce(
        self, transaction: Transaction[tuple[Prediction, ...]], if_any: Query | None = None
    ) -> int:
        if if_any is not None and not await self._database.read(_rows(if_any)):
            transaction.close()
            return 0
        moved = await self._database.write(transaction)
        for prediction in moved:
            self._bus.publish(prediction.id, Moved(prediction))
        return len(moved)

    async def _look_for_work(self) -> None:
        for name in await self._database.read(_engines_waiting()):
            self.feed(name)

    async def _stop_idle(self) -> None:
        for pool in self._pools.values():
            for seat in pool.tired(self._policy.idle_seconds):
                if seat.worker is not None:
                    with contextlib.suppress(OSError):
                        await seat.worker.stop()


_LAPSED = Query("prediction_lapsed", {"limit": 1})


def _rows(query: Query) -> Transaction[int]:
    return len((yield query))


def _engines_waiting() -> Transaction[tuple[str, ...]]:
    rows = yield Query("prediction_engines_waiting", {})
    return tuple(str(row["engine"]) for row in rows)


def _count_stale(life_us: int) -> Transaction[int]:
    before = (yield from now()) - life_us
    return len((yield Query("prediction_stale", {"before": before, "limit": 1})))


def _expire_older(life_us: int) -> Transaction[tuple[Prediction, ...]]:
    before = (yield from now()) - life_us
    return (yield from predictions.expire(before))
