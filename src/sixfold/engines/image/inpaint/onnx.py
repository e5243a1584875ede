"""Taking things out by an ONNX model: LaMa and its kin, an image and a mask in, the whole image out."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.image import onnx_session
from sixfold.engines.image.inpaint import engine
from sixfold.engines.image.inpaint.masks import MaskHole, Pixels

_SIDE = 512  # where the model leaves its size open
_AROUND = 1.0  # of the hole's longer side: how much of the image the model sees round it
_BYTES = 2.0  # a model whose values go beyond this answers in 0 to 255


class OnnxInpaintEngine:
    """A model file as an engine.

    Options: `source` (the file, or a folder that holds one) or `weights` (the folder of installed models).
    """

    name = "weights-inpaint"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._model = onnx_session.OnnxSession(source or weights)
        self.version = f"1/{self._model.stem}"
        height, width = self._model.shapes[0]
        self._size = (width or _SIDE, height or _SIDE)

    def run(self, task: Task, context: Context) -> Result:
        """A PNG of the image's size; what lies outside the soft edge is unchanged."""
        return engine.run(task, context, self.filled, "full")

    def filled(self, rgb: Pixels, hole: MaskHole) -> Pixels:
        """The image with the hole filled from a square part round it, at the model's own size."""
        top, bottom, left, right = _square(rgb.shape, hole)
        part, gone = rgb[top:bottom, left:right], hole.gone[top:bottom, left:right]
        seen = cv2.resize(part, self._size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        hidden = cv2.resize(gone.astype(np.float32), self._size, interpolation=cv2.INTER_AREA) > 0
        made = self._model.run(onnx_session.planes(seen), hidden[None, None].astype(np.float32))
        if made.shape != (1, 3, self._size[1], self._size[0]):
            raise EngineError(f"{self._model.stem} is no model that fills pictures")
        values = np.nan_to_num(made[0].transpose(1, 2, 0))
        if values.max() <= _BYTES:
            values = values * 255
        eight = np.rint(np.clip(values, 0, 255)).astype(np.uint8)
        whole = rgb.copy()
        sharp = cv2.resize(eight, gone.shape[::-1], interpolation=cv2.INTER_CUBIC)
        whole[top:bottom, left:right][gone] = sharp[gone]
        return whole


def _square(shape: tuple[int, ...], hole: MaskHole) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of a part round the hole, as nearly square as the image allows."""
    left, top, width, height = hole.box
    side = round(max(width, height) * (1 + 2 * _AROUND))
    first_row, first_column = (
        min(max(0, middle - side // 2), max(0, whole - side))
        for middle, whole in ((top + height // 2, shape[0]), (left + width // 2, shape[1]))
    )
    return first_row, min(shape[0], first_row + side), first_column, min(shape[1], first_column + side)
