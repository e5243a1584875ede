"""The first image that newly added weights enlarge: it shows what the small one showed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.matting import selfcheck
from sixfold.engines.image.upscale.onnx import OnnxUpscaleEngine

_SMALL, _SCALE = 48, 4
_AWAY = 0.15  # of white: how far the larger image may be from the smaller one


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG of an enlarged image and the line that says how it went; raises `EngineError`."""
    engine = OnnxUpscaleEngine(source=str(folder))
    report(0.3)
    rgb, _ = selfcheck.scene()
    small = cv2.resize(rgb, (_SMALL, _SMALL), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    large = engine.enlarged(small, _SCALE)
    report(1.0)
    back = cv2.resize(large, (_SMALL, _SMALL), interpolation=cv2.INTER_AREA)
    away = float(np.abs(back - small).mean())
    if not away < _AWAY:
        raise EngineError("The weights give another picture than the one that they are to enlarge.")
    data = encode.encode(np.rint(large * 255).astype(np.uint8), None, format="png")
    return data, f"{engine.version[2:]} enlarges, {away:.3f} of white away from what it was given"
