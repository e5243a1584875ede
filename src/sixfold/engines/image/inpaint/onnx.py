"""Inpainting with ONNX models such as LaMa, which take an image and a mask and return the whole image."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.image import onnx_session
from sixfold.engines.image.inpaint import engine
from sixfold.engines.image.inpaint.masks import MaskHole, Pixels

# Input side in pixels for models with a dynamic size.
_SIDE = 512
# Margin around the hole in the model's input, as a fraction of the hole's longer side.
_AROUND = 1.0
# A model whose values exceed this limit returns 0 to 255 instead of 0 to 1.
_BYTES = 2.0


class OnnxInpaintEngine:
    """Inpainting with an ONNX model.

    Options: `source` (the file, or a folder that contains one) or `weights` (the folder of installed models).
    """

    name = "weights-inpaint"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._model = onnx_session.OnnxSession(source or weights)
        self.version = f"1/{self._model.stem}"
        height, width = self._model.shapes[0]
        self._size = (width or _SIDE, height or _SIDE)

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG of the image's size; pixels outside the soft edge are unchanged."""
        return engine.run(task, context, self.fill_hole, "full")

    def fill_hole(self, rgb: Pixels, hole: MaskHole) -> Pixels:
        """Return the image with the hole filled from a square part around it, at the model's input size."""
        top, bottom, left, right = _square(rgb.shape, hole)
        part, mask = rgb[top:bottom, left:right], hole.mask[top:bottom, left:right]
        pixels = cv2.resize(part, self._size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        hidden = cv2.resize(mask.astype(np.float32), self._size, interpolation=cv2.INTER_AREA) > 0
        output = self._model.run(onnx_session.to_batch(pixels), hidden[None, None].astype(np.float32))
        if output.shape != (1, 3, self._size[1], self._size[0]):
            raise EngineError(
                f"{self._model.stem} is not an inpainting model: its output must have the input's size"
            )
        values = np.nan_to_num(output[0].transpose(1, 2, 0))
        if values.max() <= _BYTES:
            values = values * 255
        eight = np.rint(np.clip(values, 0, 255)).astype(np.uint8)
        whole = rgb.copy()
        sharp = cv2.resize(eight, mask.shape[::-1], interpolation=cv2.INTER_CUBIC)
        whole[top:bottom, left:right][mask] = sharp[mask]
        return whole


def _square(shape: tuple[int, ...], hole: MaskHole) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right of a part around the hole, as nearly square as the image allows."""
    left, top, width, height = hole.box
    side = round(max(width, height) * (1 + 2 * _AROUND))
    first_row, first_column = (
        min(max(0, middle - side // 2), max(0, whole - side))
        for middle, whole in ((top + height // 2, shape[0]), (left + width // 2, shape[1]))
    )
    return first_row, min(shape[0], first_row + side), first_column, min(shape[1], first_column + side)
