"""Nearness by an ONNX model: Depth-Anything, MiDaS and their kin, which answer in inverse depth."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import onnx_session
from sixfold.engines.image.depth.heuristic import Array, Pixels

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
_SIDE, _MULTIPLE = 518, 14  # of a vision transformer's patches


class DepthModel:
    """A model file that tells nearness."""

    def __init__(self, place: str, side: int = 0) -> None:
        self._session = onnx_session.OnnxSession(place)
        self.stem = self._session.stem
        self._side = side or _SIDE

    def nearness(self, rgb: Pixels) -> Array:
        """Nearness of an image's pixels, float32 HxW, 0 far to 1 near."""
        height, width = rgb.shape[:2]
        size = self._size(height, width)
        seen = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        seen = (seen - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
        made = np.squeeze(self._session.run(onnx_session.planes(seen)))
        if made.ndim != 2:
            raise EngineError(f"{self.stem} is no model that tells depth")
        near = np.nan_to_num(np.ascontiguousarray(made))
        low, high = np.percentile(near, (0.5, 99.5))
        near = np.clip((near - low) / max(float(high - low), 1e-6), 0, 1).astype(np.float32)
        return np.clip(cv2.resize(near, (width, height), interpolation=cv2.INTER_CUBIC), 0, 1)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Width and height that the model takes; open sides keep the image's shape."""
        own_height, own_width = self._session.shapes[0]
        scale = self._side / min(height, width)
        high, wide = (max(_MULTIPLE, round(side * scale / _MULTIPLE) * _MULTIPLE) for side in (height, width))
        most = 4 * self._side
        return own_width or min(most, wide), own_height or min(most, high)
