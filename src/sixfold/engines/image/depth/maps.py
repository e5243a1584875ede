"""Images of a nearness map: grayscale, heat map or surface normals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Depth of the whole scene at full strength, as a fraction of the longer side.
_RELIEF = 0.9
# Blur before the gradient, as a fraction of the longer side.
_SMOOTH = 0.002


def gray(near: Array, strength: float) -> Pixels:
    """Render near as white and far as black; a higher strength increases the contrast."""
    return np.repeat(_bytes(_contrast(near, strength))[..., None], 3, axis=2)


def heatmap(near: Array, strength: float) -> Pixels:
    """Render near as yellow and far as dark violet."""
    colored = cv2.applyColorMap(_bytes(_contrast(near, strength)), cv2.COLORMAP_INFERNO)
    return np.ascontiguousarray(colored[..., ::-1])


def normals(near: Array, strength: float) -> Pixels:
    """Render surface normals in OpenGL's convention: red to the right, green up, blue towards the viewer."""
    side = max(near.shape)
    smooth = cv2.GaussianBlur(near.astype(np.float32), (0, 0), max(0.8, _SMOOTH * side))
    deep = np.float32(_RELIEF * strength * side)
    dx, dy = (cv2.Scharr(smooth, cv2.CV_32F, *axis, scale=1 / 32) * deep for axis in ((1, 0), (0, 1)))
    directions = np.dstack([-dx, dy, np.ones_like(dx)])
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    return np.rint((directions * 0.5 + 0.5) * 255).astype(np.uint8)


MAPS: dict[str, Callable[[Array, float], Pixels]] = {"depth": gray, "heatmap": heatmap, "normals": normals}


def _contrast(near: Array, strength: float) -> Array:
    """Change the contrast around the middle: nearly unchanged at a strength of 0.55, twice as steep at 1."""
    steep = np.float32(0.4 + 1.1 * strength)
    return 0.5 + (near - 0.5) * steep if steep <= 1 else _s_curve(near, float(steep))


def _s_curve(near: Array, steep: float) -> Array:
    """Apply a symmetric S-curve with slope `steep` in the middle, bounded by 0 and 1."""
    power = np.float32(steep)
    low, high = near**power, (1 - near) ** power
    return low / np.maximum(low + high, 1e-6)


def _bytes(values: Array) -> Pixels:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
