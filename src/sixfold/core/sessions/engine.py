"""Live engines: models that run step by step while a user watches.

A step is a pure function of the state and the user's controls. The state travels with every step and is plain
data of a few kilobytes, so the server always has the latest state: if a worker dies, another worker continues
from that state.

The server does not decode states or poses. It sends a `StepRequest` and receives a `PackedStepResult`, whose
state is msgpack and whose poses are JSON objects encoded in the worker. Engines see the decoded forms,
`EngineStep` and `StepResult`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from sixfold.core.catalog.engines import Engine
from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.core.workers.ports import RunFailed, WorkerLost

State = Mapping[str, Any]
MAX_WAYPOINTS = 100
# The largest result of a step. A session keeps the poses of 35 seconds, and sends its state with each step.
MAX_STATE_BYTES, MAX_POSE_BYTES, MAX_FRAME_BYTES, MAX_POSES = 2**20, 32 * 2**10, 16 * 2**20, 100
# The names of keys in messages, and the key that an engine receives.
KEYS: Mapping[str, str] = {
    **{name: name for name in ("w", "a", "s", "d", "shift")},
    "arrowup": "w",
    "arrowleft": "a",
    "arrowdown": "s",
    "arrowright": "d",
    "up": "w",
    "left": "a",
    "down": "s",
    "right": "d",
}


class Controls(msgspec.Struct, frozen=True):
    """The user's input for a step: the pressed keys of `KEYS`, and a new prompt or new waypoints, if any.

    A waypoint is a pair of x and z on the ground, in meters. None means unchanged.
    """

    keys: tuple[str, ...] = ()
    prompt: str | None = None
    waypoints: tuple[tuple[float, float], ...] | None = None


class EngineStep(msgspec.Struct, frozen=True):
    """One step of a session: `ticks` of its clock at `fps`, from `state` (None: the initial state).

    If `draw` is False, a frame is not rendered, because it would not be shown.
    """

    model: str
    inputs: Mapping[str, Any]
    state: State | None
    controls: Controls
    fps: int
    ticks: int = 1
    draw: bool = True

    @property
    def is_prompted(self) -> bool:
        """Whether this worker, or the session, reads the prompt for the first time."""
        return self.ticks == 0 or self.state is None or self.controls.prompt is not None


class Frame(msgspec.Struct, frozen=True):
    """One encoded image."""

    data: bytes
    format: str
    width: int
    height: int


class StepResult(msgspec.Struct, frozen=True):
    """The state after a step, with a pose for each tick or one frame.

    Models whose `output_kind` is `json` return poses, 20 ticks a second; those with `image` return a frame,
    at the requested rate. `words` are the words of the prompt, or a text about the state; None leaves those
    of the previous step.
    """

    state: State
    poses: tuple[Mapping[str, Any], ...] = msgspec.field(default=())
    frame: Frame | None = None
    words: PromptWords | None = None


class StepRequest(msgspec.Struct, frozen=True):
    """An `EngineStep` in the form that the server sends; `state` is encoded as in the previous result."""

    model: str
    inputs: Mapping[str, Any]
    state: bytes | None
    controls: Controls
    fps: int
    ticks: int = 1
    draw: bool = True


class PackedStepResult(msgspec.Struct, frozen=True):
    """The result of a step in the form that the worker returns: state and poses are encoded."""

    state: bytes
    poses: tuple[bytes, ...] = ()
    frame: Frame | None = None
    words: PromptWords | None = None


StepAnswer = PackedStepResult | RunFailed | WorkerLost


class LiveEngine(Engine, Protocol):
    """An engine that also serves sessions."""

    def step(self, step: EngineStep) -> StepResult:
        """Advance by `ticks`; the result depends only on the step."""
        ...


@runtime_checkable
class LiveWorker(Protocol):
    """A worker that can run steps. Drivers whose workers cannot do not support sessions."""

    @property
    def alive(self) -> bool:
        """Whether the worker can run more steps."""
        ...

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        """Run one step for each request and return the answers, in the order of the requests.

        Never raises for errors of an engine or the worker.
        """
        ...

    async def kill(self) -> None:
        """Kill the worker immediately. Idempotent."""
        ...
