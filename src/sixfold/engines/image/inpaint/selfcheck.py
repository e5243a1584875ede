"""Self-check of new inpainting weights: a jug in front of a plain wall is replaced by the wall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.inpaint import masks
from sixfold.engines.image.inpaint.onnx import OnnxInpaintEngine
from sixfold.engines.image.matting import selfcheck

_SIDE = 256
# Largest difference in levels (of 255) between the filled area and its surroundings.
_AWAY = 110


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the filled image and a summary line; raises `EngineError` if the colors differ."""
    engine = OnnxInpaintEngine(source=str(folder))
    report(0.3)
    rgb, subject = selfcheck.scene()
    small = cv2.resize(rgb, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    marked = cv2.resize(subject.astype(np.uint8), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA) > 0
    filled = engine.fill_hole(small, masks.make_hole(marked, 4, 2))
    report(1.0)
    away = float(np.abs(filled[marked].mean(0) - small[~marked].mean(0)).max())
    if not away < _AWAY:
        raise EngineError(
            f"Self-check failed: the color of the filled area differs from its surroundings by {away:.0f} "
            f"levels (limit: {_AWAY} of 255)"
        )
    data = encode.encode(filled, None, format="png")
    summary = f"fills a hole; its color differs from its surroundings by {away:.0f} of 255 levels"
    return data, f"{engine.version[2:]} {summary}"
