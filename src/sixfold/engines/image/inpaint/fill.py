"""Filling a hole without weights: texture from the surroundings for large holes, colors for lines.

A large hole is filled by a repetition found around it (`patch_copy`), otherwise by shift maps (Pritch,
Kav-Venaki and Peleg, 2009) on a part of the image around it. A thin hole is filled by fast marching (Telea,
2004), which continues edges and needs no texture; a hole in smooth shading by the flow of Bertalmio and
others (2001).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.inpaint import patch_copy
from sixfold.engines.image.inpaint.masks import MaskHole

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Largest distance in pixels from the middle of a thin hole to its edge.
_THIN = 5.0
# Margin around the hole that is considered, as a share of the hole's longer side.
_AROUND = 1.3
_LEAST_AROUND = 48
# Width in pixels of the strips on both sides of an edge, and the step in levels from which two surfaces
# differ.
_RIM, _STEP = 5, 26.0
# Largest difference in levels of smooth shading from its local mean.
_SMOOTH = 4.0
# Sizes at which shift maps are computed; the result with the smaller seam is used.
_SIDES = (512, 256)


def fill_hole(rgb: Pixels, hole: MaskHole) -> Pixels:
    """Return the image with the hole filled; pixels outside it are unchanged."""
    top, bottom, left, right = _part(rgb.shape, hole)
    part, gone = rgb[top:bottom, left:right], hole.gone[top:bottom, left:right]
    depth = cv2.distanceTransform(
        cv2.copyMakeBorder(gone.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 3
    )
    if depth.max() <= _THIN or _is_smooth(part, gone):
        patch = _diffuse(part, gone, thin=depth.max() <= _THIN)
    else:
        patch = patch_copy.copy_patches(part, gone)
    if patch is None:
        patch = min(
            (_shift_map(part, gone, side) for side in _SIDES),
            key=lambda candidate: _seam(candidate, part, gone),
        )
    whole = rgb.copy()
    whole[top:bottom, left:right][gone] = _match_tone(patch, part, gone)[gone]
    return whole


def _match_tone(patch: Pixels, part: Pixels, gone: Array) -> Pixels:
    """Match the filling's tone to its surroundings: a small step at the edge is spread inwards.

    A large step is the edge of an object and stays.
    """
    hidden = gone.astype(np.uint8)
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * _RIM + 1, 2 * _RIM + 1))
    without, within = cv2.dilate(hidden, disc) - hidden, hidden - cv2.erode(hidden, disc)
    outer, inner = (_mean(pixels, rim, _RIM) for pixels, rim in ((part, without), (patch, within)))
    step = (outer - inner) * within[..., None]
    small = np.exp(-((np.linalg.norm(step, axis=2, keepdims=True) / _STEP) ** 2))
    spread = _mean(step * small, within, max(_RIM, 0.35 * float(np.sqrt(gone.sum()))))
    fading = _mean(small * within[..., None], within, 2 * _RIM)
    return np.clip(np.rint(patch + spread * np.clip(fading, 0.4, 1)), 0, 255).astype(np.uint8)


def _seam(patch: Pixels, part: Pixels, gone: Array) -> float:
    """Return the mean color step across the hole's edge."""
    hidden, cross = gone.astype(np.uint8), np.ones((3, 3), np.uint8)
    without, within = cv2.dilate(hidden, cross) - hidden, hidden - cv2.erode(hidden, cross)
    step = (_mean(part, without, 1.0) - _mean(patch, within, 1.0))[within > 0]
    return float(np.linalg.norm(step, axis=1).mean()) if len(step) else 0.0


def _mean(values: Array, where: Array, sigma: float) -> Array:
    """Return the local mean of the values where `where` is set."""
    weight = where.astype(np.float32)
    total = cv2.GaussianBlur(values.astype(np.float32) * weight[..., None], (0, 0), sigma)
    share = cv2.GaussianBlur(weight, (0, 0), sigma)
    return total.reshape(*weight.shape, -1) / np.maximum(share, 1e-4)[..., None]


def _part(shape: tuple[int, ...], hole: MaskHole) -> tuple[int, int, int, int]:
    left, top, width, height = hole.box
    around = max(_LEAST_AROUND, round(_AROUND * max(width, height)))
    return (
        max(0, top - around),
        min(shape[0], top + height + around),
        max(0, left - around),
        min(shape[1], left + width + around),
    )


def _is_smooth(part: Pixels, gone: Array) -> bool:
    """Return whether the hole is surrounded by smooth shading only."""
    ring = patch_copy.ring_of(gone)
    grain = np.abs(part - _mean(part, ~gone, 2.0))[ring]
    return bool(len(grain)) and float(np.quantile(grain.max(1), 0.98)) < _SMOOTH


def _diffuse(part: Pixels, gone: Array, *, thin: bool) -> Pixels:
    method = cv2.INPAINT_TELEA if thin else cv2.INPAINT_NS
    return cv2.inpaint(np.ascontiguousarray(part), gone.astype(np.uint8), 4, method)


def _shift_map(part: Pixels, gone: Array, side: int) -> Pixels:
    """Fill by shift maps at a reduced size, where they converge quickly; fine grain comes from the
    surroundings.
    """
    scale = min(1.0, side / max(gone.shape))
    size = (max(8, round(gone.shape[1] * scale)), max(8, round(gone.shape[0] * scale)))
    small = cv2.resize(part, size, interpolation=cv2.INTER_AREA) if scale < 1 else part
    hidden = (
        cv2.resize(gone.astype(np.uint8), size, interpolation=cv2.INTER_LINEAR_EXACT) if scale < 1 else gone
    )
    hidden = cv2.dilate((hidden > 0).astype(np.uint8), np.ones((3, 3), np.uint8)) if scale < 1 else hidden
    lab = cv2.cvtColor(np.ascontiguousarray(small), cv2.COLOR_RGB2LAB)
    known = np.where(hidden > 0, 0, 255).astype(np.uint8)
    cv2.setRNGSeed(0)
    out = lab.copy()
    cv2.xphoto.inpaint(lab, known, out, cv2.xphoto.INPAINT_SHIFTMAP)
    filling = cv2.cvtColor(out, cv2.COLOR_LAB2RGB)
    if scale == 1.0:
        return filling
    return cv2.resize(filling, gone.shape[::-1], interpolation=cv2.INTER_CUBIC)
