"""Ports of the scheduler: workers, the drivers that start them, and the outcomes of runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sixfold.core.accounts.charges import LineItem
from sixfold.core.catalog.engines import Quality, Task
from sixfold.core.media.ports import StagedFile


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is to be: the engine (`module:attribute` and its options), and its limits.

    `lanes` is how many tasks it takes at once; `remote` workers are coroutines of the server itself.
    """

    engine: str
    factory: str
    memory_bytes: int  # 0 is no limit
    scratch: Path
    cpu_seconds: int = 0  # of one run; 0 is no limit
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lanes: int = 1
    remote: bool = False
    start_seconds: float = 0.0  # how long its engine may take to load, if more than the driver's own
    cancel_seconds: float = 0.0  # how long a canceled run may take to notice, the same
    vram_bytes: int | None = None  # of one graphics card, 0 where that is not known; None wants no card
    hardware: str = ""  # what a cluster places it on; empty is any machine
    holder: str = ""  # the server that hires it, by its name among those of the database
    resident: bool = False  # whoever makes the workers may import its module, so that they are born with it
    watched: bool = False  # somebody watches each of its steps: it does not step aside as others do


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The engine returned."""

    files: tuple[StagedFile, ...]
    data: Mapping[str, Any]
    quality: Quality | None
    engine_version: str
    run_us: int
    upstream_cost_micros: int | None = None
    billed: float | None = None
    lines: tuple[LineItem, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The engine raised. `public`: the message is for the user; `unusable`: the input was at fault."""

    message: str
    public: bool
    detail: str = ""
    unusable: bool = False


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run was canceled before it ended."""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker went away under the run: crashed, was killed, or ran out of memory."""

    reason: str


Outcome = RunCompleted | RunFailed | RunStopped | WorkerLost


@dataclass(frozen=True, slots=True)
class RunReports:
    """Where a run's progress (0 to 1) and log lines go; called on the event loop."""

    progress: Callable[[float], None]
    log: Callable[[str], None]


class WorkerStartFailed(Exception):
    """The worker did not become ready; the text says why."""


class Worker(Protocol):
    """One live worker: runs as many tasks at a time as its spec has lanes."""

    id: str

    @property
    def alive(self) -> bool:
        """False once the worker can run nothing more."""
        ...

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        """Run `task` to its end; never raises for what the engine or the worker did."""
        ...

    def cancel(self, task_id: str) -> None:
        """Ask the running task to stop; `run` then gives `RunStopped` (or what came first)."""
        ...

    async def give_up(self, task_id: str) -> None:
        """End a run that takes too long; the worker ends with it unless it can end one alone."""
        ...

    async def kill(self) -> None:
        """End the worker at once; a run in progress gives `WorkerLost`. Idempotent."""
        ...

    async def stop(self) -> None:
        """Let the worker go politely when idle; ends in `kill` after a short grace. Idempotent."""
        ...


class Driver(Protocol):
    """Somewhere to run workers. Inline, process, container and Ray pass one suite."""

    name: str

    async def start(self, spec: WorkerSpec) -> Worker:
        """A worker with its engine loaded; raises `WorkerStartFailed`."""
        ...

    async def close(self) -> None:
        """Kill every worker and free everything. Idempotent."""
        ...


@runtime_checkable
class MeasuredWorker(Protocol):
    """A worker of which it is known what it has taken of this machine's memory."""

    def peak_bytes(self) -> int:
        """The most so far, with all that it has started; 0 where that is not known."""
        ...


Living = Callable[[Sequence[str]], Awaitable[Collection[str]]]


@runtime_checkable
class DetachedRun(Protocol):
    """A driver whose workers outlive their server."""

    async def sweep(self, living: Living) -> int:
        """Stop what servers left that are gone; `living` tells which of some still live. Gives how many."""
        ...
