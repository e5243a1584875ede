"""Self-check of a newly installed video matting model on a few frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.matting import selfcheck
from sixfold.engines.video.matting.onnx import OnnxVideoMattingEngine

_FRAMES = 3


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the last frame's mask and a summary line; raises `EngineError`."""
    engine = OnnxVideoMattingEngine(source=str(folder))
    masks = engine.masks()
    rgb, _ = selfcheck.scene()
    alpha = np.zeros(rgb.shape[:2])
    for frame in range(_FRAMES):
        alpha = masks.alpha(np.roll(rgb, 2 * frame, 1))
        report((frame + 1) / _FRAMES)
    if alpha.shape != rgb.shape[:2] or not np.isfinite(alpha).all():
        raise EngineError("The model did not return a mask; it is not a video matting model.")
    pixels = np.rint(alpha * 255).astype(np.uint8)
    mode = "keeps state between frames" if engine.recurrent else "processes each frame alone"
    return encode.encode(np.dstack([pixels] * 3), None, format="png"), f"{engine.version[2:]} runs and {mode}"
