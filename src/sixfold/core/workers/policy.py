"""What workers are started with, and how much of a machine they may take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.memory_budget import MachineMemory
from sixfold.core.workers.ports import WorkerSpec

RESIDENT = ("embedded", "own")  # kinds of engines whose modules are this program's, and start no thread


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """How many runs at once, for how long, and how often a lost one is tried again.

    A worker idles for `idle_seconds` where that is given, else as long as `idle_of` says of the model that it
    ran last, else as its engine's row says. Without `slots` nothing is claimed. `placed`: a worker starts on
    the hardware that its run is paid for, as on a cluster; elsewhere every kind of it is this `machine`.
    """

    slots: int
    run_limit_seconds: float
    lease_seconds: float
    max_attempts: int
    queue_ttl_seconds: float
    idle_seconds: float | None
    memory_bytes: int
    scratch: Path
    idle_of: Callable[[str], float | None] = lambda _model: None
    placed: bool = False
    machine: MachineMemory = field(default_factory=MachineMemory)


def _cpu_seconds(engine: EngineSpec, policy: WorkerPolicy) -> int:
    """What one run may take of the processors; weights compute on many threads, and have the clock alone."""
    if engine.lanes > 1 or engine.kind == "weights":
        return 0
    return math.ceil(engine.limit_seconds(policy.run_limit_seconds))


def worker_spec(engine: EngineSpec, policy: WorkerPolicy, hardware: str = "", holder: str = "") -> WorkerSpec:
    """The worker that an engine runs in, on some hardware, for the server `holder`."""
    return WorkerSpec(
        engine=engine.name,
        factory=engine.factory,
        memory_bytes=policy.memory_bytes if engine.memory_bytes is None else engine.memory_bytes,
        scratch=policy.scratch,
        cpu_seconds=_cpu_seconds(engine, policy),
        options=engine.options,
        lanes=engine.lanes,
        remote=engine.remote,
        start_seconds=engine.start_seconds,
        cancel_seconds=engine.cancel_seconds,
        vram_bytes=int(engine.vram_gb * 2**30) if engine.kind == "weights" else None,
        resident=engine.kind in RESIDENT,
        hardware=hardware if policy.placed else "",
        holder=holder,
    )
