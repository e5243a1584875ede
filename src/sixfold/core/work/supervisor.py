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
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.core import ids
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database, Query, Transaction, now
from sixfold.core.work import predictions
from sixfold.core.work.catalog import EngineSpec
from sixfold.core.work.events import Bus, Moved
from sixfold.core.work.ports import Driver, Worker, WorkerSpec, WorkerStartFailed
from sixfold.core.work.predictions import Lease
from sixfold.core.work.records import Prediction
from sixfold.core.work.runs import Finisher, Run, WorkerCrashed

_LOG = logging.getLogger("sixfold.supervisor")
_SWEEP_SECONDS = 1.0
_BACKOFF_FIRST, _BACKOFF_LAST = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How many runs at once, for how long, and how often a lost one is tried again."""

    slots: int
    run_limit_seconds: float
    lease_seconds: float
    max_attempts: int
    queue_ttl_seconds: float
    idle_seconds: float | None
    memory_bytes: int
    scratch: Path


@dataclass(slots=True)
class _Idle:
    worker: Worker
    since: float


@dataclass(slots=True)
class _Pool:
    """The workers of one engine."""

    engine: EngineSpec
    idle: list[_Idle] = field(default_factory=list["_Idle"])
    busy: int = 0
    failures: int = 0
    resume_at: float = 0.0

    def room(self, slots: int) -> int:
        limit = self.engine.concurrency or slots
        return max(0, limit - self.busy)


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
        self._pools = {name: _Pool(engine) for name, engine in engines.items()}
        self._hungry: deque[str] = deque()
        self._wake = asyncio.Event()
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._free = policy.slots
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
        for task in (*self._loops, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._loops, *self._tasks, return_exceptions=True)
        await self._driver.close()

    # -- what the pipeline tells -----------------------------------------------------------------

    def accepted(self, prediction: Prediction) -> None:
        """There is work for an engine."""
        self._feed(prediction.engine)

    def cancel(self, prediction: Prediction) -> None:
        """Somebody no longer wants a run."""
        run = self._runs.get(prediction.id)
        if run is not None:
            run.cancel()

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Workers of each engine, for the metrics and the operator's page."""
        return {name: {"busy": pool.busy, "idle": len(pool.idle)} for name, pool in self._pools.items()}

    # -- dispatching -----------------------------------------------------------------------------

    def _feed(self, engine: str) -> None:
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
            if not self._free or self._stopping:
                return
            name = self._hungry.popleft()
            pool = self._pools[name]
            room = min(self._free, pool.room(self._policy.slots))
            if not room or time.monotonic() < pool.resume_at:
                continue  # a run's end, or the sweep, feeds it again
            if await self._claim(pool, room):
                self._feed(name)

    async def _claim(self, pool: _Pool, room: int) -> bool:
        """Claim for the workers that stand ready, else for one to be started; False when nothing waits."""
        ready = len(pool.idle)
        limit = min(room, ready) if ready else 1
        self._free -= limit
        pool.busy += limit
        claimed: tuple[Prediction, ...] = ()
        try:
            claimed = await self._database.write(
                predictions.claim(pool.engine.name, self._lease, limit, warm=ready > 0), durable=False
            )
        finally:
            spare = limit - len(claimed)
            self._free += spare
            pool.busy -= spare
        for prediction in claimed:
            self._bus.publish(prediction.id, Moved(prediction))
            worker = pool.idle.pop().worker if pool.idle and ready else None
            run = Run(prediction, self._finisher, self._bus, self._policy.run_limit_seconds)
            self._runs[prediction.id] = run  # here, so that a cancel in the same commit finds it
            self._spawn(self._serve(pool, run, worker))
        return bool(claimed)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, pool: _Pool, run: Run, worker: Worker | None) -> None:
        try:
            self._finisher.failpoints.hit("claim.after")
            worker = await self._with_worker(pool, run, worker)
            if worker is not None:
                await run.run(worker)
                pool.failures = 0
        except WorkerCrashed as crash:  # its prediction is tried again a few times; others need not wait
            _LOG.warning("a worker was lost", extra={"engine": pool.engine.name, "reason": str(crash)})
        except asyncio.CancelledError:
            if worker is not None:
                await worker.kill()
            await run.abandon()
            raise
        except Exception:  # noqa: BLE001 - the outermost loop of a run: a bug must not strand its prediction
            _LOG.exception("a run ended in a way that it should not")
            await run.give_back("the server erred")
        finally:
            del self._runs[run.id]
            pool.busy -= 1
            self._free += 1
            if worker is not None and worker.alive:
                pool.idle.append(_Idle(worker, time.monotonic()))
            self._feed(pool.engine.name)

    async def _with_worker(self, pool: _Pool, run: Run, worker: Worker | None) -> Worker | None:
        """The worker given, or a new one; None when it could not start (the run is ended then)."""
        if worker is not None and worker.alive:
            return worker
        spec = WorkerSpec(
            engine=pool.engine.name,
            factory=pool.engine.factory,
            memory_bytes=self._policy.memory_bytes,
            scratch=self._policy.scratch,
            cpu_seconds=math.ceil(self._policy.run_limit_seconds),
        )
        began = time.perf_counter_ns()
        try:
            worker = await self._driver.start(spec)
        except WorkerStartFailed as failure:
            _LOG.warning("a worker did not start", extra={"engine": pool.engine.name, "reason": str(failure)})
            self._back_off(pool)
            await run.give_back(f"the worker did not start: {failure}")
            return None
        run.cold_start_us = (time.perf_counter_ns() - began) // 1000
        return worker

    def _back_off(self, pool: _Pool) -> None:
        pool.failures += 1
        delay = min(_BACKOFF_LAST, _BACKOFF_FIRST * 2 ** (pool.failures - 1))
        pool.resume_at = time.monotonic() + delay
        asyncio.get_running_loop().call_later(delay, self._feed, pool.engine.name)

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
            self._feed(name)

    async def _stop_idle(self) -> None:
        moment = time.monotonic()
        for pool in self._pools.values():
            limit = self._policy.idle_seconds
            limit = pool.engine.idle_seconds if limit is None else limit
            tired = [idle for idle in pool.idle if moment - idle.since >= limit or not idle.worker.alive]
            pool.idle = [idle for idle in pool.idle if idle not in tired]
            for idle in tired:
                with contextlib.suppress(OSError):
                    await idle.worker.stop()


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
