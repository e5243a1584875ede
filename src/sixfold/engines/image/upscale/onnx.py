"""Enlarging by an ONNX model: Real-ESRGAN and its kin, RGB in 0 to 1 in and out, `n` times as large."""

from __future__ import annotations

import math

import cv2
import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.image import onnx_session
from sixfold.engines.image.upscale import engine
from sixfold.engines.image.upscale.engine import Array

_WINDOWS = 16  # pixels that an image's sides are filled up to: what most of them divide by


class OnnxUpscaleEngine:
    """A model file as an engine.

    Options: `source` (the file, or a folder that holds one) or `weights` (the folder of installed models),
    and `anime`, another file for drawings.
    """

    name = "weights-upscale"

    def __init__(self, *, source: str = "", weights: str = "", anime: str = "") -> None:
        general = onnx_session.OnnxSession(source or weights)
        self._models = {"general": general, "anime": onnx_session.OnnxSession(anime) if anime else general}
        self.version = "/".join(dict.fromkeys(("1", general.stem, self._models["anime"].stem)))

    def run(self, task: Task, context: Context) -> Result:
        """A PNG of exactly `scale` times the image's sides."""
        model = self._models.get(str(task.inputs.get("model")), self._models["general"])
        fixed = min((side for side in model.shapes[0] if side), default=0)
        if fixed and fixed <= 2 * engine.LAP:
            raise EngineError(f"{model.stem} takes pieces of {fixed} pixels, which is too few")
        piece = fixed - 2 * engine.LAP if fixed else engine.PIECE
        return engine.run(task, context, lambda seen, scale: _enlarged(model, seen, scale), "full", piece)

    def enlarged(self, seen: Array, scale: int) -> Array:
        """A small image (float RGB in 0..1) in one piece."""
        model = self._models["general"]
        sides = [side or max(seen.shape[:2]) for side in model.shapes[0]]
        fitted = cv2.resize(seen, (min(sides[1], seen.shape[1]), min(sides[0], seen.shape[0])))
        return _enlarged(model, fitted, scale)[: fitted.shape[0] * scale, : fitted.shape[1] * scale]


def _enlarged(model: onnx_session.OnnxSession, seen: Array, scale: int) -> Array:
    """A piece through the model, however large its own scale is; a larger one is made small again."""
    height, width = seen.shape[:2]
    sides = [
        given or math.ceil(side / _WINDOWS) * _WINDOWS
        for given, side in zip(model.shapes[0], (height, width), strict=True)
    ]
    rest = cv2.copyMakeBorder(seen, 0, sides[0] - height, 0, sides[1] - width, cv2.BORDER_REPLICATE)
    made = model.run(onnx_session.planes(rest))
    if made.ndim != 4 or made.shape[1] != 3 or made.shape[2] * sides[1] != made.shape[3] * sides[0]:
        raise EngineError(f"{model.stem} is no model that enlarges pictures")
    large = np.ascontiguousarray(made[0].transpose(1, 2, 0))
    own = large.shape[0] / sides[0]
    size = (round(sides[1] * scale), round(sides[0] * scale))
    if own != scale:
        large = cv2.resize(large, size, interpolation=cv2.INTER_AREA if own > scale else cv2.INTER_CUBIC)
    return np.clip(np.nan_to_num(large), 0, 1)
