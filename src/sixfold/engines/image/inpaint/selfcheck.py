"""The first hole that newly added weights fill: a jug before a plain wall, and then the wall."""

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
_AWAY = 110  # of 255: how far the filled place may be from the wall round it


def picture(folder: Path, heard: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG of the filled image and the line that says how it went; raises `EngineError`."""
    engine = OnnxInpaintEngine(source=str(folder))
    heard(0.3)
    rgb, subject = selfcheck.scene()
    small = cv2.resize(rgb, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    marked = cv2.resize(subject.astype(np.uint8), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA) > 0
    filled = engine.filled(small, masks.hole(marked, 4, 2))
    heard(1.0)
    away = float(np.abs(filled[marked].mean(0) - small[~marked].mean(0)).max())
    if not away < _AWAY:
        raise EngineError(
            "The weights do not fill a plain wall: what they make is not like what is round it."
        )
    data = encode.encode(filled, None, format="png")
    return data, f"{engine.version[2:]} fills a hole, {away:.0f} of 255 away from the wall round it"
