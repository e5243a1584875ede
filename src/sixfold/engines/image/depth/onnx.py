"""Depth estimation with ONNX models such as Depth Anything and MiDaS, which return inverse depth."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import onnx_session
from sixfold.engines.image.depth.heuristic import Array, Pixels

# ImageNet's mean and standard deviation.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# The input side for models with a dynamic size, and the patch size of a vision transformer, in pixels.
_SIDE, _MULTIPLE = 518, 14


class DepthModel:
    """A depth model loaded from a file."""

    def __init__(self, source: str, side: int = 0) -> None:
        self._session = onnx_session.OnnxSession(source)
        self.stem = self._session.stem
        self._side = side or _SIDE

    def nearness(self, rgb: Pixels) -> Array:
        """Return the nearness of each pixel as float32 HxW, from 0 (far) to 1 (near)."""
        height, width = rgb.shape[:2]
        size = self._size(height, width)
        pixels = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        pixels = (pixels - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
        output = np.squeeze(self._session.run(onnx_session.to_batch(pixels)))
        if output.ndim != 2:
            raise EngineError(f"{self.stem} is not a depth model: its output must have two dimensions")
        near = np.nan_to_num(np.ascontiguousarray(output))
        low, high = np.percentile(near, (0.5, 99.5))
        near = np.clip((near - low) / max(float(high - low), 1e-6), 0, 1).astype(np.float32)
        return np.clip(cv2.resize(near, (width, height), interpolation=cv2.INTER_CUBIC), 0, 1)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Return the model's input width and height; dynamic sides keep the image's aspect ratio."""
        own_height, own_width = self._session.shapes[0]
        scale = self._side / min(height, width)
        high, wide = (max(_MULTIPLE, round(side * scale / _MULTIPLE) * _MULTIPLE) for side in (height, width))
        limit = 4 * self._side
        return own_width or min(limit, wide), own_height or min(limit, high)
