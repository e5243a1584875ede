"""Live engines: models that go on while somebody watches, one step after another.

A step is a pure function of where things stand and of what the user holds. The state travels with every
step and is plain data of a few kilobytes, so the server always has the last one: a worker that dies
takes nothing along, and another goes on from there.

The server never looks into a state or a pose. It has an engine's `EngineStep` as an `StepRequest` and what
came of it as
`StepResult`, with the state packed (msgpack) and each pose a JSON object, written once, in the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sixfold.core.catalog.engines import Engine
from sixfold.core.workers.ports import RunFailed, WorkerLost

State = Mapping[str, Any]
MAX_WAYPOINTS = 100


@dataclass(frozen=True, slots=True)
class Controls:
    """What the user asks of a step: the keys that are held, and a new prompt or new waypoints, if any.

    A waypoint is x and z on the ground, in metres. None means: as before.
    """

    keys: tuple[str, ...] = ()
    prompt: str | None = None
    waypoints: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One step of a session: `ticks` of its clock at `fps` from `state` on (None: from the beginning).

    `draw=False` asks for no picture: nobody would see it.
    """

    model: str
    inputs: Mapping[str, Any]
    state: State | None
    controls: Controls
    fps: int
    ticks: int = 1
    draw: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """One encoded picture."""

    data: bytes
    format: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PackedStepResult:
    """Where things stand after a step, and what is to be shown: a pose for each tick, or one frame."""

    state: State
    poses: tuple[Mapping[str, Any], ...] = field(default=())
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A `EngineStep` as a session asks for it; `state` is as it was last `StepResult`."""

    model: str
    inputs: Mapping[str, Any]
    state: bytes | None
    controls: Controls
    fps: int
    ticks: int = 1
    draw: bool = True


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of an `StepRequest`: a `PackedStepResult` with its state and its poses packed."""

    state: bytes
    poses: tuple[bytes, ...] = ()
    frame: Frame | None = None


StepAnswer = StepResult | RunFailed | WorkerLost


class LiveEngine(Engine, Protocol):
    """An engine that also serves sessions."""

    def step(self, step: EngineStep) -> PackedStepResult:
        """Go on by some ticks; deterministic by the step alone."""
        ...


@runtime_checkable
class LiveWorker(Protocol):
    """A worker that can step; of drivers whose workers cannot, a session is refused."""

    @property
    def alive(self) -> bool:
        """False once the worker can do nothing more."""
        ...

    async def steps(self, asked: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        """Take a step of each of some sessions, one after the other; gives their answers in that order.

        Never raises for what an engine or the worker did.
        """
        ...

    async def kill(self) -> None:
        """End the worker at once. Idempotent."""
        ...
