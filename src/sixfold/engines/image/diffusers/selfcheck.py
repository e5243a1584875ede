"""The first image of newly added weights: it shows that they load, run and fit each other."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import EngineError, Result, Task
from sixfold.engines.image.diffusers import image_checks
from sixfold.engines.image.diffusers.engine import DiffusersEngine

PROMPT = "a lighthouse on a rocky coast at dusk, waves, warm light"
_SIDE = 512  # at most; never more than the model's own, since enlarging would smooth noise
STEPS = 8  # enough to tell an image from noise; a few seconds on a GPU, minutes on a processor


@dataclass
class SelfCheckListener:
    """What a self-check's run is told to: passes progress on and keeps the lines."""

    scratch: Path
    heard: Callable[[float], None]
    lines: list[str] = field(default_factory=list[str])

    def progress(self, fraction: float) -> None:
        """Pass it on."""
        self.report(fraction)

    def log(self, line: str) -> None:
        """Keep it."""
        self.lines.append(line)


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG by these weights and the line that says how it was made; raises `EngineError`."""
    engine = DiffusersEngine(source=str(folder))
    loaded = engine.load()
    side = min(_SIDE, loaded.profile.native)
    inputs = {
        "prompt": PROMPT,
        "seed": 1,
        "width": side,
        "height": side,
        "steps": min(STEPS, loaded.profile.steps),
        "format": "png",
        "enable_safety_checker": False,
    }
    with tempfile.TemporaryDirectory() as scratch:
        listener = SelfCheckListener(Path(scratch), report)
        result: Result = engine.run(Task("selfcheck", "selfcheck", inputs), listener)
    data = result.artifacts[0].data
    with Image.open(io.BytesIO(data)) as image:
        if image_checks.is_noise(np.asarray(image.convert("RGB"))):
            raise EngineError("The weights give noise instead of a picture: they do not fit each other.")
    return data, listener.lines[0].replace(f" {folder.name}", "")
