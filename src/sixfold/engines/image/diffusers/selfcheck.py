"""Self-check of new weights: a first image shows that they load, run and match each other."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import EngineError, Result, Task
from sixfold.engines.image.diffusers import image_checks
from sixfold.engines.image.diffusers.engine import DiffusersEngine

PROMPT = "a lighthouse on a rocky coast at dusk, waves, warm light"
# Largest side; smaller if the model's native side is, because enlarging would smooth noise.
_SIDE = 512
# Enough steps to distinguish an image from noise: seconds on a GPU, minutes on a CPU.
STEPS = 8


class SelfCheckListener(msgspec.Struct):
    """The context of a self-check, which forwards progress and collects log lines."""

    scratch: Path
    report: Callable[[float], None]
    lines: list[str] = []

    def progress(self, fraction: float) -> None:
        self.report(fraction)

    def log(self, line: str) -> None:
        self.lines.append(line)


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG generated with these weights and a summary line; raises `EngineError`."""
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
            raise EngineError("Self-check failed: the weights produce noise; their components do not match.")
    return data, listener.lines[0].replace(f" {folder.name}", "")
