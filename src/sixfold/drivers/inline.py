"""Workers as threads of the server's process: for tests, `replay` and small jobs.

A thread cannot be killed: `kill` abandons the run immediately, and the thread ends at the engine's next
progress report. There is no memory limit, and printed output is not captured.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from sixfold.core.catalog.engines import BatchEngine, Engine, Task
from sixfold.core.sessions.engine import StepAnswer, StepRequest
from sixfold.core.workers.ports import (
    Outcome,
    RunFailed,
    RunReports,
    RunStopped,
    WorkerLost,
    WorkerSpec,
)
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers import results
from sixfold.drivers.session_steps import SessionStepper
from sixfold.worker import protocol, runner, session_steps

CANCEL_SECONDS = 2.0


class _InlineJob(msgspec.Struct, eq=False):
    """A run in the thread, and the receiver of its reports."""

    number: int
    task: Task
    reports: RunReports
    staging: runner.FileStaging
    failpoint: protocol.Failpoint | None
    outcome: asyncio.Future[Outcome]
    canceled: threading.Event = msgspec.field(default_factory=threading.Event)
    deadline: asyncio.TimerHandle | None = None

    def assignment(self) -> runner.Assignment:
        scratch = self.staging.scratch / f"{self.staging.prefix}.tmp"
        context = runner.RunContext(self, self.canceled, scratch)
        return runner.Assignment(self.number, self.task, context, self.staging, self.failpoint)

    def progress(self, fraction: float) -> None:
        self.call(self._report, self.reports.progress, fraction)

    def log(self, line: str) -> None:
        self.call(self._report, self.reports.log, line)

    def preview(self, content: bytes) -> None:
        self.call(self._report, self.reports.preview, content)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function` on the event loop, unless the loop is closed."""
        with suppress(RuntimeError):
            self.outcome.get_loop().call_soon_threadsafe(function, *arguments)

    def _report(self, target: Callable[[Any], None], value: object) -> None:
        if not self.outcome.done():
            target(value)

    def end(self, outcome: Outcome) -> None:
        """Set the outcome if it is not set yet; must be called on the event loop."""
        if self.deadline is not None:
            self.deadline.cancel()
        results.settle(self.outcome, outcome)


class InlineWorker:
    def __init__(self, driver: InlineDriver, spec: WorkerSpec) -> None:
        self.id = uuid.uuid4().hex
        self.engine_name = ""
        self.engine_version = ""
        self._loop = asyncio.get_running_loop()
        self._driver = driver
        self._spec = spec
        self._inbox: queue.SimpleQueue[_InlineJob | protocol.StepsMessage | None] = queue.SimpleQueue()
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._current: dict[str, _InlineJob] = {}
        self._steps = SessionStepper()
        self._runs = 0
        self._alive = True
        self._end_reason = ""

    @property
    def alive(self) -> bool:
        return self._alive

    async def begin(self) -> None:
        """Start the thread and wait until its engine is loaded; raises `StartFailed`."""
        threading.Thread(target=self._work, name=f"worker-{self.id[:8]}", daemon=True).start()
        if problem := await self._ready:
            self._end("could not load its engine")
            raise StartFailed(problem)

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        if not self._alive:
            return WorkerLost(f"the worker {self._end_reason}")
        if len(self._current) >= self._spec.max_tasks:
            raise RuntimeError(f"the worker is already running its maximum of {self._spec.max_tasks} tasks")
        self._runs += 1
        # Encode as for a process, so that engines see the same types.
        try:
            inputs = protocol.decode_plain(protocol.encode(dict(task.inputs)))
        except (TypeError, ValueError, OverflowError) as error:
            return RunFailed(f"The task cannot be sent to a worker: {error}", public=False)
        staging = runner.FileStaging(self._spec.scratch, f"{self.id}-{self._runs}")
        failpoint = self._driver.failpoints.get(task.model)
        copy = Task(task.id, task.model, inputs, task.files)
        job = _InlineJob(self._runs, copy, reports, staging, failpoint, self._loop.create_future())
        self._current[task.id] = job
        self._inbox.put(job)
        try:
            return await job.outcome
        except asyncio.CancelledError:
            self.cancel(task.id)
            raise

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        if not self._alive:
            return [WorkerLost(f"the worker {self._end_reason}")] * len(requests)
        self._runs += 1
        point = self._driver.failpoints.get(requests[0].model)
        return await self._steps.send(self._runs, requests, point, self._send)

    def cancel(self, task_id: str) -> None:
        """Request that the running task stop, and abandon the worker if it does not."""
        job = self._current.get(task_id)
        if job is not None and not job.canceled.is_set():
            job.canceled.set()
            reason = "did not stop when canceled, and was abandoned"
            cancel_seconds = max(self._driver.cancel_seconds, self._spec.cancel_seconds)
            job.deadline = self._loop.call_later(
                cancel_seconds, self._give_up, WorkerLost(f"the worker {reason}"), reason
            )

    async def give_up(self, task_id: str) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Abandon the worker; a run in progress returns `WorkerLost`. Idempotent."""
        self._give_up(WorkerLost("the worker was killed"), "was killed")

    async def stop(self) -> None:
        """Stop an idle worker, and kill it after a short grace period. Idempotent."""
        self._inbox.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._driver.cancel_seconds):
                await self._ended.wait()
        await self.kill()

    def _give_up(self, outcome: Outcome, reason: str) -> None:
        self._end(reason)
        self._steps.fail_all(f"the worker {reason}")
        for job in tuple(self._current.values()):
            job.end(RunStopped() if job.canceled.is_set() else outcome)
            job.canceled.set()
        self._current.clear()
        self._inbox.put(None)

    def _end(self, reason: str) -> None:
        if self._alive:
            self._alive = False
            self._end_reason = reason
        self._driver.workers.discard(self)
        self._ended.set()

    # -- in the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            engine = runner.load(self._spec.factory, self._spec.options)
        except runner.EngineLoadFailed as error:
            self._call(self._loaded, str(error))
            return
        self.engine_name, self.engine_version = str(engine.name), str(engine.version)
        self._call(self._loaded, "")
        for jobs in runner.BatchGathering(self._inbox, self._spec.max_tasks, lambda job: _shape(engine, job)):
            if isinstance(jobs[0], protocol.StepsMessage):
                self._take_steps(engine, jobs[0])
                continue
            runs = cast("list[_InlineJob]", jobs)
            for job, outcome in zip(runs, _perform(engine, runs), strict=True):
                self._call(self._finish, job, outcome)
        self._call(self._end, "had ended")

    def _send(self, order: protocol.StepsMessage) -> None:
        protocol.frame(order)  # rejects what could not be sent to a process
        self._inbox.put(order)

    def _take_steps(self, engine: Engine, order: protocol.StepsMessage) -> None:
        if order.steps[0].failpoint == "crash":
            self._call(self._give_up, WorkerLost("the worker crashed"), "crashed (injected by a failpoint)")
            return
        # Decode, so that engines see the same types as in a process.
        same = protocol.to_worker.decode(protocol.encode(order))
        reply = protocol.to_server.decode(
            protocol.encode(session_steps.run_steps(engine, cast("protocol.StepsMessage", same)))
        )
        self._call(self._steps.resolve, reply)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        # The loop is closed, so the result has no receiver.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    # -- on the loop -------------------------------------------------------------------------------

    def _loaded(self, problem: str) -> None:
        if not self._ready.done():
            self._ready.set_result(problem)

    def _finish(self, job: _InlineJob, outcome: Outcome) -> None:
        self._current.pop(job.task.id, None)
        if isinstance(outcome, WorkerLost):
            self._end("crashed")
            self._inbox.put(None)
        job.end(outcome)


def _shape(engine: Engine, job: _InlineJob | protocol.StepsMessage) -> Hashable:
    if isinstance(job, protocol.StepsMessage) or job.failpoint is not None:
        return None
    return runner.shape_of(engine, job.task)


def _perform(engine: Engine, jobs: list[_InlineJob]) -> list[Outcome]:
    if jobs[0].failpoint == "crash":
        return [WorkerLost("the worker crashed (injected by a failpoint)")]
    assignments = [job.assignment() for job in jobs]
    if len(jobs) == 1:
        replies = [runner.perform(engine, assignments[0])]
    else:
        replies = runner.perform_many(cast("BatchEngine", engine), assignments)
    for assignment in assignments:
        assignment.context.clear()
    return [_outcome(reply, job.staging) for reply, job in zip(replies, jobs, strict=True)]


def _outcome(reply: protocol.Reply, staging: runner.FileStaging) -> Outcome:
    return results.outcome(results.received(reply, staging), staging.scratch, staging.prefix)


class InlineDriver:
    """Runs engines in threads of this process.

    `failpoints` (tests only) make a model's engine fail, hang or crash.
    """

    name = "inline"

    def __init__(
        self,
        *,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.cancel_seconds = cancel_seconds
        self.workers: set[InlineWorker] = set()
        self._closed = False

    async def start(self, spec: WorkerSpec) -> InlineWorker:
        if self._closed:
            raise StartFailed("the driver is closed")
        spec.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker = InlineWorker(self, spec)
        self.workers.add(worker)
        await worker.begin()
        return worker

    async def close(self) -> None:
        """Abandon every worker. Idempotent."""
        self._closed = True
        for worker in tuple(self.workers):
            await worker.kill()
