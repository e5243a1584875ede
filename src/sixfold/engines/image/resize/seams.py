"""Seam carving (Avidan and Shamir, with the forward energy of Rubinstein, Shamir and Avidan).

Seams are found on a small copy and become a map from positions in the narrow image to positions in the wide
image. The map is smoothed, enlarged and used to resample the full image once.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Cost of removing a pixel of full importance, where a step from black to white costs 1.
_GUARD = 4.0
_SMOOTH = 1.2


class CarvedImage(msgspec.Struct, frozen=True):
    """The source columns (0 to 1) for each position of the narrow image, HxN.

    `lost` is the fraction of the importance that was removed.
    """

    columns: Array
    lost: float


def carve(gray: Array, importance: Array, width: int) -> CarvedImage:
    """Narrow a small image (HxW, 0 to 1) to `width` columns; `importance` (HxW) protects important pixels."""
    height, wide = gray.shape
    columns = np.tile(np.arange(wide), (height, 1))
    left, importance_left = gray.astype(np.float32), importance.astype(np.float32)
    for _ in range(wide - width):
        keep: Array = np.ones((height, len(left[0])), bool)
        keep[np.arange(height), _seam(left, importance_left * _GUARD)] = False
        shape = (height, keep.shape[1] - 1)
        left, importance_left = left[keep].reshape(shape), importance_left[keep].reshape(shape)
        columns = columns[keep].reshape(shape)
    total = float(importance.sum())
    lost = 1 - float(importance_left.sum()) / total if total else 0.0
    smooth = cv2.GaussianBlur(columns.astype(np.float32), (0, 0), _SMOOTH, borderType=cv2.BORDER_REPLICATE)
    return CarvedImage((smooth + np.float32(0.5)) / wide, lost)


def _seam(gray: Array, guard: Array) -> Array:
    """Return the cheapest path from top to bottom as the column of each row."""
    height, width = gray.shape
    padded = np.pad(gray, ((0, 0), (1, 1)), mode="edge")
    across = np.abs(padded[:, 2:] - padded[:, :-2]) + guard
    above = padded[:-1]
    to_left = across[1:] + np.abs(above[:, 1:-1] - padded[1:, :-2])
    to_right = across[1:] + np.abs(above[:, 1:-1] - padded[1:, 2:])
    wall = np.float32(1e9)
    cost = across[0]
    choices = np.zeros((height, width), np.int8)
    options = np.empty((3, width), np.float32)
    indexes = np.arange(width)
    for row in range(1, height):
        options[0, 1:], options[0, 0] = cost[:-1], wall
        options[1] = cost
        options[2, :-1], options[2, -1] = cost[1:], wall
        options[0] += to_left[row - 1]
        options[1] += across[row]
        options[2] += to_right[row - 1]
        best = options.argmin(0)
        choices[row] = best - 1
        cost = options[best, indexes]
    path = np.empty(height, np.int64)
    path[-1] = int(cost.argmin())
    for row in range(height - 1, 0, -1):
        path[row - 1] = path[row] + choices[row, path[row]]
    return path
