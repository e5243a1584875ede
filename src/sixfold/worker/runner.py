"""One run of an engine, the same in a worker process and inline: context, endings, staged files."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sixfold.core.work.engines import Artifact, Canceled, Engine, EngineError, Result, Task, UnusableInput
from sixfold.worker import protocol

PROGRESS_SECONDS = 0.05  # progress goes out at most this often; the last value always does
MAX_LOG_LINES = 10_000  # of one run
MAX_LINE_CHARACTERS = 4_000
MAX_DETAIL_CHARACTERS = 8_000
OUT_OF_MEMORY = "The model ran out of memory."
_CV2_OUT_OF_MEMORY = -4  # cv2.Error.StsNoMem


class EngineLoadFailed(Exception):
    """The engine could not be built; the text says why."""


class Sink(Protocol):
    """Where a run's reports go."""

    def progress(self, fraction: float) -> None:
        """Pass on how much is done."""
        ...

    def log(self, line: str) -> None:
        """Pass on one line."""
        ...


@dataclass(frozen=True, slots=True)
class Staging:
    """Where a run leaves its files: `scratch/<prefix>-<number>`, new, readable by this user only."""

    scratch: Path
    prefix: str

    def write(self, artifacts: tuple[Artifact, ...]) -> list[protocol.Staged]:
        """Write every artifact, or none."""
        staged: list[protocol.Staged] = []
        try:
            for index, artifact in enumerate(artifacts):
                staged.append(
                    protocol.Staged(f"{self.prefix}-{index}", artifact.content_type, dict(artifact.info))
                )
                _write_new(self.scratch / staged[-1].name, artifact.data)
        except BaseException:
            self.remove(staged)
            raise
        return staged

    def remove(self, staged: list[protocol.Staged]) -> None:
        """Take written files away again."""
        for file in staged:
            (self.scratch / file.name).unlink(missing_ok=True)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


class RunContext:
    """How the running engine speaks to the outside; usable from any of its threads."""

    def __init__(self, sink: Sink, canceled: threading.Event) -> None:
        self.canceled = canceled
        self._sink = sink
        self._lock = threading.Lock()
        self._latest = -1.0
        self._sent = -1.0
        self._sent_at = float("-inf")
        self._lines = 0

    def progress(self, fraction: float) -> None:
        """Report progress; raises `Canceled` when the run is no longer wanted."""
        if self.canceled.is_set():
            raise Canceled
        with self._lock:
            self._latest = max(self._latest, min(1.0, max(0.0, float(fraction))))
            if time.monotonic() - self._sent_at >= PROGRESS_SECONDS:
                self._send()

    def log(self, line: str) -> None:
        """Pass on the text, line by line, up to a limit of each."""
        for part in line.splitlines() or [""]:
            with self._lock:
                self._lines += 1
                if self._lines == MAX_LOG_LINES:
                    self._sink.log("(the log is cut off here)")
                elif self._lines < MAX_LOG_LINES:
                    self._sink.log(part[:MAX_LINE_CHARACTERS])

    def finish(self, fraction: float | None = None) -> None:
        """Send what is still unsent, or `fraction` in its place."""
        with self._lock:
            if fraction is not None:
                self._latest = fraction
            self._send()

    def _send(self) -> None:
        if self._latest > self._sent:
            self._sent = self._latest
            self._sent_at = time.monotonic()
            self._sink.progress(self._latest)


def load(factory: str) -> Engine:
    """Build the engine that `module:attribute` makes; raises `EngineLoadFailed`."""
    module, _, attribute = factory.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for name in attribute.split("."):
            target = getattr(target, name)
        engine = target()
        _ = (str(engine.name), str(engine.version), engine.run)
    except Exception as error:
        raise EngineLoadFailed(f"{factory}: {_described(error)}") from error
    return engine


def perform(
    engine: Engine, task: Task, context: RunContext, staging: Staging, failpoint: protocol.Failpoint | None
) -> protocol.Reply:
    """Run `task` to one of its endings; on any but `Done` no staged file is left."""
    staged: list[protocol.Staged] = []
    try:
        reset_generators()
        if failpoint is not None:
            _inject(failpoint, context)
        began = time.perf_counter_ns()
        result = engine.run(task, context)
        run_us = (time.perf_counter_ns() - began) // 1000
        if not isinstance(result, Result):
            raise TypeError(f"the engine returned {type(result).__name__}, not Result")  # noqa: TRY301 - one road
        staged = staging.write(result.artifacts)
        done = protocol.Done(staged, dict(result.data), result.quality, str(engine.version), run_us)
        protocol.frame(done)  # what cannot be told is a failure of this run, not of the worker
    except BaseException as error:  # noqa: BLE001 - the outermost loop: whatever an engine raises ends its run
        staging.remove(staged)
        return _ending(error, context)
    context.finish(1.0)
    return done


def _ending(error: BaseException, context: RunContext) -> protocol.Reply:
    if isinstance(error, Canceled) and context.canceled.is_set():
        return protocol.Halted()
    context.finish()
    if isinstance(error, EngineError):
        message = str(error)[:MAX_LINE_CHARACTERS] or "The model failed."
        return protocol.Fail(message, public=True, unusable=isinstance(error, UnusableInput))
    if isinstance(error, MemoryError) or getattr(error, "code", None) == _CV2_OUT_OF_MEMORY:
        return protocol.Fail(OUT_OF_MEMORY, public=True)
    detail = "".join(traceback.format_exception(error))
    return protocol.Fail(_described(error), public=False, detail=detail[-MAX_DETAIL_CHARACTERS:])


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
    """Give every run the same global generators, so that only inputs decide, never an earlier run."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setRNGSeed(0)
