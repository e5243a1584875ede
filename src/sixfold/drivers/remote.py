"""Workers that call other machines: coroutines of the server with credentials and HTTP clients."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from sixfold import errors, import_string
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gpu import run_clock
from sixfold.core.predictions.child_runs import ChildRunPort
from sixfold.core.workers.ports import (
    DetachedRun,
    Driver,
    Living,
    Outcome,
    RunCompleted,
    RunReports,
    Worker,
    WorkerLost,
    WorkerSpec,
)
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.core.workers.remote_engines import RemoteEngine, RemoteLost
from sixfold.core.workflows.service import GraphService
from sixfold.drivers import results
from sixfold.engines.host_services import HostServices, OpenNodes
from sixfold.net.clients import HttpClients
from sixfold.worker import protocol, runner

_DOWNLOAD_SECONDS = 300.0


class InternalServices(msgspec.Struct, frozen=True):
    """The services of the server that engines may use in addition to credentials and HTTP clients."""

    children: ChildRunPort
    workflows: GraphService
    gateway: Gateway
    # Builds a chat request from a model's inputs and an image URL.
    conversation: Callable[[Mapping[str, Any], str], ChatRequest]


class ServerServices:
    """Implements `HostServices`; if `internal` is None, engines have only credentials and HTTP clients."""

    def __init__(
        self, clients: HttpClients, key: Callable[[str], str], internal: InternalServices | None = None
    ) -> None:
        self._clients = clients
        self._key = key
        self._internal = internal
        self.open_nodes: OpenNodes | None = None
        self.comfyui: ComfyAddress | None = None

    @property
    def _services(self) -> InternalServices:
        if self._internal is None:
            raise EngineError("This engine needs services that only a server has.")
        return self._internal

    @property
    def children(self) -> ChildRunPort:
        return self._services.children

    @property
    def workflows(self) -> GraphService:
        return self._services.workflows

    @property
    def gateway(self) -> Gateway:
        return self._services.gateway

    @property
    def conversation(self) -> Callable[[Mapping[str, Any], str], ChatRequest]:
        return self._services.conversation

    def key(self, name: str) -> str:
        """Return the operator's credential for a provider, or an empty string."""
        return self._key(name)

    @property
    def client(self) -> httpx.AsyncClient:
        return self._clients.upstream

    @property
    def guarded(self) -> httpx.AsyncClient:
        """The client for addresses from users or providers."""
        return self._clients.guarded

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        try:
            return await self._clients.fetcher.fetch_file(
                url, target, max_bytes=max_bytes, timeout_seconds=_DOWNLOAD_SECONDS
            )
        except errors.SixfoldError as error:
            raise EngineError(f"The provider's result could not be fetched: {error.message}.") from error


class _RemoteRun(msgspec.Struct, eq=False):
    """A task in progress, and the receiver of its reports."""

    number: int
    task: Task
    reports: RunReports
    loop: asyncio.AbstractEventLoop
    canceled: threading.Event = msgspec.field(default_factory=threading.Event)
    work: asyncio.Task[Result] | None = None
    # Whether the run was canceled while its worker was alive.
    stopped: bool = False

    def progress(self, fraction: float) -> None:
        self.loop.call_soon_threadsafe(self.reports.progress, fraction)

    def log(self, line: str) -> None:
        self.loop.call_soon_threadsafe(self.reports.log, line)

    def preview(self, content: bytes) -> None:
        self.loop.call_soon_threadsafe(self.reports.preview, content)


class RemoteSlot(Protocol):
    """The attributes of a driver that its workers use."""

    failpoints: dict[str, protocol.Failpoint]
    workers: set[RemoteWorker]


class RemoteWorker:
    """One remote engine, which runs up to `max_tasks` of its spec at the same time.

    `aborts` is False if a run that exceeds its time limit cannot be aborted alone, so that the worker ends.
    """

    def __init__(
        self, driver: RemoteSlot, spec: WorkerSpec, engine: RemoteEngine, *, aborts: bool = True
    ) -> None:
        self.reason = "had ended"
        self._aborts = aborts
        self.id = uuid.uuid4().hex
        self._driver = driver
        self._spec = spec
        self._engine = engine
        self._runs: dict[str, _RemoteRun] = {}
        self._started = 0
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        """Run `task` and return its outcome; never raises for errors of the engine or its machine."""
        if not self._alive:
            return WorkerLost(f"the worker {self.reason}")
        if len(self._runs) >= self._spec.max_tasks:
            raise RuntimeError(f"the worker is already running its maximum of {self._spec.max_tasks} tasks")
        self._started += 1
        run = self._runs[task.id] = _RemoteRun(self._started, task, reports, asyncio.get_running_loop())
        try:
            return await self._outcome(run)
        finally:
            del self._runs[task.id]

    async def _outcome(self, run: _RemoteRun) -> Outcome:
        failpoint = self._driver.failpoints.get(run.task.model)
        if failpoint == "crash":
            return WorkerLost("the worker crashed (injected by a failpoint)")
        prefix = f"{self.id}-{run.number}"
        staging = runner.FileStaging(self._spec.scratch, prefix)
        context = runner.RunContext(run, run.canceled, self._spec.scratch / f"{prefix}.tmp")
        assignment = runner.Assignment(run.number, run.task, context, staging)
        began = time.perf_counter_ns()
        run.work = asyncio.create_task(self._work(run, context, failpoint))
        try:
            outcome = await _engine_result(run)
        finally:
            # The task has the traceback of its exception, whose frames refer to the run: a cycle that the
            # garbage collector of Python 3.11 does not find.
            run.work = None
        # Waiting for a GPU or in a queue is not part of the run, which may be priced by its time.
        run_us = (time.perf_counter_ns() - began) // 1000 - int(run_clock.waited_seconds() * 1_000_000)
        if isinstance(outcome, Canceled) and not self._alive and not run.stopped:
            return WorkerLost(f"the worker {self.reason}")
        if isinstance(outcome, RemoteLost):
            await self.end(str(outcome))
            return WorkerLost(f"the worker {outcome}")
        reply = await asyncio.to_thread(_left, assignment, outcome, str(self._engine.version), run_us)
        if isinstance(outcome, BaseException):
            _clear_tracebacks(outcome)
        result = results.outcome(reply, self._spec.scratch, prefix)
        if isinstance(result, RunCompleted) and isinstance(outcome, Result):
            return _with_stored_files(result, outcome)
        return result

    async def _work(
        self, run: _RemoteRun, context: runner.RunContext, failpoint: protocol.Failpoint | None
    ) -> Result:
        if failpoint == "fail":
            raise EngineError("The model failed (injected by a failpoint).")
        if failpoint == "hang":
            await asyncio.Event().wait()
        return await self._engine.run(run.task, context)

    def cancel(self, task_id: str) -> None:
        """Cancel the task's coroutine, which cancels the remote request."""
        run = self._runs.get(task_id)
        if run is not None and run.work is not None:
            run.stopped = run.stopped or self._alive
            run.canceled.set()
            run.work.cancel()

    async def give_up(self, task_id: str) -> None:
        """Abort one run; other runs continue, unless the worker ends with it."""
        if self._aborts:
            self.cancel(task_id)
        else:
            await self.end("was removed, because a run exceeded its time limit")

    async def kill(self) -> None:
        """Abort all runs immediately. Idempotent."""
        await self.end("was killed")

    async def end(self, reason: str) -> None:
        """Abort every run and record the reason. Idempotent."""
        if self._alive:
            self._alive = False
            self.reason = reason
            self._driver.workers.discard(self)
            for task_id, run in tuple(self._runs.items()):
                # A run that ends its worker has been canceled already.
                if run.work is not asyncio.current_task():
                    self.cancel(task_id)
            await self._engine.close()

    async def stop(self) -> None:
        """Close the worker; an idle remote worker holds only connections."""
        await self.kill()


def _left(
    assignment: runner.Assignment, outcome: Result | BaseException, version: str, run_us: int
) -> protocol.Reply:
    """Stage the files of a run, remove its folder and return the reply."""
    reply = results.received(runner.settle(assignment, outcome, version, run_us), assignment.staging)
    assignment.context.clear()
    return reply


def _with_stored_files(completed: RunCompleted, result: Result) -> RunCompleted:
    """Mark the files that the engine stored during the run, which a process must not name."""
    pairs = zip(completed.files, result.artifacts, strict=True)
    files = tuple(msgspec.structs.replace(file, stored=artifact.stored) for file, artifact in pairs)
    return msgspec.structs.replace(completed, files=files)


def _clear_tracebacks(error: BaseException | None) -> None:
    """Break the cycles of an exception and the frames of the run, so that what the run has read is freed."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _engine_result(run: _RemoteRun) -> Result | BaseException:
    """Return the result or exception of the run; if the wait is canceled, the run is canceled too."""
    assert run.work is not None  # noqa: S101 - set one line before the call
    try:
        await asyncio.wait({run.work})
    # Reached at the run's time limit or at shutdown.
    except asyncio.CancelledError:
        run.canceled.set()
        run.work.cancel()
        # Mark the exception as retrieved.
        run.work.add_done_callback(lambda work: work.cancelled() or work.exception())
        raise
    if run.work.cancelled():
        return Canceled()
    return run.work.exception() or run.work.result()


class RemoteDriver:
    """Starts remote engines with their host services. `failpoints` (tests only) work as in other drivers."""

    name = "remote"

    def __init__(
        self, outside: HostServices, *, failpoints: Mapping[str, protocol.Failpoint] | None = None
    ) -> None:
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.workers: set[RemoteWorker] = set()
        self._outside = outside

    async def start(self, spec: WorkerSpec) -> RemoteWorker:
        """Build the engine and return its worker; raises `WorkerStartFailed`."""
        spec.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker = RemoteWorker(self, spec, _build(spec, self._outside))
        self.workers.add(worker)
        return worker

    async def close(self) -> None:
        """Abort every run. Idempotent."""
        for worker in tuple(self.workers):
            await worker.kill()


def _build(spec: WorkerSpec, outside: HostServices) -> RemoteEngine:
    try:
        engine: RemoteEngine = import_string.load(spec.factory)(outside, **spec.options)
    except (ImportError, AttributeError, TypeError, ValueError, EngineError) as error:
        raise StartFailed(f"{spec.factory}: {type(error).__name__}: {error}") from error
    return engine


class DriverSet:
    """Combines the drivers for local engines, remote engines, and `others`.

    Each driver in `others` receives the specs whose factory is the driver's name, such as `container`.
    """

    def __init__(self, local: Driver, remote: Driver, *others: Driver) -> None:
        self.name = local.name
        self._local = local
        self._remote = remote
        self._others = {other.name: other for other in others}

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker with the driver for its spec; raises `WorkerStartFailed`."""
        usual = self._remote if spec.remote else self._local
        return await self._others.get(spec.factory, usual).start(spec)

    async def sweep(self, living: Living) -> int:
        """Stop the workers of servers that have ended, if such workers can outlive their servers."""
        return await self._local.sweep(living) if isinstance(self._local, DetachedRun) else 0

    async def close(self) -> None:
        """Kill every worker of all drivers. Idempotent."""
        await asyncio.gather(
            *(driver.close() for driver in (self._local, self._remote, *self._others.values()))
        )
