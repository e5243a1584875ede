"""The first cut of newly added weights: a jug on a table that any model of subjects must find."""

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
_APART = 0.25  # by which the mask must be higher inside of the subject than outside


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG of a cut by these weights and the line that says how it went; raises `EngineError`."""
    engine = OnnxMattingEngine(source=str(folder))
    report(0.3)
    rgb, truth = scene()
    alpha, sure = engine.alpha(rgb)
    report(1.0)
    apart = float(alpha[truth].mean() - alpha[~truth].mean())
    if not apart > _APART:
        raise EngineError("The weights do not find a plain subject: they cut nothing out.")
    cover = np.rint(alpha * 255).astype(np.uint8)
    line = f"{engine.session.stem} tells subject from ground by {apart:.2f} and is {sure:.2f} decided"
    return encode.encode(rgb, cover, format="png"), line


def scene() -> tuple[Array, NDArray[np.bool_]]:
    """A red jug in front of a gray wall, and where it is."""
    shade = np.linspace(190, 150, _SIDE)[:, None, None] + np.zeros((_SIDE, _SIDE, 3))
    mask = np.zeros((_SIDE, _SIDE), np.uint8)
    cv2.ellipse(mask, (250, 300), (90, 120), 0, 0, 360, 255, -1)
    cv2.rectangle(mask, (215, 130), (285, 230), 255, -1)
    cv2.ellipse(mask, (345, 280), (55, 75), 0, -90, 90, 255, 22)
    light = 1.1 - np.abs(np.linspace(-0.9, 1.1, _SIDE))[None, :, None] * 0.5
    rgb = np.where(mask[..., None] > 0, np.array([170, 45, 40]) * light, shade)
    return np.clip(cv2.GaussianBlur(rgb, (0, 0), 0.8), 0, 255).astype(np.uint8), mask > 0
