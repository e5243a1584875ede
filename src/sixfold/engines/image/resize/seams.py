"""Seam carving (Avidan and Shamir, with the forward energy of Rubinstein, Shamir and Avidan).

Seams are found on a small copy and become a map: for each place of the narrower image, where it comes
from in the wide one. Smoothed and enlarged, the map resamples the full image once, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_GUARD = 4.0  # what a pixel that matters fully costs, where 1 is the step from black to white
_SMOOTH = 1.2


@dataclass(frozen=True, slots=True)
class CarvedImage:
    """Columns of the wide image (0 to 1) by place in the narrow one, HxN; what of the worth went."""

    columns: Array
    lost: float


def carve(gray: Array, worth: Array, width: int) -> CarvedImage:
    """Narrow a small image (HxW, 0 to 1) to `width` columns; `worth` HxW says what matters."""
    height, wide = gray.shape
    columns = np.tile(np.arange(wide), (height, 1))
    left, held = gray.astype(np.float32), worth.astype(np.float32)
    for _ in range(wide - width):
        keep: Array = np.ones((height, len(left[0])), bool)
        keep[np.arange(height), _seam(left, held * _GUARD)] = False
        shape = (height, keep.shape[1] - 1)
        left, held = left[keep].reshape(shape), held[keep].reshape(shape)
        columns = columns[keep].reshape(shape)
    total = float(worth.sum())
    lost = 1 - float(held.sum()) / total if total else 0.0
    smooth = cv2.GaussianBlur(columns.astype(np.float32), (0, 0), _SMOOTH, borderType=cv2.BORDER_REPLICATE)
    return CarvedImage((smooth + np.float32(0.5)) / wide, lost)


def _seam(gray: Array, guard: Array) -> Array:
    """The cheapest path from top to bottom: one column for each row."""
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
    places = np.arange(width)
    for row in range(1, height):
        options[0, 1:], options[0, 0] = cost[:-1], wall
        options[1] = cost
        options[2, :-1], options[2, -1] = cost[1:], wall
        options[0] += to_left[row - 1]
        options[1] += across[row]
        options[2] += to_right[row - 1]
        best = options.argmin(0)
        choices[row] = best - 1
        cost = options[best, places]
    path = np.empty(height, np.int64)
    path[-1] = int(cost.argmin())
    for row in range(height - 1, 0, -1):
        path[row - 1] = path[row] + choices[row, path[row]]
    return path
