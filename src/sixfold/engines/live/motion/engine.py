"""Engine for body motion: the poses of a run, or the next poses of a session."""

from __future__ import annotations

from typing import Any

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.sessions.engine import EngineStep, StepResult
from sixfold.engines.live.motion import actions, simulation

FPS = 20


class MotionEngine:
    """Computes poses deterministically from prompt, controls and state, in pure Python."""

    name = "procedural-motion"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return `steps` poses of a body that follows the prompt."""
        state = simulation.begin(str(task.inputs.get("prompt", "")))
        steps = int(task.inputs.get("steps", 40))
        poses: list[dict[str, Any]] = []
        for number in range(steps):
            pose = simulation.advance(state, (), 1 / FPS)
            poses.append({"t": round((number + 1) * 1000 / FPS), **pose})
            context.progress((number + 1) / steps)
        words = actions.words(str(task.inputs.get("prompt", "")))
        return Result(data={"value": poses}, words=words)

    def step(self, step: EngineStep) -> StepResult:
        if step.state is None:
            state = simulation.begin(str(step.inputs.get("prompt", "")))
        else:
            state = simulation.copy(step.state)
        simulation.apply_controls(state, step.controls)
        keys = step.controls.keys
        poses = tuple(simulation.advance(state, keys, 1 / step.fps) for _ in range(step.ticks))
        words = actions.words(str(state["prompt"])) if step.is_prompted else None
        return StepResult(state, poses, words=words)
