"""Frames that are nearly the one before: not rendered anew, but the last one moved as the camera moved.

A frame of three plates is ten warps, one that is moved is two. What parallax and ripples would have added
since stands still for one frame; so only each second frame is moved, and only where hardly anything went far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video.ambient import Ripple
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.parallax import ParallaxStage
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

_NEAR = 0.008  # of the short side: how far a corner may have gone
_HALFWAY = 0.5  # of nearness: what stands for a whole picture


class FrameSource:
    """The frames of a stage, in order; with `sparing`, near ones are moved."""

    def __init__(self, stage: ParallaxStage, *, sparing: bool) -> None:
        self._stage, self._sparing = stage, sparing
        self._kept: tuple[CameraPose, YuvPlanes] | None = None
        self.moved = 0

    def at(self, pose: CameraPose, ripples: Callable[[], tuple[Ripple | None, ...]]) -> YuvPlanes:
        """The next frame."""
        if self._kept is not None:
            before, picture = self._kept
            self._kept = None
            line = np.linalg.inv(_from(before, self._stage)) @ _from(pose, self._stage)
            if _farthest(line, self._stage.size) <= _NEAR * min(self._stage.size):
                self.moved += 1
                return _moved(picture, line)
        made = self._stage.frame(pose, ripples())
        if self._sparing:
            self._kept = (pose, made)
        return made


def _from(pose: CameraPose, stage: ParallaxStage) -> Array:
    """Where a pixel of a frame, from its middle, comes from in a picture of one nearness: a 3 x 3 matrix."""
    turn, far = math.radians(pose.roll), 1 - pose.approach * _HALFWAY
    zoom, (width, height) = pose.zoom * stage.base_zoom, stage.size
    a, b = math.cos(turn) / zoom, math.sin(turn) / zoom
    left, top = pose.pan_x * width, pose.pan_y * height
    right, down = pose.shift_x * width * _HALFWAY, pose.shift_y * height * _HALFWAY
    return np.array(
        [
            [a * far, b * far, -(a * left + b * top) * far - right],
            [-b * far, a * far, (b * left - a * top) * far - down],
            [0, 0, 1],
        ]
    )


def _farthest(line: Array, size: tuple[int, int]) -> float:
    """How far the corner goes that goes farthest, in pixels."""
    x, y = size[0] / 2, size[1] / 2
    corners = np.array([[x, -x, x, -x], [y, y, -y, -y], [1, 1, 1, 1]])
    return float(np.abs(line @ corners - corners).max())


def _moved(picture: YuvPlanes, line: Array) -> YuvPlanes:
    return YuvPlanes(
        _warped(picture.y, line, 1, cv2.INTER_CUBIC), _warped(picture.uv, line, 2, cv2.INTER_LINEAR)
    )


def _warped(plane: Array, line: Array, small: int, how: int) -> Array:
    """A plane that is `small` times smaller than the frame, seen along the line."""
    height, width = plane.shape[:2]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    part = line[:2, :2]
    rest = line[:2, 2] / small + middle - part @ middle
    along = np.column_stack([part, rest])
    flags = how | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(plane, along, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
