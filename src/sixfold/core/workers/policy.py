"""The settings with which workers are started."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec

from sixfold.core.catalog.models import EngineSpec
from sixfold.core.workers.memory_budget import MemoryBudget
from sixfold.core.workers.ports import WorkerSpec

# Kinds of engines whose modules are part of Sixfold and do not start threads when imported.
RESIDENT = ("embedded", "own")


class WorkerPolicy(msgspec.Struct, frozen=True):
    """Limits for runs and workers.

    An idle worker is stopped after `idle_seconds` if set, or else after the time that `idle_of` returns for
    the model that it ran last, or else after the time of its engine. If `slots` is 0, this server does not
    claim predictions. If `placed` is set, a worker starts on the hardware for which its run is charged, as on
    a cluster; otherwise all hardware names refer to this `machine`.
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
    memory: MemoryBudget = msgspec.field(default_factory=MemoryBudget)


def _cpu_seconds(engine: EngineSpec, policy: WorkerPolicy) -> int:
    """Return the CPU seconds of one run, or 0 (unlimited) for engines that compute in many threads."""
    if engine.max_tasks > 1 or engine.kind == "weights":
        return 0
    return math.ceil(engine.limit_seconds(policy.run_limit_seconds))


def worker_spec(engine: EngineSpec, policy: WorkerPolicy, hardware: str = "", holder: str = "") -> WorkerSpec:
    """Return the spec of an engine's worker on `hardware`, started by the server `holder`."""
    return WorkerSpec(
        engine=engine.name,
        factory=engine.factory,
        memory_bytes=policy.memory_bytes if engine.memory_bytes is None else engine.memory_bytes,
        scratch=policy.scratch,
        cpu_seconds=_cpu_seconds(engine, policy),
        options=engine.options,
        max_tasks=engine.max_tasks,
        remote=engine.remote,
        start_seconds=engine.start_seconds,
        cancel_seconds=engine.cancel_seconds,
        vram_bytes=int(engine.vram_gb * 2**30) if engine.kind == "weights" else None,
        resident=engine.kind in RESIDENT,
        hardware=hardware if policy.placed else "",
        holder=holder,
    )
