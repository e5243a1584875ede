"""Drawings of poses: the skeleton on a floor, as the page of a live session shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 960, 540
_SCALE = 150  # pixels per meter
_DEPTH = 40  # pixels per meter toward the viewer
_FLOOR = 0.82
_FOLLOW = 0.2  # fraction of the way to the body that the camera moves with each pose
_GROUND, _GRID, _BONE = (22, 22, 20), (53, 51, 46), (236, 233, 226)
_LEFT, _RIGHT = (79, 184, 179), (229, 174, 85)
_TRUNK = ("pelvis", "spine", "chest", "neck", "head")
_ARM, _LEG = ("shoulder", "elbow", "wrist", "hand"), ("hip", "knee", "ankle", "toe")


def _chain(*joints: str) -> list[tuple[str, str]]:
    return list(pairwise(joints))


_LIMBS = [
    *_chain(*_TRUNK),
    *(
        bone
        for side in ("left", "right")
        for start, limb in (("chest", _ARM), ("pelvis", _LEG))
        for bone in _chain(start, *(f"{side}_{joint}" for joint in limb))
    ),
]


class Camera:
    """A camera that follows the body."""

    def __init__(self) -> None:
        self._x = self._z = 0.0

    def draw(self, pose: Mapping[str, Any]) -> NDArray[np.uint8]:
        joints: Mapping[str, Sequence[float]] = pose["joints"]
        self._x += (joints["pelvis"][0] - self._x) * _FOLLOW
        self._z += (joints["pelvis"][2] - self._z) * _FOLLOW
        image = np.full((HEIGHT, WIDTH, 3), _GROUND, np.uint8)
        x, z = round(self._x), round(self._z)
        for line in range(-12, 13):
            for start, end in (((line, -6), (line, 6)), ((-12, line / 2), (12, line / 2))):
                ends = [self._project(side[0] + x, 0, side[1] + z) for side in (start, end)]
                cv2.line(image, ends[0], ends[1], _GRID, 1, cv2.LINE_AA)
        for start, end in _LIMBS:
            if start in joints and end in joints:
                color = _LEFT if end.startswith("left") else _RIGHT if end.startswith("right") else _BONE
                first, last = self._project(*joints[start]), self._project(*joints[end])
                cv2.line(image, first, last, color, 7, cv2.LINE_AA)
        return image

    def _project(self, x: float, y: float, z: float) -> tuple[int, int]:
        shift = (z - self._z) * _DEPTH
        return (
            round(WIDTH / 2 + (x - self._x) * _SCALE + shift),
            round(HEIGHT * _FLOOR - y * _SCALE + shift),
        )
