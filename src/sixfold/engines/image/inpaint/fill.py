"""Filling a hole without weights: pieces of the surroundings for areas, their colours for lines.

An area is filled by shift maps (Pritch, Kav-Venaki and Peleg, 2009) on a part of the picture round it; a
thin one by fast marching (Telea, 2004), which draws edges through and has no texture to find.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.inpaint.masks import Hole

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_THIN = 5.0  # pixels from the middle of a hole to its edge
_AROUND = 1.3  # of the hole's longer side: how much of the picture is looked at
_LEAST_AROUND = 48
_SIDE = 512  # of the part that pieces are looked for in


def filled(rgb: Pixels, hole: Hole) -> Pixels:
    """The picture with the hole filled; outside of it nothing is changed."""
    top, bottom, left, right = _part(rgb.shape, hole)
    part, gone = rgb[top:bottom, left:right], hole.gone[top:bottom, left:right]
    depth = cv2.distanceTransform(
        cv2.copyMakeBorder(gone.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 3
    )
    made = _drawn(part, gone) if depth.max() <= _THIN else _pieced(part, gone)
    whole = rgb.copy()
    whole[top:bottom, left:right][gone] = made[gone]
    return whole


def _part(shape: tuple[int, ...], hole: Hole) -> tuple[int, int, int, int]:
    left, top, width, height = hole.box
    around = max(_LEAST_AROUND, round(_AROUND * max(width, height)))
    return (
        max(0, top - around),
        min(shape[0], top + height + around),
        max(0, left - around),
        min(shape[1], left + width + around),
    )


def _drawn(part: Pixels, gone: Array) -> Pixels:
    return cv2.inpaint(np.ascontiguousarray(part), gone.astype(np.uint8), 4, cv2.INPAINT_TELEA)


def _pieced(part: Pixels, gone: Array) -> Pixels:
    """By shift maps, at a size where they find something soon; fine grain comes from the surroundings."""
    scale = min(1.0, _SIDE / max(gone.shape))
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
    made = cv2.cvtColor(out, cv2.COLOR_LAB2RGB)
    if scale == 1.0:
        return made
    return cv2.resize(made, gone.shape[::-1], interpolation=cv2.INTER_CUBIC)
