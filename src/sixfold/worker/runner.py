"""Execution of an engine in a worker process or inline: context, outcomes and staged files."""

from __future__ import annotations

import importlib
import os
import queue
import shutil
import signal
import stat
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from sixfold.core.catalog.engines import (
    Artifact,
    BatchEngine,
    BatchJob,
    Canceled,
    Engine,
    EngineError,
    Result,
    Task,
    UnusableInput,
)
from sixfold.worker import protocol

# Progress is sent at most this often; the last value is always sent.
PROGRESS_SECONDS = 0.05
MAX_LOG_LINES = 10_000  # per run
MAX_PREVIEW_BYTES = 4 * 2**20
MAX_LINE_CHARACTERS = 4_000
MAX_DETAIL_CHARACTERS = 8_000
# How long a batch waits for further tasks of the same shape.
GATHER_SECONDS = 0.002
OUT_OF_MEMORY = "The model ran out of memory."
_CV2_OUT_OF_MEMORY = -4  # cv2.Error.StsNoMem


class EngineLoadFailed(Exception):
    """The engine cannot be loaded; the message states the reason."""


class ReportSink(Protocol):
    """Receives the reports of a run."""

    def progress(self, fraction: float) -> None: ...

    def log(self, line: str) -> None: ...

    def preview(self, content: bytes) -> None: ...


class FileStaging(msgspec.Struct, frozen=True):
    """The output files of a run: new files `scratch/<prefix>-<number>`, readable only by this user."""

    scratch: Path
    prefix: str

    def write(self, artifacts: tuple[Artifact, ...]) -> list[protocol.StagedMessage]:
        """Write all artifacts; if one fails, the files written so far are removed."""
        staged: list[protocol.StagedMessage] = []
        try:
            for index, artifact in enumerate(artifacts):
                staged.append(
                    protocol.StagedMessage(
                        f"{self.prefix}-{index}", artifact.content_type, dict(artifact.info)
                    )
                )
                if artifact.stored is not None:
                    continue
                target = self.scratch / staged[-1].name
                if artifact.path is None:
                    _write_new(target, artifact.data)
                else:
                    _take(artifact.path, target)
        except BaseException:
            self.remove(staged)
            raise
        return staged

    def remove(self, staged: list[protocol.StagedMessage]) -> None:
        for file in staged:
            (self.scratch / file.name).unlink(missing_ok=True)


def _take(source: Path, target: Path) -> None:
    """Move a file that an engine wrote, without following links."""
    if not stat.S_ISREG(source.lstat().st_mode):
        raise EngineError("The model's output must be a regular file.")
    shutil.move(source, target)
    target.chmod(0o600)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


class RunContext:
    """The context of a running engine, for use by any of its threads."""

    def __init__(self, sink: ReportSink, canceled: threading.Event, scratch: Path) -> None:
        self.canceled = canceled
        self._sink = sink
        self._scratch = scratch
        self._lock = threading.Lock()
        self._latest = -1.0
        self._sent = -1.0
        self._sent_at = float("-inf")
        self._lines = 0

    @property
    def scratch(self) -> Path:
        """The folder of this run, which is created on first use."""
        self._scratch.mkdir(mode=0o700, exist_ok=True)
        return self._scratch

    def clear(self) -> None:
        """Remove the run's folder."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def progress(self, fraction: float) -> None:
        """Report progress; raises `Canceled` if the run was canceled."""
        if self.canceled.is_set():
            raise Canceled
        with self._lock:
            self._latest = max(self._latest, min(1.0, max(0.0, float(fraction))))
            if time.monotonic() - self._sent_at >= PROGRESS_SECONDS:
                self._send()

    def log(self, line: str) -> None:
        """Send the log text line by line, up to the limits on lines and their length."""
        for part in line.splitlines() or [""]:
            with self._lock:
                self._lines += 1
                if self._lines == MAX_LOG_LINES:
                    self._sink.log("(the log is cut off here)")
                elif self._lines < MAX_LOG_LINES:
                    self._sink.log(part[:MAX_LINE_CHARACTERS])

    def preview(self, content: bytes) -> None:
        """Send a partial result, unless it is too large."""
        if len(content) <= MAX_PREVIEW_BYTES:
            self._sink.preview(content)

    def finish(self, fraction: float | None = None) -> None:
        """Send the latest progress if it has not been sent yet, or `fraction` instead."""
        with self._lock:
            if fraction is not None:
                self._latest = fraction
            self._send()

    def _send(self) -> None:
        if self._latest > self._sent:
            self._sent = self._latest
            self._sent_at = time.monotonic()
            self._sink.progress(self._latest)


def load(factory: str, options: Mapping[str, Any] | None = None) -> Engine:
    """Build the engine from the factory `module:attribute` with `options`; raises `EngineLoadFailed`."""
    module, _, attribute = factory.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for name in attribute.split("."):
            target = getattr(target, name)
        engine = target(**(options or {}))
        _ = (str(engine.name), str(engine.version), engine.run)
    except Exception as error:
        raise EngineLoadFailed(f"{factory}: {_described(error)}") from error
    return engine


class Assignment(msgspec.Struct, frozen=True):
    """One run in a worker: its number, its task, and the receivers of its reports and files."""

    number: int
    task: Task
    context: RunContext
    staging: FileStaging
    failpoint: protocol.Failpoint | None = None


def perform(engine: Engine, assignment: Assignment) -> protocol.Reply:
    """Run one task and return its reply; files remain staged only if the reply is `RunDone`."""
    outcome: Result | BaseException
    began = time.perf_counter_ns()
    try:
        reset_generators()
        if assignment.failpoint is not None:
            _inject(assignment.failpoint, assignment.context)
        began = time.perf_counter_ns()
        outcome = engine.run(assignment.task, assignment.context)
    except BaseException as error:  # noqa: BLE001 - the outermost loop: an exception of an engine ends its run
        outcome = error
    return settle(assignment, outcome, str(engine.version), (time.perf_counter_ns() - began) // 1000)


def shape_of(engine: Engine, task: Task) -> Hashable:
    """Return the shape of a task for batching, or None (run alone) if the engine raises an error."""
    try:
        return cast("BatchEngine", engine).shape(task)
    except Exception:  # noqa: BLE001 - the run alone raises its error to its user
        return None


def perform_many(engine: BatchEngine, assignments: Sequence[Assignment]) -> list[protocol.Reply]:
    """Run tasks of one shape together and return their replies.

    Each reply reports the time of the whole batch.
    """
    outcomes: Sequence[Result | BaseException]
    began = time.perf_counter_ns()
    try:
        reset_generators()
        outcomes = engine.run_many(
            [BatchJob(assignment.task, assignment.context) for assignment in assignments]
        )
        if len(outcomes) != len(assignments):
            raise TypeError(f"the engine must return {len(assignments)} results (got {len(outcomes)})")  # noqa: TRY301 - handled like the exceptions of the engine
    except BaseException as error:  # noqa: BLE001 - the outermost loop: an exception of a batch ends its runs
        outcomes = [error] * len(assignments)
    run_us = (time.perf_counter_ns() - began) // 1000
    version = str(engine.version)
    return [
        settle(assignment, outcome, version, run_us)
        for assignment, outcome in zip(assignments, outcomes, strict=True)
    ]


def settle(
    assignment: Assignment, outcome: Result | BaseException, version: str, run_us: int
) -> protocol.Reply:
    """Stage the files of a run and return its reply; a result that cannot be encoded fails the run."""
    staged: list[protocol.StagedMessage] = []
    try:
        if isinstance(outcome, BaseException):
            raise outcome  # noqa: TRY301 - one handler for errors of the engine and of its files
        if not isinstance(outcome, Result):
            raise TypeError(f"the engine must return a Result (got {type(outcome).__name__})")  # noqa: TRY301 - the same
        staged = assignment.staging.write(outcome.artifacts)
        message = protocol.RunDone(
            number=assignment.number,
            files=staged,
            data=dict(outcome.data),
            quality=outcome.quality,
            version=version,
            run_us=run_us,
            upstream_cost_micros=outcome.upstream_cost_micros,
            billed=outcome.billed,
            lines=outcome.lines,
            others=dict(outcome.others),
            words=outcome.words,
        )
        # A result that cannot be encoded is a failure of this run, not of the worker.
        protocol.frame(message)
    except BaseException as error:  # noqa: BLE001 - the outermost loop: an exception of an engine ends its run
        assignment.staging.remove(staged)
        return _failure(error, assignment)
    assignment.context.finish(1.0)
    return message


def _failure(error: BaseException, assignment: Assignment) -> protocol.Reply:
    number, context = assignment.number, assignment.context
    if isinstance(error, Canceled) and context.canceled.is_set():
        return protocol.RunHalted(number)
    context.finish()
    if isinstance(error, EngineError):
        message = str(error)[:MAX_LINE_CHARACTERS] or "The model failed."
        return protocol.RunFailedMessage(
            number, message, public=True, unusable=isinstance(error, UnusableInput)
        )
    if isinstance(error, MemoryError) or getattr(error, "code", None) == _CV2_OUT_OF_MEMORY:
        return protocol.RunFailedMessage(number, OUT_OF_MEMORY, public=True)
    if isinstance(error, protocol.FrameTooLarge):
        return protocol.RunFailedMessage(number, f"The model returned too much: {error}.", public=True)
    detail = "".join(traceback.format_exception(error))
    return protocol.RunFailedMessage(
        number, _described(error), public=False, detail=detail[-MAX_DETAIL_CHARACTERS:]
    )


T = TypeVar("T")


class BatchGathering(Generic[T]):
    """The task queue of a worker, which yields single runs or batches of runs with equal shapes.

    `None` in the inbox ends the iteration after the earlier tasks.
    """

    def __init__(
        self, inbox: queue.SimpleQueue[T | None], max_tasks: int, shape: Callable[[T], Hashable]
    ) -> None:
        self._inbox = inbox
        self._max_tasks = max_tasks
        self._shape = shape
        self._waiting: deque[T] = deque()
        self._leaving = False

    def __iter__(self) -> Iterator[list[T]]:
        while (first := self._first()) is not None:
            yield self._batch(first)

    def _first(self) -> T | None:
        if self._waiting:
            return self._waiting.popleft()
        return None if self._leaving else self._inbox.get()

    def _batch(self, first: T) -> list[T]:
        shape = self._shape(first) if self._max_tasks > 1 else None
        if shape is None:
            return [first]
        self._listen()
        batch = [first]
        for other in tuple(self._waiting):
            if len(batch) < self._max_tasks and self._shape(other) == shape:
                self._waiting.remove(other)
                batch.append(other)
        return batch

    def _listen(self) -> None:
        """Receive messages, and wait briefly for more while the batch has room."""
        until = time.monotonic() + GATHER_SECONDS
        with suppress(queue.Empty):
            while not self._leaving and len(self._waiting) + 1 < self._max_tasks:
                item = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
                if item is None:
                    self._leaving = True
                else:
                    self._waiting.append(item)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_LINE_CHARACTERS]


def _inject(failpoint: protocol.Failpoint, context: RunContext) -> None:
    match failpoint:
        case "fail":
            raise EngineError("The model failed (injected by a failpoint).")
        case "hang":
            context.canceled.wait()
            raise Canceled
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)


def reset_generators() -> None:
    """Reset the global random generators, so that a run depends only on its inputs."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setRNGSeed(0)
