"""Self-check of new matting weights: the model must separate a jug from the wall behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.matting.onnx import OnnxMattingEngine

Array = NDArray[Any]

_SIDE = 512
# Smallest difference between the mean mask inside the subject and outside.
_APART = 0.25


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the cutout and a summary line; raises `EngineError` if the subject is not found."""
    engine = OnnxMattingEngine(source=str(folder))
    report(0.3)
    rgb, truth = scene()
    alpha, sure = engine.alpha(rgb)
    report(1.0)
    difference = float(alpha[truth].mean() - alpha[~truth].mean())
    if not difference > _APART:
        raise EngineError("Self-check failed: the model does not separate a subject from a plain wall.")
    cover = np.rint(alpha * 255).astype(np.uint8)
    line = f"{engine.session.stem} separates the subject by {difference:.2f} with certainty {sure:.2f}"
    return encode.encode(rgb, cover, format="png"), line


def scene() -> tuple[Array, NDArray[np.bool_]]:
    """Return an image of a red jug in front of a gray wall, and the jug's mask."""
    shade = np.linspace(190, 150, _SIDE)[:, None, None] + np.zeros((_SIDE, _SIDE, 3))
    mask = np.zeros((_SIDE, _SIDE), np.uint8)
    cv2.ellipse(mask, (250, 300), (90, 120), 0, 0, 360, 255, -1)
    cv2.rectangle(mask, (215, 130), (285, 230), 255, -1)
    cv2.ellipse(mask, (345, 280), (55, 75), 0, -90, 90, 255, 22)
    light = 1.1 - np.abs(np.linspace(-0.9, 1.1, _SIDE))[None, :, None] * 0.5
    rgb = np.where(mask[..., None] > 0, np.array([170, 45, 40]) * light, shade)
    return np.clip(cv2.GaussianBlur(rgb, (0, 0), 0.8), 0, 255).astype(np.uint8), mask > 0
