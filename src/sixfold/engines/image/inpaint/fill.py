"""Filling of holes without weights: large holes with texture, thin holes with colors.

A large hole is filled by a repetition found around it (`patch_copy`), or else by pieces of its surroundings
(`shift_map`); the pieces are joined by their gradients. A thin hole is filled by fast marching (Telea, 2004),
which continues edges without texture. A hole in smooth shading is filled by the surface that bends least
(`smooth`).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.inpaint import gradients, patch_copy, shift_map, smooth
from sixfold.engines.image.inpaint.masks import MaskHole

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Largest distance in pixels from the middle of a thin hole to its edge.
_THIN = 5.0
# Margin around the hole that is used as its surroundings, as a fraction of the hole's longer side.
_AROUND = 1.3
_MIN_AROUND = 48
# Largest difference in levels of smooth shading from its local mean.
_SMOOTH = 4.0


def fill_hole(rgb: Pixels, hole: MaskHole) -> Pixels:
    """Return the image with the hole filled; pixels outside it are unchanged."""
    top, bottom, left, right = _part(rgb.shape, hole)
    part, missing = rgb[top:bottom, left:right], hole.mask[top:bottom, left:right]
    depth = cv2.distanceTransform(
        cv2.copyMakeBorder(missing.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 3
    )
    result = rgb.copy()
    result[top:bottom, left:right][missing] = _filled(part, missing, float(depth.max()))[missing]
    return result


def _filled(part: Pixels, missing: Array, depth: float) -> Pixels:
    if depth <= _THIN:
        return cv2.inpaint(np.ascontiguousarray(part), missing.astype(np.uint8), 4, cv2.INPAINT_TELEA)
    grain = part - _mean(part, ~missing, 2.0)
    if _is_smooth(grain, missing):
        return smooth.fill(part, missing, grain)
    offsets = patch_copy.offsets(part, missing)
    if offsets is None:
        offsets = shift_map.offsets(part, missing)
    if offsets is None:
        return smooth.fill(part, missing, grain)
    return gradients.join(part, missing, offsets)


def _mean(values: Array, where: Array, sigma: float) -> Array:
    """Return the local mean of the values where `where` is set."""
    weight = where.astype(np.float32)
    total = cv2.GaussianBlur(values.astype(np.float32) * weight[..., None], (0, 0), sigma)
    share = cv2.GaussianBlur(weight, (0, 0), sigma)
    return total.reshape(*weight.shape, -1) / np.maximum(share, 1e-4)[..., None]


def _part(shape: tuple[int, ...], hole: MaskHole) -> tuple[int, int, int, int]:
    left, top, width, height = hole.box
    around = max(_MIN_AROUND, round(_AROUND * max(width, height)))
    return (
        max(0, top - around),
        min(shape[0], top + height + around),
        max(0, left - around),
        min(shape[1], left + width + around),
    )


def _is_smooth(grain: Array, missing: Array) -> bool:
    """Return whether the hole is surrounded by smooth shading only."""
    near = np.abs(grain)[patch_copy.ring_of(missing)]
    return bool(len(near)) and float(np.quantile(near.max(1), 0.98)) < _SMOOTH
