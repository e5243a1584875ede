"""Helpers for tests of image engines: a context, an image file, and one run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import Artifact, Result, Task


class Note:
    """Context that records progress and log lines."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.lines: list[str] = []
        self.shares: list[float] = []

    def progress(self, fraction: float) -> None:
        """Remember it."""
        self.shares.append(fraction)

    def log(self, line: str) -> None:
        """Remember it."""
        self.lines.append(line)


def saved(path: Path, pixels: Any) -> Path:
    """Return an image as a PNG file."""
    Image.fromarray(np.ascontiguousarray(pixels)).save(path)
    return path


def run(engine: Any, scratch: Path, inputs: dict[str, Any], **files: Path) -> tuple[Artifact, Result, Note]:
    """One run of an engine that makes one file."""
    note = Note(scratch)
    result = engine.run(Task("t", "x", inputs, files), note)
    (artifact,) = result.artifacts
    assert note.shares == sorted(note.shares)
    return artifact, result, note


def pixels(artifact: Artifact) -> Any:
    """An artifact's picture."""
    return np.asarray(Image.open(io.BytesIO(artifact.data)))


def scenery(size: tuple[int, int] = (192, 256), seed: int = 1) -> Any:
    """Return an image (height, width) with slanted and round edges, fine lines and a soft background."""

    height, width = size
    rng = np.random.default_rng(seed)
    big = np.empty((height * 4, width * 4, 3), np.float32)
    big[:] = np.linspace((210, 190, 160), (90, 120, 190), height * 4)[:, None]
    for _ in range(14):
        colour = tuple(int(part) for part in rng.integers(20, 240, 3))
        points = rng.uniform(0, 1, (3, 2)) * (width * 4, height * 4)
        cv2.fillPoly(big, [points.astype(np.int32)], colour)
        at = rng.uniform(0, 1, 2) * (width * 4, height * 4)
        cv2.circle(big, at.astype(int).tolist(), int(rng.uniform(20, 120)), colour[::-1], -1)
        begin, end = (rng.uniform(0, 1, (2, 2)) * (width * 4, height * 4)).astype(int).tolist()
        cv2.line(big, begin, end, colour, 6)
    return np.rint(cv2.resize(big, (width, height), interpolation=cv2.INTER_AREA)).astype(np.uint8)


def psnr(one: Any, other: Any) -> float:
    """Peak signal to noise ratio of two pictures of bytes, in dB."""
    return float(10 * np.log10(255**2 / np.mean((one.astype(float) - other.astype(float)) ** 2)))
