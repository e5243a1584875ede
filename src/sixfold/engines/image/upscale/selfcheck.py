"""Self-check of new upscaling weights: the enlarged image must look like the small one."""

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
# Largest mean difference between the reduced result and the input, as a fraction of white.
_AWAY = 0.15


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of an enlarged image and a summary line; raises `EngineError` if it is not similar."""
    engine = OnnxUpscaleEngine(source=str(folder))
    report(0.3)
    rgb, _ = selfcheck.scene()
    small = cv2.resize(rgb, (_SMALL, _SMALL), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    large = engine.enlarge(small, _SCALE)
    report(1.0)
    back = cv2.resize(large, (_SMALL, _SMALL), interpolation=cv2.INTER_AREA)
    away = float(np.abs(back - small).mean())
    if not away < _AWAY:
        raise EngineError(
            f"Self-check failed: the mean difference from the original is {away:.3f}; "
            f"it must be below {_AWAY}."
        )
    data = encode.encode(np.rint(large * 255).astype(np.uint8), None, format="png")
    return data, f"{engine.version[2:]} enlarges; mean difference from the input {away:.3f} of white"
