"""Frame interpolation by dense optical flow, for the interpolators FILM and RIFE of the API.

The DIS flow is computed in both directions. A pixel of a new frame is sampled from both neighbors along the
flow; where the two flows contradict each other (an occlusion), the neighbor with the consistent flow wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The forward-backward error, in pixels, at which a sample's weight has dropped to 1/e.
_FLOW_TOLERANCE = 1.5
_NO_MAP = np.empty((0, 0), np.float32)
# The flow of larger frames is computed on reduced copies.
_MAX_FLOW_PIXELS = 1 << 20


class FrameInterpolator:
    """Interpolates between frames of equal size, as bytes (height, width, 3)."""

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self._dis.setUseSpatialPropagation(True)

    def frames(self, before: Array, after: Array, count: int) -> Iterator[Array]:
        """Yield `count` frames at equal distances between `before` and `after`."""
        if count < 1:
            return
        forward, backward = self._flows(before, after)
        forward_error, backward_error = _flow_error(forward, backward), _flow_error(backward, forward)
        for index in range(1, count + 1):
            t = np.float32(index / (count + 1))
            to_before = -(1 - t) * t * forward + t * t * backward
            to_after = (1 - t) * (1 - t) * forward - t * (1 - t) * backward
            from_before, weight_before = _sample(before, forward_error, to_before)
            from_after, weight_after = _sample(after, backward_error, to_after)
            before_share, after_share = (1 - t) * weight_before, t * weight_after
            total = before_share + after_share
            yield cv2.blendLinear(from_before, from_after, before_share / total, after_share / total)

    def _flows(self, before: Array, after: Array) -> tuple[Array, Array]:
        height, width = before.shape[:2]
        scale = min(1.0, (_MAX_FLOW_PIXELS / (height * width)) ** 0.5)
        size = (round(width * scale), round(height * scale))
        grey = [
            cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA)
            for frame in (before, after)
        ]
        forward = self._dis.calc(grey[0], grey[1], _NO_FLOW)
        backward = self._dis.calc(grey[1], grey[0], _NO_FLOW)
        if scale == 1.0:
            return forward, backward
        back_up = np.array([width / size[0], height / size[1]], np.float32)
        return (
            cv2.resize(forward, (width, height), interpolation=cv2.INTER_LINEAR) * back_up,
            cv2.resize(backward, (width, height), interpolation=cv2.INTER_LINEAR) * back_up,
        )


# Makes OpenCV start without an initial flow.
_NO_FLOW: Any = None


def _grid(flow: Array) -> Array:
    height, width = flow.shape[:2]
    return np.dstack(np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)))


def _flow_error(forward: Array, backward: Array) -> Array:
    returned = cv2.remap(
        backward, _grid(forward) + forward, _NO_MAP, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.linalg.norm(forward + returned, axis=2)


def _sample(frame: Array, error: Array, flow: Array) -> tuple[Array, Array]:
    """Sample a neighbor along a flow; return the pixels and their weights (above 0)."""
    at = (_grid(flow) + flow).astype(np.float32)
    pixels = cv2.remap(frame, at, _NO_MAP, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    errors = cv2.remap(error, at, _NO_MAP, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return pixels, (np.exp(-((errors / _FLOW_TOLERANCE) ** 2)) + 1e-3).astype(np.float32)
