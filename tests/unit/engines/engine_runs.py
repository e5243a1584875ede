"""Helpers for tests of image engines: a context, an image file, and one run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import Artifact, Result, Task


class RunContext:
    """Context that records progress and log lines."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self.scratch = scratch
        self.lines: list[str] = []
        self.fractions: list[float] = []

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)

    def log(self, line: str) -> None:
        self.lines.append(line)


def saved(path: Path, pixels: Any) -> Path:
    """Save an image as a PNG file and return the path."""
    Image.fromarray(np.ascontiguousarray(pixels)).save(path)
    return path


def run(
    engine: Any, scratch: Path, inputs: dict[str, Any], **files: Path
) -> tuple[Artifact, Result, RunContext]:
    """Run an engine that makes one file."""
    context = RunContext(scratch)
    result = engine.run(Task("t", "x", inputs, files), context)
    (artifact,) = result.artifacts
    assert context.fractions == sorted(context.fractions)
    return artifact, result, context


def pixels(artifact: Artifact) -> Any:
    """Return an image artifact as an array."""
    return np.asarray(Image.open(io.BytesIO(artifact.data)))


def scenery(size: tuple[int, int] = (192, 256), seed: int = 1) -> Any:
    """Return an image (height, width) with slanted and round edges, fine lines and a soft background."""

    height, width = size
    rng = np.random.default_rng(seed)
    big = np.empty((height * 4, width * 4, 3), np.float32)
    big[:] = np.linspace((210, 190, 160), (90, 120, 190), height * 4)[:, None]
    for _ in range(14):
        color = tuple(int(part) for part in rng.integers(20, 240, 3))
        points = rng.uniform(0, 1, (3, 2)) * (width * 4, height * 4)
        cv2.fillPoly(big, [points.astype(np.int32)], color)
        at = rng.uniform(0, 1, 2) * (width * 4, height * 4)
        cv2.circle(big, at.astype(int).tolist(), int(rng.uniform(20, 120)), color[::-1], -1)
        begin, end = (rng.uniform(0, 1, (2, 2)) * (width * 4, height * 4)).astype(int).tolist()
        cv2.line(big, begin, end, color, 6)
    return np.rint(cv2.resize(big, (width, height), interpolation=cv2.INTER_AREA)).astype(np.uint8)


def psnr(image: Any, reference: Any) -> float:
    """Return the peak signal-to-noise ratio of an image in dB; both have values from 0 to 255."""
    return float(10 * np.log10(255**2 / np.mean((image.astype(float) - reference.astype(float)) ** 2)))
