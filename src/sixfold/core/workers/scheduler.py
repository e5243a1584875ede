"""The scheduler, which claims queued predictions, starts and stops workers, and runs predictions.

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

from sixfold.core import ids
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import background
from sixfold.core.concurrency.background import Work
from sixfold.core.database import Database, Query, Transaction, encode_json
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import EventBus, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import RunLease
from sixfold.core.workers.lease_guard import LeaseGuard
from sixfold.core.workers.policy import WorkerPolicy, worker_spec
from sixfold.core.workers.pool import SlotWaiter, WorkerPool, WorkerSlot
from sixfold.core.workers.ports import DetachedRun, Driver, Outcome, RunCompleted, Worker, WorkerStartFailed
from sixfold.core.workers.runs import RunFinisher, WorkerCrashed, WorkerRun

_LOG = logging.getLogger("sixfold.scheduler")
SWEEP_SECONDS = 1.0
_SLOW_SECONDS = 3.0


class Scheduler:
    """Runs every prediction that this server claims.

    Each server has one scheduler; see `start` and `stop`.
    """

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
        self._engine_queue: deque[str] = deque()
        self._wake = asyncio.Event()
        self._runs: dict[str, WorkerRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        # Runs that have released their worker while their result is stored.
        self._storing = 0
        self._stopping = False
        # Returns whether an engine can run on this server.
        self.can_run: Callable[[str], bool] = lambda _engine: True
        self.boot = ids.new("boot")
        self._lease = RunLease(self.boot, int(policy.lease_seconds * SECOND_US))
        self._lease_guard = LeaseGuard(SWEEP_SECONDS, policy.lease_seconds)

    # -- lifecycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Requeue the predictions that a previous server process left unfinished, and start the loops."""
        await asyncio.to_thread(shutil.rmtree, self._policy.scratch, ignore_errors=True)
        self._policy.scratch.mkdir(parents=True, exist_ok=True)
        while await self._announce(predictions.recover(self.boot, self._policy.max_attempts)):
            pass
        await self._look_for_work()
        lease_seconds = self._policy.lease_seconds
        self._loops = [
            asyncio.create_task(self._dispatch_forever(), name="dispatch"),
            _every(lease_seconds / 3, {"heartbeat": self._heartbeat}),
            _every(SWEEP_SECONDS, self._sweep_steps()),
        ]
        if isinstance(self._driver, DetachedRun):
            sweep = self._driver.sweep
            steps = {"orphans": lambda: sweep(self._living_servers)}
            self._loops.append(_every(lease_seconds / 6, steps))

    async def drain(self, seconds: float) -> None:
        """Stop claiming, and wait up to `seconds` for the running predictions."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def stop(self) -> None:
        """Stop every worker; predictions that are still running are requeued for another server."""
        self._stopping = True
        starting = [slot.starting for pool in self._pools.values() for slot in pool.slots if slot.starting]
        tasks: list[asyncio.Task[Any]] = [*self._loops, *self._tasks, *starting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        """Cancel a prediction if it runs on this server."""
        self.cancel_run(prediction.id)

    def cancel_run(self, prediction_id: str) -> None:
        """Cancel the run with this prediction id; has no effect if it does not run on this server."""
        if (run := self._runs.get(prediction_id)) is not None:
            run.cancel()

    def running(self) -> tuple[str, ...]:
        """Return the ids of the predictions that run on this server."""
        return tuple(self._runs)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the number of busy and idle workers of each engine."""
        return {name: {"busy": pool.busy, "idle": pool.idle} for name, pool in self._pools.items()}

    async def stop_idle(self, engine: str) -> int:
        """Stop the idle workers of an engine; return their number."""
        pool = self._pools.get(engine)
        return 0 if pool is None else await self._stop_workers(pool.pop_idle(0))

    async def kill_workers(self, engine: str) -> int:
        """Kill all workers of an engine, busy or not; return their number. Used by failure tests."""
        slots = self._pools[engine].slots if engine in self._pools else []
        workers = [slot.worker for slot in slots if slot.worker is not None]
        await asyncio.gather(*(worker.kill() for worker in workers))
        return len(workers)

    # -- dispatching -----------------------------------------------------------------------------

    def notify_work(self, engine: str) -> None:
        """Wake the dispatcher because an engine may have queued predictions."""
        if engine in self._pools and engine not in self._engine_queue:
            self._engine_queue.append(engine)
        self._wake.set()

    async def _dispatch_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await background.attempt("dispatch", self._dispatch):
                await asyncio.sleep(SWEEP_SECONDS)
                self._wake.set()

    async def _dispatch(self) -> None:
        for _ in range(len(self._engine_queue)):
            if self._stopping:
                return
            name = self._engine_queue.popleft()
            pool = self._pools[name]
            memory = self._policy.memory
            if time.monotonic() < pool.resume_at or not self.can_run(name) or memory.must_wait(pool.engine):
                # The retry timer of `_start` and every sweep notify the dispatcher again.
                continue
            if not self._free_slots(pool) and not pool.open_slots(busy=True):
                await self._claim_ahead(pool)
            elif await self._claim(pool):
                # Otherwise the next submission or the end of a run notifies the dispatcher.
                self.notify_work(name)

    def _free_slots(self, pool: WorkerPool) -> int:
        if not self._policy.slots:
            return 0
        if pool.engine.remote:
            return (pool.engine.concurrency or self._policy.slots) - pool.busy
        return self._policy.slots - sum(pool.slots_in_use() for pool in self._pools.values())

    def _open_slots(self, pool: WorkerPool) -> list[WorkerSlot]:
        """Return slots for runs of this engine: of busy workers, else of idle workers, else of a new one."""
        shared = pool.open_slots(busy=True)
        free = self._free_slots(pool)
        if shared or free <= 0:
            return shared
        idle = pool.open_slots(busy=False)[: free * pool.engine.max_tasks]
        if idle or not pool.can_grow(self._policy.slots):
            return idle
        return [WorkerSlot()] * pool.engine.max_tasks

    def _slot_batches(self, pool: WorkerPool) -> Iterator[tuple[list[WorkerSlot], str | None]]:
        """Yield batches of slots to fill, each with the hardware that its runs must request (None: any)."""
        if not self._policy.placed:
            yield self._open_slots(pool), None
            return
        for hardware in pool.hardware_names():
            yield (
                [slot for slot in self._open_slots(pool) if slot.starting and slot.hardware == hardware],
                hardware,
            )
        if self._free_slots(pool) > 0 and pool.can_grow(self._policy.slots):
            yield [WorkerSlot()] * pool.engine.max_tasks, None
        else:
            # This worker restarts on the hardware that the claimed run requests.
            yield self._open_slots(pool)[:1], None

    async def _claim(self, pool: WorkerPool) -> bool:
        """Claim predictions for open slots; return False without a slot or a queued prediction."""
        for slots, hardware in self._slot_batches(pool):
            if slots and await self._has_memory(pool, slots[0]) and await self._fill(pool, slots, hardware):
                return True
        return False

    async def _claim_ahead(self, pool: WorkerPool) -> None:
        """Claim runs for which a worker will soon be free, unless another engine needs the slots."""
        count = 0 if self._engine_queue or self._policy.placed else pool.max_claims_ahead(self._policy.slots)
        if count <= 0:
            # The end of a run wakes the dispatcher.
            self._engine_queue.append(pool.engine.name)
            return
        claim = claims.claim(pool.engine.name, self._lease, count, warm=True)
        claimed = await self._database.write(claim, durable=False)
        for prediction in claimed:
            self._spawn(self._serve_ahead(pool, self._register_run(pool, prediction), pool.add_waiter()))
        for slot in pool.open_slots(busy=False)[: max(0, self._free_slots(pool))]:
            # The slot became free while the claim was written.
            pool.assign(slot)
        if len(claimed) == count:
            self.notify_work(pool.engine.name)

    async def _has_memory(self, pool: WorkerPool, slot: WorkerSlot) -> bool:
        """Return whether the memory suffices to start a worker; stop idle workers if a run waits for it."""
        memory, pools = self._policy.memory, self._pools.values()
        if slot.starting is not None or memory.fits(pool.engine, pools):
            return True
        if pool.engine.name in await self._database.read(_engines_waiting(), snapshot=False):
            await self._stop_workers(memory.pop_idle(pool.engine, pools))
        return memory.fits(pool.engine, pools)

    async def _fill(self, pool: WorkerPool, slots: list[WorkerSlot], hardware: str | None) -> bool:
        pool.slots.extend(slot for slot in slots[:1] if slot not in pool.slots)
        # Reserve the slots before the claim, so that they are not assigned twice.
        for slot in slots:
            slot.runs += 1
        warm = all(slot.worker is not None for slot in slots)
        claimed: tuple[Prediction, ...] = ()
        try:
            claimed = await self._database.write(
                claims.claim(
                    pool.engine.name,
                    self._lease,
                    len(slots),
                    warm=warm,
                    hardware=hardware,
                    free_runs=pool.engine.free_runs,
                ),
                durable=False,
            )
        finally:
            for slot in slots[len(claimed) :]:
                slot.runs -= 1
            pool.slots = [slot for slot in pool.slots if slot.runs or slot.starting is not None]
        for prediction, slot in zip(claimed, slots, strict=False):
            self._ensure_worker(pool, slot, self._hardware(prediction))
            self._spawn(self._serve(pool, self._register_run(pool, prediction), slot))
        return bool(claimed)

    def _register_run(self, pool: WorkerPool, prediction: Prediction) -> WorkerRun:
        """Register the run of a claimed prediction immediately, for a cancel in the same commit."""
        self._bus.publish(prediction.id, StateChanged(prediction.redacted))
        limit = pool.engine.limit_seconds(self._policy.run_limit_seconds)
        run = self._runs[prediction.id] = WorkerRun(prediction, self._finisher, self._bus, limit)
        return run

    def _unregister_run(self, run: WorkerRun) -> None:
        # If the lease expired while the database was unavailable, a later attempt may run on this server.
        if self._runs.get(run.id) is run:
            del self._runs[run.id]

    def _hardware(self, prediction: Prediction) -> str:
        return (prediction.hardware or "") if self._policy.placed else ""

    def _ensure_worker(self, pool: WorkerPool, slot: WorkerSlot, hardware: str) -> None:
        """Start a worker if the slot does not have one, or if its worker runs on other hardware."""
        if slot.starting is not None and slot.hardware != hardware and slot.runs == 1:
            self._spawn(_stop_when_started(slot.starting))
            slot.starting = None
        if slot.starting is None:
            slot.hardware, slot.since = hardware, time.monotonic()
            slot.starting = asyncio.create_task(self._start(pool, hardware))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_ahead(self, pool: WorkerPool, run: WorkerRun, waiter: SlotWaiter) -> None:
        """Serve the run when a slot becomes free; requeue the run if that takes too long."""
        try:
            slot = await pool.wait_for_turn(waiter)
        except asyncio.CancelledError:
            self._unregister_run(run)
            await run.abandon()
            raise
        if slot is not None:
            await self._serve(pool, run, slot)
            return
        self._unregister_run(run)
        await run.put_back(self.boot)
        self.notify_work(pool.engine.name)

    async def _serve(self, pool: WorkerPool, run: WorkerRun, slot: WorkerSlot) -> None:
        released, started_at = False, time.monotonic()

        def release(outcome: Outcome) -> None:
            """Release the worker while the result is stored, unless too many results are being stored."""
            nonlocal released
            if isinstance(outcome, RunCompleted) and self._storing < self._policy.slots:
                released = True
                self._storing += 1
                self._release(pool, slot, started_at)

        try:
            self._finisher.failpoints.hit("claim.after")
            slot = await self._wait_for_worker(pool, run, slot)
            slot.idle_seconds = self._policy.idle_of(run.prediction.model)
            if slot.worker is not None:
                await run.run(slot.worker, release)
                pool.failures = 0
        except WorkerCrashed as crash:  # retried by `runs`
            _LOG.warning("a worker was lost", extra={"engine": pool.engine.name, "reason": str(crash)})
        except asyncio.CancelledError:
            if slot.worker is not None and not released:
                await slot.worker.kill()
            await run.abandon()
            raise
        except Exception:  # noqa: BLE001 - the outermost handler of a run: a bug must not leave its prediction unfinished
            _LOG.exception("a run ended with an unexpected error")
            await run.requeue("internal server error")
        finally:
            self._unregister_run(run)
            if released:
                self._storing -= 1
            else:
                self._release(pool, slot, started_at)

    async def _wait_for_worker(self, pool: WorkerPool, run: WorkerRun, slot: WorkerSlot) -> WorkerSlot:
        """Return the slot whose worker takes the run.

        If the worker cannot start, the run is requeued or failed.
        """
        if slot.worker is not None and slot.worker.alive:
            return slot
        started_at = time.perf_counter_ns()
        try:
            slot = await pool.wait_for_start(slot)
        except WorkerStartFailed as failure:
            await run.requeue(f"the worker did not start: {failure}")
        run.cold_start_us = (time.perf_counter_ns() - started_at) // 1000
        return slot

    def _release(self, pool: WorkerPool, slot: WorkerSlot, started_at: float) -> None:
        slot.runs -= 1
        slot.since = time.monotonic()
        pool.record_run(slot.since - started_at)
        if not slot.usable and slot in pool.slots:
            pool.slots.remove(slot)
        pool.assign(slot)
        for engine in (pool.engine.name, *self._policy.memory.waiting_since):
            self.notify_work(engine)

    async def _start(self, pool: WorkerPool, hardware: str) -> Worker:
        engine = pool.engine
        try:
            return await self._driver.start(worker_spec(engine, self._policy, hardware, self.boot))
        except WorkerStartFailed as failure:
            _LOG.warning("a worker did not start", extra={"engine": engine.name, "reason": str(failure)})
            asyncio.get_running_loop().call_later(pool.record_start_failure(), self.notify_work, engine.name)
            raise

    # -- periodic tasks --------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        if self._runs:
            await self._database.write(predictions.heartbeat(self._lease, self.running()), durable=False)

    def _sweep_steps(self) -> dict[str, Work]:
        return {
            "expiry of queued runs": self._expire,
            "look for work": self._look_for_work,
            "expiry of leases": self._lapse,
            "measurement of workers": self._measure,
            "stop of idle workers": self._stop_idle,
            "eviction of idle workers": self._evict_idle,
        }

    async def _lapse(self) -> None:
        if self._lease_guard.is_reliable():
            await self._announce(predictions.lapse(self._policy.max_attempts), if_any=_LAPSED)

    async def _measure(self) -> None:
        self._policy.memory.measure(self._pools.values())

    async def _expire(self) -> None:
        life_us = int(self._policy.queue_ttl_seconds * SECOND_US)
        if await self._database.read(predictions.has_expirable(life_us), snapshot=False):
            await self._announce(predictions.expire_older(life_us))

    async def _announce(
        self, transaction: Transaction[tuple[Prediction, ...]], if_any: Query | None = None
    ) -> int:
        if if_any is not None and not await self._database.read(_rows(if_any), snapshot=False):
            transaction.close()
            return 0
        changed = await self._database.write(transaction)
        for prediction in changed:
            self._bus.publish(prediction.id, StateChanged(prediction))
        return len(changed)

    async def _look_for_work(self) -> None:
        waiting = await self._database.read(_engines_waiting(), snapshot=False)
        self._policy.memory.discard_waits(waiting)
        for name in waiting:
            self.notify_work(name)

    async def _living_servers(self, boots: Sequence[str]) -> frozenset[str]:
        return await self._database.read(_servers_living(boots, self.boot), snapshot=False)

    async def _stop_idle(self) -> None:
        for pool in self._pools.values():
            await self._stop_workers(pool.pop_idle(self._policy.idle_seconds))

    def memory(self) -> tuple[int, int, int]:
        """Return the bytes that the workers need, the limit in bytes, and the number of waiting engines."""
        memory = self._policy.memory
        return memory.used_bytes(self._pools.values()), memory.total_bytes, len(memory.waiting_since)

    async def _stop_workers(self, slots: Iterable[WorkerSlot]) -> int:
        workers = [slot.worker for slot in slots if slot.worker is not None]
        await asyncio.gather(*map(_stop_worker, workers))
        return len(workers)

    async def _evict_idle(self) -> None:
        """On a full cluster, stop the longest idle worker so that another worker can start."""
        pools = self._pools.values()
        if not self._policy.placed or not any(pool.has_slow_start(_SLOW_SECONDS) for pool in pools):
            return
        idle = [
            (slot.since, pool, slot)
            for pool in pools
            for slot in pool.slots
            if slot.worker is not None and not slot.runs
        ]
        if idle:
            _, pool, slot = min(idle, key=lambda each: each[0])
            pool.slots.remove(slot)
            assert slot.starting is not None  # noqa: S101 - it has a worker
            await _stop_when_started(slot.starting)


def _every(seconds: float, steps: Mapping[str, Work]) -> asyncio.Task[None]:
    return asyncio.create_task(background.repeat(seconds, steps), name=next(iter(steps)))


_LAPSED = Query("prediction_lapsed", {"limit": 1})


async def _stop_worker(worker: Worker) -> None:
    with contextlib.suppress(OSError):
        await worker.stop()


def _rows(query: Query) -> Transaction[int]:
    return len((yield query))


def _engines_waiting() -> Transaction[tuple[str, ...]]:
    rows = yield Query("prediction_engines_waiting", {})
    return tuple(str(row["engine"]) for row in rows)


def _servers_living(boots: Sequence[str], own: str) -> Transaction[frozenset[str]]:
    rows = yield Query("servers_living", {"boots": encode_json(boots), "own": own})
    return frozenset(str(row["boot"]) for row in rows)


async def _stop_when_started(starting: asyncio.Task[Worker]) -> None:
    with contextlib.suppress(WorkerStartFailed, OSError):
        await (await starting).stop()
