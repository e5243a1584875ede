"""Workers as forked processes on this machine: the default driver."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from sixfold import settings
from sixfold.core.catalog.engines import Task
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
from sixfold.drivers import process_memory, results
from sixfold.drivers.forkserver import ForkServer, ForkServerGone, environment
from sixfold.drivers.gpus import GpuSlots
from sixfold.drivers.printed_output import PrintedOutput
from sixfold.drivers.session_steps import SessionStepper
from sixfold.drivers.worker_messages import WorkerMessages
from sixfold.worker import protocol, runner

# Never torch or ONNX: they start threads, which do not survive a fork.
PRELOAD = ("numpy.random", "PIL.Image", "cv2")
_TAIL_LINES = 20
# The maximum time between the two signs of a worker's end: its exit and its closed socket.
_HANG_UP_SECONDS = 2.0


class ProcessTimeouts(msgspec.Struct, frozen=True):
    """Timeouts of the driver in seconds; a spec may allow more time to start and to cancel."""

    start: float = 120.0
    cancel: float = 2.0
    stop: float = 2.0


class _CurrentRun(msgspec.Struct):
    number: int
    task_id: str
    prefix: str
    reports: RunReports
    outcome: asyncio.Future[Outcome]
    canceled: bool = False
    abandoned: bool = False
    deadline: asyncio.TimerHandle | None = None
    lines: int = 0


class WorkerStarter(Protocol):
    """Starts processes and reports their exits: a `ForkServer`, or a replacement for it."""

    alive: bool

    async def spawn(self, order: protocol.SpawnWorker, link: int, output: int) -> asyncio.Future[str]:
        """Start a worker and return a future for the reason of its exit; raises `ForkServerGone`."""
        ...

    def kill(self, worker: str) -> None: ...

    def pid_of(self, worker: str) -> int | None:
        """Return the worker's process id, or None if it is not alive."""
        ...


class ProcessWorker(asyncio.Protocol):
    """One forked worker, with messages on its socket and printed output on a pipe."""

    def __init__(self, driver: ProcessDriver, spec: WorkerSpec, server: WorkerStarter, output: int) -> None:
        self.id = uuid.uuid4().hex
        self.engine_name = ""
        self.engine_version = ""
        self._loop = asyncio.get_running_loop()
        self._driver = driver
        self._scratch = spec.scratch.absolute()
        self._server = server
        self._messages = WorkerMessages(self._handle, self.kill_now)
        self._transport: asyncio.Transport | None = None
        self._alive = True
        self._end_reason = ""
        self._exit_reason: str | None = None
        self._hung_up = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._cleanup: asyncio.Task[None] | None = None
        self._max_tasks = spec.max_tasks
        # The reservation on a graphics card.
        self.card = 0
        self._start_seconds = max(driver.timeouts.start, spec.start_seconds)
        self._cancel_seconds = max(driver.timeouts.cancel, spec.cancel_seconds)
        self._current: dict[int, _CurrentRun] = {}
        self._steps = SessionStepper()
        self._runs = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._output = PrintedOutput(output, lambda lines: self._log(lines, self._alone))

    # -- the Worker port ---------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the worker can run more tasks."""
        return self._alive

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process is not alive."""
        return self._server.pid_of(self.id)

    def peak_bytes(self) -> int:
        """Return the worker's peak memory in bytes."""
        return process_memory.peak(self.pid)

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        """Run `task` and return its outcome; never raises for errors of the engine or the worker."""
        if not self._alive or self._transport is None:
            return WorkerLost(self._end_reason or "the worker had ended")
        if len(self._current) >= self._max_tasks:
            raise RuntimeError(f"the worker is already running its maximum of {self._max_tasks} tasks")
        self._runs += 1
        files = {name: str(path.absolute()) for name, path in task.files.items()}
        point = self._driver.failpoints.get(task.model)
        order = protocol.RunMessage(self._runs, task.id, task.model, dict(task.inputs), files, point)
        try:
            data = protocol.frame(order)
        except (TypeError, ValueError, OverflowError) as error:
            return RunFailed(f"The task cannot be sent to a worker: {error}", public=False)
        current = _CurrentRun(
            self._runs, task.id, f"{self.id}-{self._runs}", reports, self._loop.create_future()
        )
        self._read_output()
        self._current[current.number] = current
        self._transport.write(data)
        # A run of several minutes does not hold a copy of its inputs.
        del order, data
        try:
            return await current.outcome
        except asyncio.CancelledError:
            current.abandoned = True
            self.cancel(task.id)
            raise

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        """Run one step per session; never raises for errors of the engine or the worker."""
        transport = self._transport
        if not self._alive or transport is None:
            return [WorkerLost(self._end_reason or "the worker had ended")] * len(requests)
        self._runs += 1
        point = self._driver.failpoints.get(requests[0].model)
        return await self._steps.send(
            self._runs, requests, point, lambda order: transport.write(protocol.frame(order))
        )

    def cancel(self, task_id: str) -> None:
        """Request that the running task stop, and kill the worker if it does not."""
        current = next((run for run in self._current.values() if run.task_id == task_id), None)
        if current is None or current.canceled or self._transport is None:
            return
        current.canceled = True
        self._transport.write(protocol.frame(protocol.CancelMessage(current.number)))
        current.deadline = self._loop.call_later(
            self._cancel_seconds, self.kill_now, "did not stop when canceled, and was killed"
        )

    async def give_up(self, task_id: str) -> None:
        """Abort a run that exceeded its time limit, together with the worker."""
        await self.kill()

    async def kill(self) -> None:
        """Kill the worker immediately; a run in progress returns `WorkerLost`. Idempotent."""
        self.kill_now("was killed")
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Stop the worker gracefully, and kill it after a short grace period. Idempotent."""
        if self._alive and self._transport is not None:
            self._transport.write(protocol.frame(protocol.LeaveMessage()))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._driver.timeouts.stop):
                    await asyncio.shield(self._ended)
        await self.kill()

    # -- start and end -----------------------------------------------------------------------------

    async def begin(self, exit_future: asyncio.Future[str]) -> None:
        """Wait until the engine is loaded; `exit_future` resolves to the reason for the process's exit.

        Raises `StartFailed`, and `ForkServerGone` if the zygote ended meanwhile.
        """
        exit_future.add_done_callback(lambda future: self._exited(future.result()))
        try:
            async with asyncio.timeout(self._start_seconds):
                await self._ready
        except TimeoutError as error:
            raise StartFailed("the engine did not load in time") from error

    def kill_now(self, reason: str) -> None:
        """Kill the process for a reason; its end is then handled in the usual way."""
        if self._alive:
            self._alive = False
            self._end_reason = reason
            self._server.kill(self.id)

    def _exited(self, reason: str) -> None:
        self._exit_reason = reason
        self._end_seen()

    def _end_seen(self) -> None:
        """Clean up once both the zygote and the socket have reported the end, and all output was read."""
        self._alive = False
        if self._cleanup is not None:
            return
        if self._exit_reason is not None and self._hung_up:
            self.clean_up()
        elif not self._ended.done():
            self._loop.call_later(_HANG_UP_SECONDS, self.clean_up)
            if self._hung_up:
                self._server.kill(self.id)  # the worker is useless without its socket

    def clean_up(self) -> None:
        """Release all resources and resolve pending futures. Idempotent."""
        if self._cleanup is None:
            self._alive = False
            self._cleanup = self._loop.create_task(self._clean_up())

    async def _clean_up(self) -> None:
        await self._messages.finish()
        self._read_output()
        self._output.close()
        if self._transport is not None:
            self._transport.abort()
        reason = self._end_reason or self._exit_reason or "hung up"
        self._end_reason = f"the worker {reason}"
        await asyncio.to_thread(self.clean)
        if not self._ready.done():
            server_gone = not self._server.alive
            error = (
                ForkServerGone(self._end_reason)
                if server_gone
                else StartFailed(self._with_tail(self._end_reason))
            )
            self._ready.set_exception(error)
            # Mark the exception as retrieved: an abandoned start has no receiver.
            self._ready.exception()
        self._steps.fail_all(self._end_reason)
        for current in tuple(self._current.values()):
            self._finish(current.number, RunStopped() if current.canceled else WorkerLost(self._end_reason))
        self._driver.workers.discard(self)
        self._driver.cards.release(self.card)
        self._ended.set_result(None)

    def clean(self) -> None:
        """Remove the files that the worker left."""
        shutil.rmtree(self._scratch / f"{self.id}.tmp", ignore_errors=True)
        for current in tuple(self._current.values()):
            results.remove_staged(self._scratch, current.prefix)

    def _with_tail(self, text: str) -> str:
        return "\n".join([text, *self._tail])

    # -- incoming messages -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a socket's is a Transport

    def data_received(self, data: bytes) -> None:
        """Handle received messages, after the output that was printed before the messages."""
        self._output.read()
        if self._transport is not None:
            self._messages.feed(data, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up = True
        self._end_seen()

    def _handle(self, message: protocol.ToServer) -> None:
        match message:
            case protocol.WorkerReady(name, version):
                self.engine_name, self.engine_version = name, version
                if not self._ready.done():
                    self._ready.set_result(None)
            case protocol.StartFailed(reason):
                self._end_reason = self._end_reason or f"could not load its engine: {reason}"
            case protocol.ProgressMessage() | protocol.PreviewMessage():
                self._report(message)
            case protocol.LogMessage(number, line):
                self._log([line.encode()], self._current.get(number))
            case protocol.StepsDone():
                self._steps.resolve(message)
            case protocol.RunDone() | protocol.RunFailedMessage() | protocol.RunHalted():
                current = self._current.get(message.number)
                if current is not None:
                    self._output.end_line()
                    removal: asyncio.Future[None] | None = None
                    if isinstance(message, protocol.RunFailedMessage):
                        # A result that exceeds a limit may have files.
                        removal = self._loop.run_in_executor(
                            None, results.remove_staged, self._scratch, current.prefix
                        )
                    outcome = results.outcome(message, self._scratch, current.prefix)
                    self._finish(message.number, outcome, after=removal)

    def _report(self, message: protocol.ProgressMessage | protocol.PreviewMessage) -> None:
        current = self._current.get(message.number)
        if current is None or current.abandoned:
            return
        if isinstance(message, protocol.ProgressMessage):
            current.reports.progress(message.fraction)
        elif len(message.content) <= runner.MAX_PREVIEW_BYTES:
            current.reports.preview(message.content)

    @property
    def _alone(self) -> _CurrentRun | None:
        """The run that owns printed output, which requires that the worker runs one task at a time."""
        return next(iter(self._current.values()), None) if self._max_tasks == 1 else None

    def _finish(self, number: int, outcome: Outcome, after: asyncio.Future[None] | None = None) -> None:
        current = self._current.pop(number, None)
        if current is None:
            return
        if current.deadline is not None:
            current.deadline.cancel()
        if after is None:
            results.settle(current.outcome, outcome)
        else:
            after.add_done_callback(lambda _: results.settle(current.outcome, outcome))

    def _read_output(self) -> None:
        """Log all output that was printed so far."""
        self._output.read()
        self._output.end_line()

    def _log(self, lines: Sequence[bytes], current: _CurrentRun | None) -> None:
        self._tail.extend(map(_text, lines[-_TAIL_LINES:]))
        if current is None or current.abandoned:
            return
        allowed = lines[: max(0, runner.MAX_LOG_LINES - current.lines)]
        current.lines += len(allowed)
        for line in allowed:
            current.reports.log(_text(line))


def _text(line: bytes) -> str:
    return line[: runner.MAX_LINE_CHARACTERS].decode(errors="replace")


class ProcessDriver:
    """Forks workers from one zygote, which starts on first use and again after it has ended.

    `environ` is the environment of the workers, in addition to a few fixed values; the default contains the
    variables that the settings allow. `failpoints` (tests only) make a model's engine fail, hang or crash.
    """

    name = "process"

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        preload: Sequence[str] = PRELOAD,
        niceness: int = 5,
        timeouts: ProcessTimeouts | None = None,
        cards: GpuSlots | None = None,
    ) -> None:
        self.cards = cards or GpuSlots()
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.timeouts = timeouts or ProcessTimeouts()
        self.workers: set[ProcessWorker] = set()
        self._environ = environment(settings.worker_environment() if environ is None else environ)
        self._preload = tuple(preload)
        self._niceness = niceness
        self._server: ForkServer | None = None
        self._booting = asyncio.Lock()
        self._closed = False

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's process id, or None if it is not alive."""
        return self._server.pid if self._server is not None and self._server.alive else None

    async def warm(self) -> None:
        """Start the zygote now, so that the first worker need not wait for it."""
        await self.starter()

    async def start(self, spec: WorkerSpec) -> ProcessWorker:
        spec.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            try:
                return await self._start(spec)
            except ForkServerGone:
                # Retry once, with a new zygote.
                return await self._start(spec)
        except (ForkServerGone, OSError) as error:
            raise StartFailed(f"the worker could not be forked: {error}") from error

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(worker.kill() for worker in tuple(self.workers)))
        async with self._booting:
            server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def starter(self) -> WorkerStarter:
        """Return the object that starts this driver's workers."""
        async with self._booting:
            if self._closed:
                raise StartFailed("the driver is closed")
            if self._server is None or not self._server.alive:
                if self._server is not None:
                    await self._server.close()
                    self._server = None
                self._server = await ForkServer.boot(self._environ, self._preload)
            return self._server

    def new_worker(self, spec: WorkerSpec, starter: WorkerStarter, output: int) -> ProcessWorker:
        """Return the worker object for a process that is about to start."""
        return ProcessWorker(self, spec, starter, output)

    async def _start(self, spec: WorkerSpec) -> ProcessWorker:
        server = await self.starter()
        card, name = (0, "") if spec.vram_bytes is None else await self.cards.take(spec.vram_bytes)
        with contextlib.ExitStack() as undo:
            # Until the worker exists, its end cannot release these.
            undo.callback(self.cards.release, card)
            ours, theirs = map(undo.enter_context, socket.socketpair())
            reading, writing = os.pipe2(os.O_CLOEXEC)
            undo.pop_all()
        os.set_blocking(reading, False)
        worker = self.new_worker(spec, server, reading)
        worker.card = card
        self.workers.add(worker)
        try:
            try:
                ours.setblocking(False)
                await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
                exit_future = await server.spawn(self._order(worker.id, spec, name), theirs.fileno(), writing)
            except BaseException:
                # Without a process, the end of the worker would not be reported.
                worker.clean_up()
                raise
            # While these are open in this process, the worker's end cannot be detected.
            finally:
                theirs.close()
                os.close(writing)
            await worker.begin(exit_future)
        except BaseException:
            worker.kill_now("was not started")
            raise
        return worker

    def _order(self, worker_id: str, spec: WorkerSpec, card: str) -> protocol.SpawnWorker:
        """Return the request to the zygote; `card` names the graphics card that the worker may use."""
        return protocol.SpawnWorker(
            worker_id,
            spec.factory,
            spec.memory_bytes,
            str(spec.scratch.absolute()),
            0 if spec.watched else self._niceness,
            spec.cpu_seconds,
            spec.max_tasks,
            dict(spec.options),
            {"CUDA_VISIBLE_DEVICES": card} if card else {},
            spec.resident,
        )
