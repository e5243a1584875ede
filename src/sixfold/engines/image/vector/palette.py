"""Reduction of the number of colors, because each color of a smooth gradient would become a path."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Number of pixels from which the colors are computed.
_SAMPLE = 24_000
_ROUNDS = 12
# Number of pixels compared at once.
_STRIP = 65_536


def reduce_colors(rgb: Pixels, count: int) -> Pixels:
    """Return the image with at most `count` colors: the nearest of its cluster centers in Lab."""
    lab = cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2LAB).reshape(-1, 3)
    if len(lab) == 1:
        # `cv2.kmeans` reads a single row as samples of one dimension.
        return rgb
    step = max(1, len(lab) // _SAMPLE)
    sample = np.ascontiguousarray(lab[::step])
    clusters = min(count, len(np.unique(np.rint(sample), axis=0)))
    cv2.setRNGSeed(0)
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, _ROUNDS, 0.5)
    _, _, centers = cv2.kmeans(sample, clusters, None, criteria, 1, cv2.KMEANS_PP_CENTERS)  # pyright: ignore[reportCallIssue, reportArgumentType] - the stub wants labels
    colors = cv2.cvtColor(centers[None].astype(np.float32), cv2.COLOR_LAB2RGB)[0]
    eight = np.rint(np.clip(colors, 0, 1) * 255).astype(np.uint8)
    return eight[_nearest(lab, centers)].reshape(rgb.shape)


def _nearest(lab: Array, centers: Array) -> Array:
    """Return the index of each pixel's nearest center."""
    halves = (centers**2).sum(1) / 2
    strips = (lab[at : at + _STRIP] for at in range(0, len(lab), _STRIP))
    return np.concatenate([np.argmax(strip @ centers.T - halves, axis=1) for strip in strips])
