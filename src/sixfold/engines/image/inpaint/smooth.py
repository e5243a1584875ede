"""Filling of holes in smooth shading, such as a sky, with the surface that bends least.

A thin plate continues the levels and slopes of the surroundings. It is solved on a reduced copy; near the
hole's edge, the difference between the copy and the image is added, and the whole hole gets the grain of its
surroundings.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Longer side of the hole in the reduced copy, and the width of the known pixels around it that are used.
_SIDE, _RIM = 36, 3
# Weight of known pixels relative to the bending: grain does not bend the plate.
_FIT = 4.0
# Levels by which the plate can exceed the levels around it.
_BEYOND = 6.0
_SEED = 1
# Second differences: row and column offsets with weights.
_BENDS = (
    (((0, -1), 1.0), ((0, 0), -2.0), ((0, 1), 1.0)),
    (((-1, 0), 1.0), ((0, 0), -2.0), ((1, 0), 1.0)),
    (((0, 0), 2**0.5), ((0, 1), -(2**0.5)), ((1, 0), -(2**0.5)), ((1, 1), 2**0.5)),
)


def fill(part: Pixels, mask: Array, grain: Array) -> Pixels:
    """Return the part with its hole filled; `grain` is each pixel's difference from its local mean."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    scale = min(1.0, _SIDE / max(np.ptp(rows) + 1, np.ptp(columns) + 1))
    size = tuple(max(2, round(side * scale)) for side in mask.shape[::-1])
    known = (~mask).astype(np.float32)
    share = cv2.resize(known, size, interpolation=cv2.INTER_AREA)
    total = cv2.resize(part.astype(np.float32) * known[..., None], size, interpolation=cv2.INTER_AREA)
    hidden = share < 0.5
    if hidden.all() or not hidden.any():
        hidden = share <= share.min()
    if hidden.all():
        # The parts of the hole repeat so regularly that each pixel of the copy is equally hidden.
        return cv2.inpaint(np.ascontiguousarray(part), mask.astype(np.uint8), 4, cv2.INPAINT_TELEA)
    small = total / np.maximum(share, 1e-3)[..., None]
    plate = cv2.resize(_plate(small, hidden), mask.shape[::-1], interpolation=cv2.INTER_CUBIC)
    error, sigma = (part - plate) * known[..., None], max(1.0, 0.7 / scale)
    near = cv2.GaussianBlur(known, (0, 0), sigma)[..., None]
    filling = plate + cv2.GaussianBlur(error, (0, 0), sigma) / np.maximum(near, 0.3)
    ring = ~mask & (cv2.dilate(mask.astype(np.uint8), np.ones((9, 9), np.uint8)) > 0)
    spread = float(grain[ring].mean(1).std()) if ring.any() else 0.0
    noise = np.random.default_rng(_SEED).normal(0, spread, mask.shape).astype(np.float32)
    whole = part.copy()
    whole[mask] = np.clip(np.rint(filling + noise[..., None]), 0, 255).astype(np.uint8)[mask]
    return whole


def _plate(small: Array, hidden: Array) -> Array:
    """Return the reduced image with its hidden pixels replaced by the plate that bends least."""
    area = cv2.dilate(hidden.astype(np.uint8), np.ones((2 * _RIM + 1,) * 2, np.uint8)) > 0
    number = np.where(area, np.cumsum(area).reshape(area.shape) - 1, -1)
    count = int(area.sum())
    normal = np.zeros((count, count))
    for bend in _BENDS:
        places = [_shifted(number, offset) for offset, _ in bend]
        valid = np.logical_and.reduce([place >= 0 for place in places])
        for first, (_, weight) in zip(places, bend, strict=True):
            for second, (_, other) in zip(places, bend, strict=True):
                np.add.at(normal, (first[valid], second[valid]), weight * other)
    rim = ~hidden[area]
    diagonal = np.where(rim, _FIT, 1e-6)
    normal[np.arange(count), np.arange(count)] += diagonal
    around = small[area][rim]
    middle = around.mean(0)
    solved = middle + np.linalg.solve(
        normal, diagonal[:, None] * np.where(rim[:, None], small[area] - middle, 0)
    )
    plate = small.copy()
    bounded = np.clip(solved, around.min(0) - _BEYOND, around.max(0) + _BEYOND)
    plate[area] = np.where(rim[:, None], small[area], bounded)
    return plate


def _shifted(number: Array, offset: tuple[int, int]) -> Array:
    """Return the number of the pixel at the offset from each pixel, or -1 beyond the border."""
    padded = np.pad(number, 1, constant_values=-1)
    rows, columns = number.shape
    return padded[1 + offset[0] : 1 + offset[0] + rows, 1 + offset[1] : 1 + offset[1] + columns]
