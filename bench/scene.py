"""Measure seconds per image of the scene painter on one core, encoding included.

.venv/bin/python -m bench scene
"""

from __future__ import annotations

import time
from pathlib import Path

import cv2

from bench.reporting import Row, calibration, of_samples
from sixfold.core.catalog.engines import Task
from sixfold.engines.image.scene.engine import SceneEngine

TITLE = "The scene painter on one core"
PROMPTS = (
    "a lighthouse at sunset over a calm sea",
    "a fox in a snowy forest at dawn",
    "cyberpunk city at night in the rain",
    "mountain lake at golden hour",
)


class Quiet:
    """Run context that ignores progress and logs."""

    scratch = Path()  # not used, because this engine does not write files

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def _samples(engine: SceneEngine, model: str, side: int) -> list[float]:
    samples: list[float] = []
    for prompt in PROMPTS:
        inputs = {"prompt": prompt, "width": side, "height": side, "seed": 7, "format": "png"}
        began = time.perf_counter()
        engine.run(Task("bench", model, inputs), Quiet())
        samples.append(time.perf_counter() - began)
    return samples


def rows() -> list[Row]:
    """Measure every look at 1024 pixels, and the first look also at larger and smaller sizes."""
    cv2.setNumThreads(1)
    engine = SceneEngine()
    sizes = [("ra1", 512), ("ra1", 1024), ("anime", 1024), ("photoreal", 1024)]
    sizes += [("create_image_klein", 1024), ("ra1", 2048), ("photoreal", 4096)]
    results = [
        of_samples(f"{model}, {side} x {side}", _samples(engine, model, side), "s") for model, side in sizes
    ]
    return calibration() + results
