"""Frames between two frames, by dense optical flow: what stands here for film and rife.

The flow is found both ways (DIS). A pixel of the new frame looks along it into both neighbours; where the two
flows contradict each other, something was covered or uncovered, and the neighbour that is sure is taken.
The camera of this package needs none of it, as it knows every moment; films that come as frames do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_DOUBT = 1.5  # pixels by which the flows may contradict each other before a look counts much less
_NO_MAP = np.empty((0, 0), np.float32)
_MOST_PIXELS = 1 << 20  # the flow of larger frames is found on smaller copies


class FrameInterpolator:
    """Makes frames between pairs of one size; the frames are bytes (height, width, 3)."""

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self._dis.setUseSpatialPropagation(True)

    def frames(self, before: Array, after: Array, count: int) -> Iterator[Array]:
        """`count` frames at equal distances between `before` and `after`."""
        if count < 1:
            return
        there, back = self._flows(before, after)
        doubt_there, doubt_back = _contradiction(there, back), _contradiction(back, there)
        for index in range(1, count + 1):
            t = np.float32(index / (count + 1))
            to_before = -(1 - t) * t * there + t * t * back
            to_after = (1 - t) * (1 - t) * there - t * (1 - t) * back
            from_before, sure_before = _looked(before, doubt_there, to_before)
            from_after, sure_after = _looked(after, doubt_back, to_after)
            first, second = (1 - t) * sure_before, t * sure_after
            whole = first + second
            yield cv2.blendLinear(from_before, from_after, first / whole, second / whole)

    def _flows(self, before: Array, after: Array) -> tuple[Array, Array]:
        height, width = before.shape[:2]
        scale = min(1.0, (_MOST_PIXELS / (height * width)) ** 0.5)
        size = (round(width * scale), round(height * scale))
        grey = [
            cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA)
            for frame in (before, after)
        ]
        there = self._dis.calc(grey[0], grey[1], _NO_FLOW)
        back = self._dis.calc(grey[1], grey[0], _NO_FLOW)
        if scale == 1.0:
            return there, back
        back_up = np.array([width / size[0], height / size[1]], np.float32)
        return (
            cv2.resize(there, (width, height), interpolation=cv2.INTER_LINEAR) * back_up,
            cv2.resize(back, (width, height), interpolation=cv2.INTER_LINEAR) * back_up,
        )


_NO_FLOW: Any = None  # the binding's own word for "begin with none"


def _grid(flow: Array) -> Array:
    height, width = flow.shape[:2]
    return np.dstack(np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)))


def _contradiction(there: Array, back: Array) -> Array:
    """How many pixels a look there and back misses its own beginning by."""
    returned = cv2.remap(
        back, _grid(there) + there, _NO_MAP, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.linalg.norm(there + returned, axis=2)


def _looked(frame: Array, doubt: Array, flow: Array) -> tuple[Array, Array]:
    """What a neighbour shows along a flow, and how sure that is (above 0)."""
    at = (_grid(flow) + flow).astype(np.float32)
    seen = cv2.remap(frame, at, _NO_MAP, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    missed = cv2.remap(doubt, at, _NO_MAP, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return seen, (np.exp(-((missed / _DOUBT) ** 2)) + 1e-3).astype(np.float32)
