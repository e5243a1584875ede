"""Nearness made visible: gray, in colors, or as the directions in which surfaces look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_RELIEF = 0.9  # of the image's longer side: how deep the whole scene is at full strength
_SMOOTH = 0.002  # of the longer side


def gray(near: Array, strength: float) -> Pixels:
    """White near, black far; more strength, more contrast between the two."""
    return np.repeat(_bytes(_curved(near, strength))[..., None], 3, axis=2)


def heatmap(near: Array, strength: float) -> Pixels:
    """Dark violet far, yellow near."""
    colored = cv2.applyColorMap(_bytes(_curved(near, strength)), cv2.COLORMAP_INFERNO)
    return np.ascontiguousarray(colored[..., ::-1])


def normals(near: Array, strength: float) -> Pixels:
    """The directions of surfaces as OpenGL has them: red to the right, green up, blue to the viewer."""
    side = max(near.shape)
    smooth = cv2.GaussianBlur(near.astype(np.float32), (0, 0), max(0.8, _SMOOTH * side))
    deep = np.float32(_RELIEF * strength * side)
    dx, dy = (cv2.Scharr(smooth, cv2.CV_32F, *way, scale=1 / 32) * deep for way in ((1, 0), (0, 1)))
    directions = np.dstack([-dx, dy, np.ones_like(dx)])
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    return np.rint((directions * 0.5 + 0.5) * 255).astype(np.uint8)


MAPS: dict[str, Callable[[Array, float], Pixels]] = {"depth": gray, "heatmap": heatmap, "normals": normals}


def _curved(near: Array, strength: float) -> Array:
    """Stretched round its middle: at a strength of 0.55 nearly as it is, at 1 twice as steep."""
    steep = np.float32(0.4 + 1.1 * strength)
    return 0.5 + (near - 0.5) * steep if steep <= 1 else _bent(near, float(steep))


def _bent(near: Array, steep: float) -> Array:
    """An even S: `steep` in the middle, never beyond 0 and 1."""
    power = np.float32(steep)
    low, high = near**power, (1 - near) ** power
    return low / np.maximum(low + high, 1e-6)


def _bytes(values: Array) -> Pixels:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
