"""Upscaling with ONNX models such as Real-ESRGAN, which take and return RGB from 0 to 1."""

from __future__ import annotations

import math

import cv2
import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.image import onnx_session
from sixfold.engines.image.upscale import engine
from sixfold.engines.image.upscale.engine import Array

# Sides are padded to a multiple of this number of pixels, as most models require.
_WINDOWS = 16


class OnnxUpscaleEngine:
    """Upscaling with an ONNX model.

    Options: `source` (the file, or a folder that contains one) or `weights` (the folder of installed models),
    and `anime`, another file for drawings.
    """

    name = "weights-upscale"

    def __init__(self, *, source: str = "", weights: str = "", anime: str = "") -> None:
        general = onnx_session.OnnxSession(source or weights)
        self._models = {"general": general, "anime": onnx_session.OnnxSession(anime) if anime else general}
        self.version = "/".join(dict.fromkeys(("1", general.stem, self._models["anime"].stem)))

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG of exactly `scale` times the image's size."""
        model = self._models.get(str(task.inputs.get("model")), self._models["general"])
        fixed = min((side for side in model.shapes[0] if side), default=0)
        if fixed and fixed <= 2 * engine.OVERLAP:
            raise EngineError(
                f"the input of {model.stem} must be larger than {2 * engine.OVERLAP} pixels (it is {fixed})"
            )
        piece = fixed - 2 * engine.OVERLAP if fixed else engine.TILE_SIDE
        return engine.run(task, context, lambda tile, scale: _enlarge(model, tile, scale), "full", piece)

    def enlarge(self, image: Array, scale: int) -> Array:
        """Enlarge a small image (float RGB, 0 to 1) in one piece."""
        model = self._models["general"]
        sides = [side or max(image.shape[:2]) for side in model.shapes[0]]
        fitted = cv2.resize(image, (min(sides[1], image.shape[1]), min(sides[0], image.shape[0])))
        return _enlarge(model, fitted, scale)[: fitted.shape[0] * scale, : fitted.shape[1] * scale]


def _enlarge(model: onnx_session.OnnxSession, tile: Array, scale: int) -> Array:
    """Enlarge a tile with the model and resize the result if the model's scale differs."""
    height, width = tile.shape[:2]
    sides = [
        fixed or math.ceil(side / _WINDOWS) * _WINDOWS
        for fixed, side in zip(model.shapes[0], (height, width), strict=True)
    ]
    padded = cv2.copyMakeBorder(tile, 0, sides[0] - height, 0, sides[1] - width, cv2.BORDER_REPLICATE)
    output = model.run(onnx_session.to_batch(padded))
    if output.ndim != 4 or output.shape[1] != 3 or output.shape[2] * sides[1] != output.shape[3] * sides[0]:
        raise EngineError(f"{model.stem} is not an upscaling model: its output must keep the aspect ratio")
    large = np.ascontiguousarray(output[0].transpose(1, 2, 0))
    model_scale = large.shape[0] / sides[0]
    size = (round(sides[1] * scale), round(sides[0] * scale))
    if model_scale != scale:
        large = cv2.resize(
            large, size, interpolation=cv2.INTER_AREA if model_scale > scale else cv2.INTER_CUBIC
        )
    return np.clip(np.nan_to_num(large), 0, 1)
