"""Ports of the scheduler: workers, the drivers that start them, and the outcomes of runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from sixfold.core.accounts.charges import LineItem
from sixfold.core.catalog.engines import Quality, Task
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.media.ports import StagedFile


class WorkerSpec(msgspec.Struct, frozen=True):
    """The engine that a worker loads (`module:attribute` with options), and the worker's limits.

    `max_tasks` is the number of tasks that the worker runs at the same time. `remote` workers are coroutines
    of the server.
    """

    engine: str
    factory: str
    memory_bytes: int  # 0: unlimited
    scratch: Path
    cpu_seconds: int = 0  # per run; 0: unlimited
    options: Mapping[str, Any] = {}
    max_tasks: int = 1
    remote: bool = False
    # Seconds that the engine may take to load, if longer than the driver's default.
    start_seconds: float = 0.0
    # Seconds that a canceled run may take to react, if longer than the driver's default.
    cancel_seconds: float = 0.0
    # Memory of one graphics card; 0 if the amount is unknown, None if a card is not needed.
    vram_bytes: int | None = None
    hardware: str = ""  # placement on a cluster; empty: any machine
    # The name of the server that starts the worker, unique within the database.
    holder: str = ""
    # The zygote may import the engine's module, so that forked workers start with it loaded.
    resident: bool = False
    # A live session displays each step, so the worker runs at normal CPU priority.
    watched: bool = False


class RunCompleted(msgspec.Struct, frozen=True):
    """The result of an engine that has returned."""

    files: tuple[StagedFile, ...]
    data: Mapping[str, Any]
    quality: Quality | None
    engine_version: str
    run_us: int
    upstream_cost_micros: int | None = None
    billed: float | None = None
    lines: tuple[LineItem, ...] = ()
    others: Mapping[str, Any] = {}
    words: PromptWords = NO_WORDS


class RunFailed(msgspec.Struct, frozen=True):
    """The error that an engine raised.

    `public` marks a message that the user may read, `unusable` an error caused by the input.
    """

    message: str
    public: bool
    detail: str = ""
    unusable: bool = False


class RunStopped(msgspec.Struct, frozen=True):
    """The outcome of a run that was canceled before it ended."""


class WorkerLost(msgspec.Struct, frozen=True):
    """The outcome of a run whose worker crashed, was killed or ran out of memory."""

    reason: str


Outcome = RunCompleted | RunFailed | RunStopped | WorkerLost


def _show_nothing(_content: bytes) -> None: ...


class RunReports(msgspec.Struct, frozen=True):
    """Callbacks for a run's progress (0 to 1), log lines and partial images, called on the event loop."""

    progress: Callable[[float], None]
    log: Callable[[str], None]
    preview: Callable[[bytes], None] = _show_nothing


class WorkerStartFailed(Exception):
    """A worker does not become ready; the message states the reason."""


class Worker(Protocol):
    """A running worker, which runs up to `max_tasks` of its spec at the same time."""

    id: str

    @property
    def alive(self) -> bool:
        """Whether the worker can run more tasks."""
        ...

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        """Run `task` and return its outcome; never raises for errors of the engine or the worker."""
        ...

    def cancel(self, task_id: str) -> None:
        """Request that the running task stop.

        `run` then returns `RunStopped`, or the outcome that came first.
        """
        ...

    async def give_up(self, task_id: str) -> None:
        """Abort a run that exceeded its time limit; kill the worker unless it can abort a single run."""
        ...

    async def kill(self) -> None:
        """Kill the worker immediately; a run in progress returns `WorkerLost`. Idempotent."""
        ...

    async def stop(self) -> None:
        """Stop an idle worker gracefully, and kill it after a short grace period. Idempotent."""
        ...


class Driver(Protocol):
    """A way to run workers: inline, in processes, in containers, on Ray or on remote machines."""

    name: str

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker and load its engine; raises `WorkerStartFailed`."""
        ...

    async def close(self) -> None:
        """Kill every worker and release all resources. Idempotent."""
        ...


@runtime_checkable
class MeasuredWorker(Protocol):
    """A worker whose memory use can be measured."""

    def peak_bytes(self) -> int:
        """Return the peak memory of the worker and its child processes in bytes, or 0 if unknown."""
        ...


Living = Callable[[Sequence[str]], Awaitable[Collection[str]]]


@runtime_checkable
class DetachedRun(Protocol):
    """A driver whose workers can outlive their server."""

    async def sweep(self, living: Living) -> int:
        """Stop the workers of servers that have ended; return the number of workers.

        `living` returns those of the given servers that are still running.
        """
        ...
