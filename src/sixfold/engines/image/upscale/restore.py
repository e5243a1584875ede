"""Upscaling of drawings by iterative back-projection (Irani and Peleg, 1991).

The image is enlarged, reduced again, and corrected by the difference, repeatedly, so that the result reduces
to the input. Between the rounds, the image is smoothed along its edges but not across the edges, which
removes stair steps from slanted lines and ringing beside these lines.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


# Rounds of smoothing and correction; strengths of the merging of nearly equal colors and of the sharpening.
_TURNS, _FLAT, _SHARP = 4, 0.05, 0.35
# Corrections after each smoothing.
_BACK = 2
# Sampling distances along an edge, in units of the scale.
_REACH = (0.6, 1.2)


def enlarge(small: Array, scale: int) -> Array:
    """Return `small` (HxWxC, float32 0 to 1) enlarged `scale` times."""
    height, width = small.shape[:2]
    size = (width * scale, height * scale)
    large = _channels(cv2.resize(small, size, interpolation=cv2.INTER_CUBIC))
    large = correct(large, small)
    for _ in range(_TURNS):
        large = correct(_flat(_along_edges(large, scale), scale, _FLAT), small)
    return np.clip(correct(_sharpen(large, scale, _SHARP), small, 1), 0, 1)


def correct(large: Array, small: Array, times: int = _BACK) -> Array:
    """Correct `large` by its difference from `small` at the reduced size, repeatedly."""
    size, whole = small.shape[1::-1], large.shape[1::-1]
    for _ in range(times):
        lacking = small - _channels(cv2.resize(large, size, interpolation=cv2.INTER_AREA))
        large = large + _channels(cv2.resize(lacking, whole, interpolation=cv2.INTER_CUBIC))
    return large


def _along_edges(large: Array, scale: int) -> Array:
    """Average each pixel with its neighbors along the edge, weighted by the edge's strength."""
    gray = large.mean(2)
    dx, dy = cv2.Sobel(gray, cv2.CV_32F, 1, 0, scale=0.125), cv2.Sobel(gray, cv2.CV_32F, 0, 1, scale=0.125)
    xx, yy, xy = (cv2.GaussianBlur(part, (0, 0), 0.8 * scale) for part in (dx * dx, dy * dy, dx * dy))
    spread = np.sqrt((xx - yy) ** 2 + 4 * xy * xy)
    clear = (spread / (xx + yy + 1e-6)) ** 2 * (xx + yy) / (xx + yy + 2e-5)
    angle = 0.5 * np.arctan2(2 * xy, xx - yy) + np.float32(np.pi / 2)
    step_x, step_y = np.cos(angle), np.sin(angle)
    columns, rows = np.meshgrid(
        np.arange(gray.shape[1], dtype=np.float32), np.arange(gray.shape[0], dtype=np.float32)
    )
    total, weight = large.copy(), 1.0
    for reach in _REACH:
        share = float(np.exp(-reach))
        for offset in (-reach * scale, reach * scale):
            at = (columns + step_x * np.float32(offset), rows + step_y * np.float32(offset))
            total += share * _channels(cv2.remap(large, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))
        weight += 2 * share
    return large + (total / np.float32(weight) - large) * clear[..., None]


def _flat(large: Array, scale: int, amount: float) -> Array:
    """Merge nearly equal colors into flat patches, as in drawings."""
    return np.dstack(
        [
            cv2.ximgproc.guidedFilter(large, np.ascontiguousarray(large[..., channel]), scale, amount**2)
            for channel in range(large.shape[2])
        ]
    ).astype(np.float32)


def _sharpen(large: Array, scale: int, amount: float) -> Array:
    """Steepen edges without overshoot: sharpen, then limit to the neighborhood's range."""
    soft = cv2.GaussianBlur(large, (0, 0), 0.6 * scale)
    around = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * (scale // 2) + 1,) * 2)
    steep = large + np.float32(amount * 2) * (large - soft)
    return np.clip(steep, _channels(cv2.erode(large, around)), _channels(cv2.dilate(large, around)))


def _channels(values: Array) -> Array:
    return values if values.ndim == 3 else values[..., None]
