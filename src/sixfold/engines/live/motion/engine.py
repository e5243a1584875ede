"""The motion engine: poses of one run, or one session's next poses."""

from __future__ import annotations

from typing import Any

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.sessions.engine import EngineStep, StepResult
from sixfold.engines.live.motion import simulation

FPS = 20


class MotionEngine:
    """Deterministic by prompt, controls and state; needs nothing but Python."""

    name = "procedural-motion"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """`steps` poses of a body that follows the prompt."""
        state = simulation.begin(str(task.inputs.get("prompt", "")))
        steps = int(task.inputs.get("steps", 40))
        poses: list[dict[str, Any]] = []
        for number in range(steps):
            pose = simulation.advance(state, (), 1 / FPS)
            poses.append({"t": round((number + 1) * 1000 / FPS), **pose})
            context.progress((number + 1) / steps)
        return Result(data={"value": poses})

    def step(self, step: EngineStep) -> StepResult:
        """A pose for each tick."""
        if step.state is None:
            state = simulation.begin(str(step.inputs.get("prompt", "")))
        else:
            state = simulation.copied(step.state)
        simulation.hear(state, step.controls)
        keys = step.controls.keys
        poses = tuple(simulation.advance(state, keys, 1 / step.fps) for _ in range(step.ticks))
        return StepResult(state, poses)
