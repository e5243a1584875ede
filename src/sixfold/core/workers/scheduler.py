"""The scheduler: claims queued predictions, starts and stops workers, and runs each prediction to its end.

One dispatch loop assigns free slots to the engines with queued predictions, in turn. Every claimed prediction
has a `WorkerRun` (see `runs`), which writes exactly one end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database, Query, Transaction
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import EventBus, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import RunLease
from sixfold.core.workers.lease_guard import LeaseGuard
from sixfold.core.workers.policy import WorkerPolicy, worker_spec
from sixfold.core.workers.pool import SlotWaiter, WorkerPool, WorkerSlot
from sixfold.core.workers.ports import (
    DetachedRun,
    Driver,
    Outcome,
    RunCompleted,
    Worker,
    WorkerStartFailed,
)
from sixfold.core.workers.runs import RunFinisher, WorkerCrashed, WorkerRun

_LOG = logging.getLogger("sixfold.supervisor")
_SWEEP_SECONDS = 1.0
_STUCK_SECONDS = 3.0


class Scheduler:
    """Runs every prediction that this server claims. One per server; see `start` and `stop`."""

    def __init__(
        self,
        database: Database,
        driver: Driver,
        engines: Mapping[str, EngineSpec],
        finisher: RunFinisher,
        bus: EventBus,
        policy: WorkerPolicy,
    ) -> None:
        self._database = database
        self._driver = driver
        self._finisher = finisher
        self._bus = bus
        self._policy = policy
        self._pools = {name: WorkerPool(engine) for name, engine in engines.items()}
        self._hungry: deque[str] = deque()
        self._wake = asyncio.Event()
        self._runs: dict[str, WorkerRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        # Runs that have released their worker while their result is stored.
        self._settling = 0
        self._stopping = False
        # Returns whether an engine can run on this server.
        self.can: Callable[[str], bool] = lambda _engine: True
        self.boot = ids.new("boot")
        self._lease = RunLease(self.boot, int(policy.lease_seconds * SECOND_US))
        self._sight = LeaseGuard(_SWEEP_SECONDS, policy.lease_seconds)

    # -- lifecycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Requeue what a previous server process left and start the loops."""
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
        if isinstance(self._driver, DetachedRun):
            stray = self._driver.sweep
            self._loops.append(
                asyncio.create_task(
                    self._every(self._policy.lease_seconds / 6, lambda: stray(self._living)), name="strays"
                )
            )

    async def drain(self, seconds: float) -> None:
        """Stop claiming and wait up to `seconds` for the running predictions."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def stop(self) -> None:
        """Stop every worker; predictions that still run are requeued for the next server."""
        self._stopping = True
        starting = [seat.starting for pool in self._pools.values() for seat in pool.seats if seat.starting]
        ending: list[asyncio.Task[Any]] = [*self._loops, *self._tasks, *starting]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._driver.close()

    def admit(self, engines: Sequence[EngineSpec]) -> None:
        """Add engines that were registered after the catalog was built."""
        for engine in engines:
            self._pools.setdefault(engine.name, WorkerPool(engine))
            self.notify_work(engine.name)

    # -- calls of the prediction service ---------------------------------------------------------

    def accepted(self, prediction: Prediction) -> None:
        """Wake the dispatcher for a new prediction."""
        self.notify_work(prediction.engine)

    def cancel(self, prediction: Prediction) -> None:
        """Cancel a prediction if it runs here."""
        self.cancel_run(prediction.id)

    def cancel_run(self, prediction_id: str) -> None:
        """Cancel the run with this prediction id; do nothing if it does not run here."""
        run = self._runs.get(prediction_id)
        if run is not None:
            run.cancel()

    def running(self) -> tuple[str, ...]:
        """Return the ids of the predictions that run here."""
        return tuple(self._runs)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the number of busy and idle workers of each engine."""
        return {name: {"busy": pool.busy, "idle": pool.idle} for name, pool in self._pools.items()}

    async def stop_idle(self, engine: str) -> int:
        """Stop the idle workers of an engine and return their number."""
        pool = self._pools.get(engine)
        return 0 if pool is None else await self._let_go(pool.tired(0))

    async def kill_workers(self, engine: str) -> int:
        """Kill all workers of an engine, busy or not, and return their number; used by failure tests."""
        seats = self._pools[engine].seats if engine in self._pools else []
        struck = [seat.worker for seat in seats if seat.worker is not None]
        await asyncio.gather(*(worker.kill() for worker in struck))
        return len(struck)

    # -- dispatching -----------------------------------------------------------------------------

    def notify_work(self, engine: str) -> None:
        """Wake the dispatcher because an engine may have queued predictions."""
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
            machine = self._policy.machine
            if time.monotonic() < pool.resume_at or not self.can(name) or machine.yields(pool.engine):
                # The retry timer of `_start` and every sweep notify the dispatcher again.
                continue
            if not self._free_slots(pool) and not pool.open_lanes(taken=True):
                await self._look_ahead(pool)
            elif await self._claim(pool):
                # Otherwise the next submission or the end of a run notifies the dispatcher.
                self.notify_work(name)

    def _free_slots(self, pool: WorkerPool) -> int:
        if not self._policy.slots:
            return 0
        if pool.engine.remote:
            return (pool.engine.concurrency or self._policy.slots) - pool.busy
        return self._policy.slots - sum(each.slots() for each in self._pools.values())

    def _places(self, pool: WorkerPool) -> list[WorkerSlot]:
        """Return the slots for runs of this engine: open lanes, else idle workers, else one new worker."""
        taken = pool.open_lanes(taken=True)
        free = self._free_slots(pool)
        if taken or free <= 0:
            return taken
        ready = pool.open_lanes(taken=False)[: free * pool.engine.lanes]
        if ready or not pool.may_grow(self._policy.slots):
            return ready
        return [WorkerSlot()] * pool.engine.lanes

    def _offers(self, pool: WorkerPool) -> Iterator[tuple[list[WorkerSlot], str | None]]:
        """Yield batches of slots to fill, each with the hardware that its runs must request (None: any)."""
        if not self._policy.placed:
            yield self._places(pool), None
            return
        for kind in pool.kinds():
            yield [seat for seat in self._places(pool) if seat.starting and seat.hardware == kind], kind
        if self._free_slots(pool) > 0 and pool.may_grow(self._policy.slots):
            yield [WorkerSlot()] * pool.engine.lanes, None
        else:
            # This worker restarts on the hardware that the claimed run requests.
            yield self._places(pool)[:1], None

    async def _claim(self, pool: WorkerPool) -> bool:
        """Claim predictions for open slots; return False if there is no slot or nothing is queued."""
        for places, hardware in self._offers(pool):
            if places and await self._fits(pool, places[0]) and await self._fill(pool, places, hardware):
                return True
        return False

    async def _look_ahead(self, pool: WorkerPool) -> None:
        """Claim runs that a worker will soon be free for, unless another engine needs the slots."""
        count = 0 if self._hungry or self._policy.placed else pool.ahead(self._policy.slots)
        if count <= 0:
            # The end of a run wakes the dispatcher.
            self._hungry.append(pool.engine.name)
            return
        claim = claims.claim(pool.engine.name, self._lease, count, warm=True)
        claimed = await self._database.write(claim, durable=False)
        for prediction in claimed:
            self._spawn(self._serve_ahead(pool, self._begin(pool, prediction), pool.line_up()))
        for seat in pool.open_lanes(taken=False)[: max(0, self._free_slots(pool))]:
            # It became free while the claim was written.
            pool.offer(seat)
        if len(claimed) == count:
            self.notify_work(pool.engine.name)

    async def _fits(self, pool: WorkerPool, seat: WorkerSlot) -> bool:
        """Return whether memory suffices to start this worker; stop idle workers if a run waits for it."""
        machine, pools = self._policy.machine, self._pools.values()
        if seat.starting is not None or machine.holds(pool.engine, pools):
            return True
        if pool.engine.name in await self._database.read(_engines_waiting()):
            await self._let_go(machine.idle(pool.engine, pools))
        return machine.holds(pool.engine, pools)

    async def _fill(self, pool: WorkerPool, places: list[WorkerSlot], hardware: str | None) -> bool:
        pool.seats.extend(seat for seat in places[:1] if seat not in pool.seats)
        # Reserve the slots before the claim, so that nothing else counts on them.
        for seat in places:
            seat.runs += 1
        warm = all(seat.worker is not None for seat in places)
        claimed: tuple[Prediction, ...] = ()
        try:
            claimed = await self._database.write(
                claims.claim(
                    pool.engine.name,
                    self._lease,
                    len(places),
                    warm=warm,
                    hardware=hardware,
                    free_runs=pool.engine.free_runs,
                ),
                durable=False,
            )
        finally:
            for seat in places[len(claimed) :]:
                seat.runs -= 1
            pool.seats = [seat for seat in pool.seats if seat.runs or seat.starting is not None]
        for prediction, seat in zip(claimed, places, strict=False):
            self._seat(pool, seat, self._hardware(prediction))
            self._spawn(self._serve(pool, self._begin(pool, prediction), seat))
        return bool(claimed)

    def _begin(self, pool: WorkerPool, prediction: Prediction) -> WorkerRun:
        """Register the run of a claimed prediction at once, so that a cancel in the same commit finds it."""
        self._bus.publish(prediction.id, StateChanged(prediction.shown))
        limit = pool.engine.limit_seconds(self._policy.run_limit_seconds)
        run = self._runs[prediction.id] = WorkerRun(prediction, self._finisher, self._bus, limit)
        return run

    def _hardware(self, prediction: Prediction) -> str:
        return (prediction.hardware or "") if self._policy.placed else ""

    def _seat(self, pool: WorkerPool, seat: WorkerSlot, hardware: str) -> None:
        """Start a worker if the slot has none, or if its worker runs on other hardware."""
        if seat.starting is not None and seat.hardware != hardware and seat.runs == 1:
            self._spawn(_dismiss(seat.starting))
            seat.starting = None
        if seat.starting is None:
            seat.hardware, seat.since = hardware, time.monotonic()
            seat.starting = asyncio.create_task(self._start(pool, hardware))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_ahead(self, pool: WorkerPool, run: WorkerRun, wait: SlotWaiter) -> None:
        """Serve the run when a slot becomes free; requeue it if that takes too long."""
        try:
            seat = await pool.turn(wait)
        except asyncio.CancelledError:
            del self._runs[run.id]
            await run.abandon()
            raise
        if seat is not None:
            await self._serve(pool, run, seat)
            return
        del self._runs[run.id]
        await run.put_back()
        self.notify_work(pool.engine.name)

    async def _serve(self, pool: WorkerPool, run: WorkerRun, seat: WorkerSlot) -> None:
        freed, began = False, time.monotonic()

        def free(outcome: Outcome) -> None:
            """Release the worker while the result is stored, unless too many are being stored already."""
            nonlocal freed
            if isinstance(outcome, RunCompleted) and self._settling < self._policy.slots:
                freed = True
                self._settling += 1
                self._leave(pool, seat, began)

        try:
            self._finisher.failpoints.hit("claim.after")
            seat = await self._seated(pool, run, seat)
            seat.idle_seconds = self._policy.idle_of(run.prediction.model)
            if seat.worker is not None:
                await run.run(seat.worker, free)
                pool.failures = 0
        except WorkerCrashed as crash:  # the prediction is retried; others continue
            _LOG.warning("a worker was lost", extra={"engine": pool.engine.name, "reason": str(crash)})
        except asyncio.CancelledError:
            if seat.worker is not None and not freed:
                await seat.worker.kill()
            await run.abandon()
            raise
        except Exception:  # noqa: BLE001 - the outermost handler of a run: a bug must not leave its prediction unfinished
            _LOG.exception("a run ended in a way that it should not")
            await run.give_back("the server erred")
        finally:
            del self._runs[run.id]
            if freed:
                self._settling -= 1
            else:
                self._leave(pool, seat, began)

    async def _seated(self, pool: WorkerPool, run: WorkerRun, seat: WorkerSlot) -> WorkerSlot:
        """Return the slot whose worker takes the run. If the worker cannot start, requeue or fail the run."""
        if seat.worker is not None and seat.worker.alive:
            return seat
        began = time.perf_counter_ns()
        try:
            seat = await pool.seated(seat)
        except WorkerStartFailed as failure:
            await run.give_back(f"the worker did not start: {failure}")
        run.cold_start_us = (time.perf_counter_ns() - began) // 1000
        return seat

    def _leave(self, pool: WorkerPool, seat: WorkerSlot, began: float) -> None:
        seat.runs -= 1
        seat.since = time.monotonic()
        pool.took(seat.since - began)
        if not seat.usable and seat in pool.seats:
            pool.seats.remove(seat)
        pool.offer(seat)
        for engine in (pool.engine.name, *self._policy.machine.cramped):
            self.notify_work(engine)

    async def _start(self, pool: WorkerPool, hardware: str) -> Worker:
        engine = pool.engine
        try:
            return await self._driver.start(worker_spec(engine, self._policy, hardware, self.boot))
        except WorkerStartFailed as failure:
            _LOG.warning("a worker did not start", extra={"engine": engine.name, "reason": str(failure)})
            asyncio.get_running_loop().call_later(pool.failed(), self.notify_work, engine.name)
            raise

    # -- periodic tasks --------------------------------------------------------------------------

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
        await self._expire()
        await self._look_for_work()
        if self._sight.is_reliable():
            await self._announce(predictions.lapse(self._policy.max_attempts), if_any=_LAPSED)
        self._policy.machine.weigh(self._pools.values())
        await self._stop_idle()
        await self._make_room()

    async def _expire(self) -> None:
        life_us = int(self._policy.queue_ttl_seconds * SECOND_US)
        stale = await self._database.read(predictions.stale(life_us))
        if stale:
            await self._announce(predictions.expire_older(life_us))

    async def _announce(
        self, transaction: Transaction[tuple[Prediction, ...]], if_any: Query | None = None
    ) -> int:
        if if_any is not None and not await self._database.read(_rows(if_any)):
            transaction.close()
            return 0
        moved = await self._database.write(transaction)
        for prediction in moved:
            self._bus.publish(prediction.id, StateChanged(prediction))
        return len(moved)

    async def _look_for_work(self) -> None:
        waiting = await self._database.read(_engines_waiting())
        self._policy.machine.still(waiting)
        for name in waiting:
            self.notify_work(name)

    async def _living(self, boots: Sequence[str]) -> frozenset[str]:
        return await self._database.read(_servers_living(boots, self.boot))

    async def _stop_idle(self) -> None:
        for pool in self._pools.values():
            await self._let_go(pool.tired(self._policy.idle_seconds))

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes needed by this machine's workers, the limit, and the number of waiting engines."""
        machine = self._policy.machine
        return machine.taken(self._pools.values()), machine.total_bytes, len(machine.cramped)

    async def _let_go(self, seats: Iterable[WorkerSlot]) -> int:
        gone = [seat.worker for seat in seats if seat.worker is not None]
        for worker in gone:
            with contextlib.suppress(OSError):
                await worker.stop()
        return len(gone)

    async def _make_room(self) -> None:
        """On a full cluster, stop the worker that has been idle longest so that another can start."""
        if not self._policy.placed or not any(pool.stuck(_STUCK_SECONDS) for pool in self._pools.values()):
            return
        idle = [
            (seat.since, pool, seat)
            for pool in self._pools.values()
            for seat in pool.seats
            if seat.worker is not None and not seat.runs
        ]
        if idle:
            _, pool, seat = min(idle, key=lambda each: each[0])
            pool.seats.remove(seat)
            assert seat.starting is not None  # noqa: S101 - it has a worker
            await _dismiss(seat.starting)


_LAPSED = Query("prediction_lapsed", {"limit": 1})


def _rows(query: Query) -> Transaction[int]:
    return len((yield query))


def _engines_waiting() -> Transaction[tuple[str, ...]]:
    rows = yield Query("prediction_engines_waiting", {})
    return tuple(str(row["engine"]) for row in rows)


def _servers_living(boots: Sequence[str], own: str) -> Transaction[frozenset[str]]:
    rows = yield Query("servers_living", {"boots": msgspec.json.encode(boots).decode(), "own": own})
    return frozenset(str(row["boot"]) for row in rows)


async def _dismiss(starting: asyncio.Task[Worker]) -> None:
    with contextlib.suppress(WorkerStartFailed, OSError):
        await (await starting).stop()
