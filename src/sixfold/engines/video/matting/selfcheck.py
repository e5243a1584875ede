"""The first frames of a newly added model of films: it runs, remembers, and gives a mask."""

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
    """A PNG of the last frame's mask and the line that says how it went; raises `EngineError`."""
    engine = OnnxVideoMattingEngine(source=str(folder))
    masks = engine.masks()
    rgb, _ = selfcheck.scene()
    alpha = np.zeros(rgb.shape[:2])
    for frame in range(_FRAMES):
        alpha = masks.alpha(np.roll(rgb, 2 * frame, 1))
        report((frame + 1) / _FRAMES)
    if alpha.shape != rgb.shape[:2] or not np.isfinite(alpha).all():
        raise EngineError("The weights give no mask: they are no model that cuts subjects out of films.")
    cover = np.rint(alpha * 255).astype(np.uint8)
    how = "remembers frames" if engine.remembers else "looks at each frame alone"
    return encode.encode(np.dstack([cover] * 3), None, format="png"), f"{engine.version[2:]} runs, and {how}"
