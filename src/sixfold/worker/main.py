"""The main program of a forked worker."""

from __future__ import annotations

import ctypes
import math
import os
import queue
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from sixfold import import_string
from sixfold.core.catalog.engines import BatchEngine, Engine, Task
from sixfold.worker import protocol, runner, session_steps

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# The worker's socket, after standard input, output and error.
_SOCKET = 3
_READ_BYTES = 1 << 18
# Opened before the fork, so that child processes do not have to open it.
_libc = ctypes.CDLL(None, use_errno=True)


def serve(link: int, output: int, order: protocol.SpawnWorker, zygote: int) -> NoReturn:
    """Run the worker described by `order`; `link` and `output` are open descriptors. Never returns."""
    _settle(link, output, zygote)
    work(_SOCKET, order)


def work(link: int, order: protocol.SpawnWorker) -> NoReturn:
    """Run the worker in a process that is already isolated; `link` is the socket's descriptor."""
    if order.serves:
        _prepare(order)
        import_string.load(order.factory)(socket.socket(fileno=link))
        os._exit(0)
    worker = _Worker(socket.socket(fileno=link), order)
    worker.start()
    worker.work()
    os._exit(0)


def _temporary(order: protocol.SpawnWorker) -> Path:
    return Path(order.scratch) / f"{order.worker}.tmp"


def _prepare(order: protocol.SpawnWorker) -> None:
    """Apply the limits and change to the worker's temporary folder."""
    folder = _temporary(order)
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(folder)  # noqa: TID251 - set for libraries, not read
    for name, value in order.environment.items():
        os.environ[name] = value  # noqa: TID251 - the same
    tempfile.tempdir = None
    os.chdir(folder)
    with suppress(OSError):
        os.nice(order.niceness)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
    limit_memory(order.memory_bytes)


def _settle(link: int, output: int, zygote: int) -> None:
    """Detach from the zygote: session, signals, descriptors and umask."""
    os.setsid()
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The zygote ended before the line above.
    if os.getppid() != zygote:
        os._exit(0)
    # Orphans remain until this process ends and are then adopted by the zygote.
    adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # Move both descriptors above 3, whatever their numbers were.
    keep = os.dup(link), os.dup(output)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (keep[1], 1), (keep[1], 2)):
        os.dup2(source, target)
    os.dup2(keep[0], _SOCKET, inheritable=False)
    os.closerange(_SOCKET + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.umask(0o077)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants in all sessions."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def limit_memory(more_bytes: int) -> None:
    """Allow this process `more_bytes` of address space beyond its current use; 0 disables the limit."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if more_bytes:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def allow_cpu(seconds: int) -> None:
    """Allow this process `seconds` of CPU time from now on; 0 disables the limit."""
    if seconds:
        spent = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, hard))


class _WorkerJob(msgspec.Struct):
    run: protocol.RunMessage
    canceled: threading.Event = msgspec.field(default_factory=threading.Event)


class _ReportWriter(msgspec.Struct, frozen=True):
    """Sends the reports of one run to the server (`runner.ReportSink`)."""

    worker: _Worker
    number: int

    def progress(self, fraction: float) -> None:
        self.worker.send(protocol.ProgressMessage(self.number, fraction))

    def preview(self, content: bytes) -> None:
        self.worker.send(protocol.PreviewMessage(self.number, content))

    def log(self, line: str) -> None:
        """Write a line to the output pipe, or send a message if the worker runs more than one task."""
        if self.worker.max_tasks > 1:
            self.worker.send(protocol.LogMessage(self.number, line))
            return
        _flush()
        _write_all(1, f"{line}\n".encode(errors="replace"))


class _Worker:
    """Runs tasks in the main thread and receives messages in a second thread."""

    def __init__(self, link: socket.socket, order: protocol.SpawnWorker) -> None:
        self._link = link
        self._order = order
        self._scratch = Path(order.scratch)
        self._temporary = _temporary(order)
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[_WorkerJob | protocol.StepsMessage | None] = queue.SimpleQueue()
        self._jobs: dict[int, _WorkerJob] = {}
        self.max_tasks = order.max_tasks

    def send(self, message: protocol.WorkerMessage) -> None:
        """Send a message to the server; may be called from any thread."""
        data = protocol.frame(message)
        with self._sending:
            self._link.sendall(data)

    # -- lifecycle ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the listener, apply the limits and change to the worker's temporary folder."""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        _prepare(self._order)

    def work(self) -> None:
        """Build the engine, then run tasks until the server requests the end."""
        try:
            engine = runner.load(self._order.factory, self._order.options)
        except (runner.EngineLoadFailed, MemoryError) as error:
            self.send(protocol.StartFailed(str(error) or runner.OUT_OF_MEMORY))
            return
        _flush()
        self.send(protocol.WorkerReady(str(engine.name), str(engine.version)))
        for jobs in runner.BatchGathering(self._inbox, self.max_tasks, lambda job: _shape(engine, job)):
            if isinstance(jobs[0], protocol.StepsMessage):
                self.send(session_steps.run_steps(engine, jobs[0]))
            else:
                self._perform(engine, cast("list[_WorkerJob]", jobs))

    def _perform(self, engine: Engine, jobs: list[_WorkerJob]) -> None:
        random.seed(0)
        allow_cpu(self._order.cpu_seconds)
        assignments = [self._assignment(job) for job in jobs]
        try:
            if len(assignments) == 1:
                replies = [runner.perform(engine, assignments[0])]
            else:
                replies = runner.perform_many(cast("BatchEngine", engine), assignments)
        finally:
            for assignment in assignments:
                self._jobs.pop(assignment.number, None)
            _reset(self._temporary)
            _flush()
        for reply in replies:
            self.send(reply)

    def _assignment(self, job: _WorkerJob) -> runner.Assignment:
        run = job.run
        context = runner.RunContext(
            _ReportWriter(self, run.number), job.canceled, self._temporary / f"run-{run.number}"
        )
        staging = runner.FileStaging(self._scratch, f"{self._order.worker}-{run.number}")
        return runner.Assignment(run.number, _task(run), context, staging, run.failpoint)

    def _listen(self) -> None:
        with suppress(OSError, MemoryError, msgspec.MsgspecError, protocol.FrameTooLarge):
            frames = protocol.FrameSplitter()
            while data := self._link.recv(_READ_BYTES):
                for body in frames.feed(data):
                    self._handle(protocol.to_worker.decode(body))
        # The server has ended, so this process and its child processes end as well.
        os.killpg(0, signal.SIGKILL)

    def _handle(self, message: protocol.ToWorker) -> None:
        match message:
            case protocol.RunMessage():
                self._jobs[message.number] = job = _WorkerJob(message)
                self._inbox.put(job)
            case protocol.CancelMessage():
                if job := self._jobs.get(message.number):
                    job.canceled.set()
            case protocol.StepsMessage():
                self._inbox.put(message)
            case protocol.LeaveMessage():
                self._inbox.put(None)


def _task(run: protocol.RunMessage) -> Task:
    return Task(run.task, run.model, run.inputs, {name: Path(path) for name, path in run.files.items()})


def _shape(engine: Engine, job: _WorkerJob | protocol.StepsMessage) -> Hashable:
    if isinstance(job, protocol.StepsMessage) or job.run.failpoint is not None:
        return None
    return runner.shape_of(engine, _task(job.run))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _reset(folder: Path) -> None:
    """Delete the files that a run has left in the worker's temporary folder, and return to the folder."""
    with suppress(OSError):
        # A run may have deleted the folder, or changed to another one.
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chdir(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)
