"""Engine for explorable worlds: one image of a walk, or the next frame of a session."""

from __future__ import annotations

from collections import OrderedDict

import cv2

from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.core.sessions.engine import EngineStep, Frame, StepResult
from sixfold.engines.image.encode import encode
from sixfold.engines.image.output_format import CONTENT_TYPES
from sixfold.engines.live.world import navigation, prompt_parser, terrain
from sixfold.engines.live.world.renderer import RenderedView

WIDTH, HEIGHT = 480, 270
_STILL_SCALE = 2  # the scale of single images
_STEP_SECONDS = 0.25  # the duration of a step in single runs
_QUALITY = 82
_CACHED_VIEWS = 2
_DEFAULT = "a meadow by a lake, hills behind it, a clear day"


class WorldEngine:
    """Renders worlds deterministically from prompt, keys and state."""

    name = "voxel-world"
    version = "2"

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[str, int], RenderedView] = OrderedDict()

    def run(self, task: Task, context: Context) -> Result:
        """Return the view after `steps` steps with `keys` held."""
        prompt = str(task.inputs.get("prompt") or _DEFAULT)
        view = self._view(prompt, _STILL_SCALE)
        context.progress(0.5)
        state = navigation.begin(view.land, prompt)
        keys = tuple(key for key in str(task.inputs.get("keys") or "").lower() if key in "wasd")
        steps = int(task.inputs.get("steps", 1))
        for number in range(steps):
            navigation.advance(state, view.land, keys, _STEP_SECONDS)
            context.progress(0.5 + 0.4 * (number + 1) / steps)
        data = encode(view.draw(navigation.eye(state)), format="webp", quality=90)
        info = {"width": view.width, "height": view.height}
        return Result((Artifact(CONTENT_TYPES["webp"], data, info),), words=prompt_parser.parse(prompt).words)

    def step(self, step: EngineStep) -> StepResult:
        """Advance by the step's ticks, and render a frame if requested; return the new state."""
        prompt = step.controls.prompt or (step.state["prompt"] if step.state else step.inputs.get("prompt"))
        prompt = str(prompt or _DEFAULT)
        view = self._view(prompt, 1)
        state = navigation.begin(view.land, prompt) if step.state is None else dict(step.state)
        if state["prompt"] != prompt:
            state["prompt"] = prompt
            navigation.settle(state, view.land)
        navigation.advance(state, view.land, step.controls.keys, step.ticks / step.fps)
        words = prompt_parser.parse(prompt).words if step.is_prompted else None
        if not step.draw:
            return StepResult(state, words=words)
        pixels = view.draw(navigation.eye(state))
        _, data = cv2.imencode(".jpg", pixels[..., ::-1], (cv2.IMWRITE_JPEG_QUALITY, _QUALITY))
        return StepResult(state, frame=Frame(data.tobytes(), "jpeg", view.width, view.height), words=words)

    def _view(self, prompt: str, scale: int) -> RenderedView:
        key = (prompt, scale)
        if key not in self._views:
            self._views[key] = RenderedView(
                terrain.build(prompt_parser.parse(prompt)), WIDTH * scale, HEIGHT * scale
            )
            while len(self._views) > _CACHED_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return self._views[key]
