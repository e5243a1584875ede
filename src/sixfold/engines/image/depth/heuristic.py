"""Heuristic depth estimation without weights: visually plausible, but not metric.

Low, salient and sharp regions are near; a smooth region that touches the upper edge is sky. The estimate
follows the image's edges, and each region is flat or slants with its rows.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import saliency

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_SIDE = 512
_LOW, _OUT, _SHARP, _FINE = 0.50, 0.42, 0.14, 0.05
# Roughness of lightness above which a region is not sky.
_SKY_ROUGH = 0.012


def nearness(rgb: Pixels) -> Array:
    """Return the nearness of each pixel as float32 HxW, from 0 (far) to 1 (near)."""
    height, width = rgb.shape[:2]
    small = saliency.downscale(rgb, _SIDE)
    guide = small.astype(np.float32) / 255
    lightness = cv2.cvtColor(guide, cv2.COLOR_RGB2LAB)[..., 0] / 100
    salient = _solidify(saliency.saliency(small), guide)
    rows = np.linspace(0, 1, small.shape[0], dtype=np.float32)[:, None]
    sharp = _stretch(cv2.GaussianBlur(np.abs(cv2.Laplacian(lightness, cv2.CV_32F)), (0, 0), 9))
    sky = _sky(lightness, guide)
    near = _LOW * rows + _OUT * salient + _SHARP * cv2.ximgproc.guidedFilter(guide, sharp, 16, 1e-3)
    near = near * (1 - sky) + 0.02 * sky
    near = cv2.ximgproc.guidedFilter(guide, near.astype(np.float32), 8, 4e-4)
    near = _stretch(near) + _FINE * (lightness - cv2.GaussianBlur(lightness, (0, 0), 12)) * (1 - sky)
    large = cv2.resize(near.astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    if (height, width) != small.shape[:2]:
        radius = max(2, round(2 * max(height, width) / _SIDE))
        large = cv2.ximgproc.guidedFilter(rgb.astype(np.float32) / 255, large, radius, 1e-4)
    return np.clip(large, 0, 1)


def _solidify(salient: Array, guide: Array) -> Array:
    """Close gaps in salient regions and align them to edges: nearness varies little within an object."""
    solid = cv2.ximgproc.guidedFilter(guide, np.clip((salient - 0.25) * 2, 0, 1).astype(np.float32), 10, 1e-4)
    closed = cv2.morphologyEx(solid, cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8))
    return np.clip(0.6 * closed + 0.4 * cv2.GaussianBlur(closed, (0, 0), 10), 0, 1)


def _sky(lightness: Array, guide: Array) -> Array:
    """Return the probability (0 to 1) that each pixel is sky."""
    rough = cv2.GaussianBlur(np.abs(cv2.Laplacian(lightness, cv2.CV_32F)), (0, 0), 2)
    like = (rough < _SKY_ROUGH) & (lightness > np.median(lightness) - 0.05)
    count, labels = cv2.connectedComponents(like.astype(np.uint8))
    on_top = np.unique(labels[: max(1, labels.shape[0] // 40)])
    hanging = np.isin(labels, [label for label in on_top if 0 < label < count]).astype(np.float32)
    if not 0.05 < hanging.mean() < 0.8:
        return np.zeros_like(lightness)
    hanging *= np.linspace(1.3, 0, hanging.shape[0], dtype=np.float32).clip(0, 1)[:, None]
    closed = cv2.morphologyEx(hanging, cv2.MORPH_CLOSE, np.ones((15, 15), np.uint8))
    return np.clip(cv2.ximgproc.guidedFilter(guide, closed, 8, 1e-3), 0, 1)


def _stretch(values: Array) -> Array:
    """Scale the values so that the 1st and 99th percentiles become 0 and 1."""
    low, high = np.percentile(values, (1, 99))
    return np.clip((values - low) / max(float(high - low), 1e-3), 0, 1).astype(np.float32)
