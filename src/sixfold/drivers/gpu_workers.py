"""Workers with local weights that share the GPU with model servers and ComfyUI.

An idle worker whose memory another program needs is stopped. The worker starts again with its next run.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping

import msgspec

from sixfold import errors
from sixfold.core.catalog.engines import Task
from sixfold.core.gpu.arbiter import GpuAccess, GpuLease
from sixfold.core.workers.ports import (
    Driver,
    MeasuredWorker,
    Outcome,
    RunFailed,
    RunReports,
    RunStopped,
    Worker,
    WorkerLost,
    WorkerSpec,
    WorkerStartFailed,
)

NAME = "weights"


class WeightsHolder(msgspec.Struct, eq=False):
    """The workers of this process with weights on the GPU; models are identified by engine names."""

    private: str
    name: str = NAME
    self_managed: bool = False
    workers: set[GpuWorker] = set()
    _expected: dict[str, int] = {}

    def canonical(self, model: str) -> str:
        return model

    async def residents(self) -> Mapping[str, int | None]:
        """Return the engines that have a worker with loaded weights."""
        self.workers = {worker for worker in self.workers if worker.alive}
        return {worker.spec.engine: None for worker in self.workers if worker.loaded}

    async def unload(self, model: str) -> None:
        """Stop the idle workers of an engine."""
        idle = [worker for worker in self.workers if worker.spec.engine == model]
        await asyncio.gather(*(worker.unload() for worker in idle))

    def expected_bytes(self, model: str) -> int | None:
        """Return the graphics memory in bytes that the engine's entry states, or None."""
        return self._expected.get(model)

    def add(self, worker: GpuWorker) -> None:
        self.workers.add(worker)
        if worker.spec.vram_bytes:
            self._expected[worker.spec.engine] = worker.spec.vram_bytes


class GpuWorkerDriver:
    """Starts workers with another driver; those that need a GPU wait for it.

    `access` returns the GPU that the workers share with other programs, or None.
    """

    def __init__(self, driver: Driver, holder: WeightsHolder, access: Callable[[], GpuAccess | None]) -> None:
        self.name = driver.name
        self._driver = driver
        self._holder = holder
        self._access = access

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker; raises `WorkerStartFailed`."""
        access = None if spec.vram_bytes is None or spec.watched else self._access()
        if access is None:
            return await self._driver.start(spec)
        worker = GpuWorker(spec, self._driver, access)
        self._holder.add(worker)
        try:
            (await worker.enter()).release()
        except errors.GpuBusy as busy:
            self._holder.workers.discard(worker)
            raise WorkerStartFailed(busy.message) from busy
        except BaseException:
            self._holder.workers.discard(worker)
            raise
        worker.on_end = lambda: self._holder.workers.discard(worker)
        return worker

    async def close(self) -> None:
        """Kill every worker. Idempotent."""
        await self._driver.close()


class GpuWorker:
    """A worker that uses the GPU for each run, and may be unloaded between two runs."""

    def __init__(self, spec: WorkerSpec, driver: Driver, access: GpuAccess) -> None:
        self.spec = spec
        self.id = ""
        self.on_end: Callable[[], None] = _nothing
        self._driver = driver
        self._access = access
        self._worker: Worker | None = None
        self._starting = asyncio.Lock()
        self._runs = 0
        self._ended = False
        # Runs that were canceled while they waited for the GPU.
        self._waiting: dict[str, asyncio.Task[GpuLease]] = {}

    @property
    def loaded(self) -> bool:
        """Whether the worker's process has loaded the weights."""
        return self._worker is not None and self._worker.alive

    @property
    def alive(self) -> bool:
        """Whether the worker can run more tasks; an unloaded worker can."""
        return not self._ended and (self._worker is None or self._worker.alive)

    def peak_bytes(self) -> int:
        """Return the peak memory of the process in bytes; 0 if unknown."""
        return self._worker.peak_bytes() if isinstance(self._worker, MeasuredWorker) else 0

    async def enter(self) -> GpuLease:
        """Wait for the GPU, and start the process if it is not running.

        Raises `GpuBusy` and `WorkerStartFailed`.
        """
        lease = await self._access.acquire(self.spec.engine, math.inf)
        try:
            async with self._starting:
                if self._worker is None:
                    self._worker = await self._driver.start(self.spec)
                    self.id = self._worker.id
                    lease.ready()
        except BaseException:
            lease.release()
            raise
        return lease

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        """Run `task` when the GPU has enough memory; never raises for errors of the engine or the worker."""
        if self._ended:
            return WorkerLost("the worker had ended")
        entering = self._waiting[task.id] = asyncio.create_task(self.enter())
        try:
            await asyncio.wait({entering})
        except asyncio.CancelledError:
            # Reached at shutdown; a lease that was granted meanwhile is released.
            entering.add_done_callback(_release)
            entering.cancel()
            raise
        finally:
            del self._waiting[task.id]
        if entering.cancelled():
            return WorkerLost("the worker was stopped") if self._ended else RunStopped()
        match entering.exception():
            case None:
                lease = entering.result()
            case errors.GpuBusy() as busy:
                return RunFailed(busy.message, public=True)
            case failure:
                return WorkerLost(f"the worker did not start again: {failure}")
        self._runs += 1
        try:
            worker = self._worker
            return WorkerLost("the worker had ended") if worker is None else await worker.run(task, reports)
        finally:
            self._runs -= 1
            lease.release()

    def cancel(self, task_id: str) -> None:
        waiting = self._waiting.get(task_id)
        if waiting is not None:
            waiting.cancel()
        elif self._worker is not None:
            self._worker.cancel(task_id)

    async def give_up(self, task_id: str) -> None:
        """Abort a run that exceeded its time limit."""
        if self._worker is not None:
            await self._worker.give_up(task_id)

    async def unload(self) -> None:
        """Stop the process if it is not in use; the next run starts another process."""
        worker = self._worker
        if worker is not None and not self._runs:
            self._worker = None
            with contextlib.suppress(OSError):
                await worker.stop()

    async def kill(self) -> None:
        self._end()
        if self._worker is not None:
            await self._worker.kill()

    async def stop(self) -> None:
        """Stop an idle worker gracefully. Idempotent."""
        self._end()
        if self._worker is not None:
            await self._worker.stop()

    def _end(self) -> None:
        self._ended = True
        for entering in self._waiting.values():
            entering.cancel()
        self.on_end()


def _release(entering: asyncio.Task[GpuLease]) -> None:
    if not entering.cancelled() and entering.exception() is None:
        entering.result().release()


def _nothing() -> None:
    """Do nothing, because the worker is not listed."""
