"""Heuristic depth estimation from a single image.

Low, salient and sharp regions are near; a bright, smooth region at the upper edge is sky. The estimate is
smooth, so that errors do not distort the image; only a subject with an unambiguous outline is cut out. The
estimate is suitable for parallax, but is not metric.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The longer side, in pixels, of the analyzed image and of the segmented image.
_SIDE, _GRAB_SIDE = 320, 200
# The fraction of the image that a subject may cover.
_MIN_AREA, _MAX_AREA = 0.03, 0.45
# The strength of a visible edge: the 3 x 3 Sobel gradient in Lab.
_EDGE = 60.0
# The minimum fraction of its convex hull that a subject covers.
_MIN_SOLIDITY = 0.8
# The minimum fraction of a subject's outline that lies on visible edges.
_MIN_EDGE_SHARE = 0.93


class DepthGuess(msgspec.Struct, frozen=True):
    """Maps of nearness, sky and subject (or None), float32 in 0..1 at a reduced size."""

    near: Array
    sky: Array
    subject: Array | None


def estimate(rgb: Array) -> DepthGuess:
    """Estimate the depth of an RGB image in bytes, at a size of at most 320 pixels."""
    height, width = rgb.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    sky, saliency = _sky(small, lab), salience(lab)
    rows = np.linspace(0, 1, size[1], dtype=np.float32)[:, None]
    near = (0.7 * rows + 0.3 * _smooth(saliency) + 0.1 * _smooth(_sharpness(lab[..., 0]))) * (
        1 - 0.6 * _smooth(sky)
    )
    subject = _subject(small, saliency * (1 - sky))
    return DepthGuess(np.clip(near, 0, 1).astype(np.float32), sky, subject)


def _smooth(values: Array) -> Array:
    """Blur the values enough that wrong estimates do not visibly bend straight lines."""
    return cv2.GaussianBlur(values, (0, 0), 0.09 * max(values.shape))


def salience(lab: Array) -> Array:
    """Return each pixel's contrast to the image's margins and to its surroundings, 0..1."""
    height, width = lab.shape[:2]
    rim = max(2, min(height, width) // 14)
    margins = [lab[:rim], lab[:, :rim], lab[:, -rim:]]
    apart = np.full((height, width), np.inf, np.float32)
    for margin in margins:
        pixels = margin.reshape(-1, 3)
        spread = pixels.std(0) + np.float32(6)
        apart = np.minimum(apart, np.linalg.norm((lab - pixels.mean(0)) / spread, axis=2))
    soft = cv2.GaussianBlur(lab, (0, 0), max(height, width) / 10)
    local = np.linalg.norm(cv2.GaussianBlur(lab, (0, 0), 2) - soft, axis=2)
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    middle = np.exp(-1.1 * (x * x + 0.7 * (y - 0.15) ** 2))
    return _stretched((_stretched(apart) * 0.6 + _stretched(local) * 0.4) * middle)


def _sharpness(lightness: Array) -> Array:
    detail = np.abs(cv2.Laplacian(lightness, cv2.CV_32F, ksize=3))
    return _stretched(np.sqrt(cv2.GaussianBlur(detail, (0, 0), max(lightness.shape) / 28)))


def _sky(small: Array, lab: Array) -> Array:
    """Return the smooth, bright or blue region connected to the upper edge."""
    lightness = lab[..., 0]
    rough = cv2.GaussianBlur(np.abs(cv2.Laplacian(lightness, cv2.CV_32F, ksize=3)), (0, 0), 2.5)
    blue = small[..., 2].astype(np.int16) - small[..., 0] > -12
    bright = lightness > np.median(lightness) - 4
    like = ((rough < 3.0) & (bright | blue)).astype(np.uint8)
    count, labels = cv2.connectedComponents(like)
    on_top = np.unique(labels[: max(1, labels.shape[0] // 40)])
    sky = np.isin(labels, [label for label in on_top if 0 < label < count]).astype(np.float32)
    if not 0.06 < sky.mean() < 0.9:
        return np.zeros_like(lightness)
    sky *= np.linspace(1.25, 0.2, sky.shape[0], dtype=np.float32).clip(0, 1)[:, None]
    return np.clip(_along_edges(cv2.GaussianBlur(sky, (0, 0), 2), small), 0, 1)


def _subject(small: Array, saliency: Array) -> Array | None:
    """Return the mask of the salient subject along its edges, or None if the subject is unclear."""
    scale = _GRAB_SIDE / max(small.shape[:2])
    size = (round(small.shape[1] * scale), round(small.shape[0] * scale))
    reduced = cv2.resize(small, size, interpolation=cv2.INTER_AREA)
    salience_map = cv2.resize(saliency, size, interpolation=cv2.INTER_AREA)
    marks = np.full(salience_map.shape, cv2.GC_PR_BGD, np.uint8)
    marks[salience_map > 0.45] = cv2.GC_PR_FGD
    marks[salience_map > 0.75] = cv2.GC_FGD
    marks[salience_map < 0.12] = cv2.GC_BGD
    rim = max(1, min(size) // 40)
    marks[:rim], marks[:, :rim], marks[:, -rim:] = cv2.GC_BGD, cv2.GC_BGD, cv2.GC_BGD
    sure = (marks == cv2.GC_FGD).mean()
    if not 0.004 < sure < _MAX_AREA:
        return None
    cv2.setRNGSeed(0)
    back, front = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(reduced, marks, (0, 0, 0, 0), back, front, 3, cv2.GC_INIT_WITH_MASK)
    mask = np.isin(marks, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    mask = _filled(_largest(cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))))
    if mask is None:
        return None
    if (
        not _MIN_AREA < mask.mean() < _MAX_AREA
        or not _stands_out(salience_map, mask)
        or _on_edges(reduced, mask) < _MIN_EDGE_SHARE
    ):
        return None
    soft = cv2.resize(
        mask.astype(np.float32), (small.shape[1], small.shape[0]), interpolation=cv2.INTER_LINEAR
    )
    return np.clip(_along_edges(soft, small, radius=3), 0, 1)


def _on_edges(reduced: Array, mask: Array) -> float:
    """Return the fraction of the outline that lies on edges; a wrong mask runs through plain regions."""
    lab = cv2.cvtColor(reduced.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    across, down = cv2.Sobel(lab, cv2.CV_32F, 1, 0), cv2.Sobel(lab, cv2.CV_32F, 0, 1)
    strength = cv2.dilate(np.sqrt((across * across + down * down).sum(2)), np.ones((3, 3), np.uint8))
    outline = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    return float((strength[outline] > _EDGE).mean())


def _largest(mask: Array) -> Array:
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask)
    if count < 2:
        return mask
    sizes = stats[1:, cv2.CC_STAT_AREA]
    large = [label + 1 for label in range(count - 1) if sizes[label] > 0.15 * sizes.max()]
    return np.isin(labels, large).astype(np.uint8)


def _filled(mask: Array) -> Array | None:
    """Return the mask without holes, or None if its outline is too ragged for a single object."""
    outlines, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    solid = cv2.drawContours(np.zeros_like(mask), outlines, -1, 1, cv2.FILLED)
    hulls = sum(cv2.contourArea(cv2.convexHull(outline)) for outline in outlines)
    return solid if hulls and solid.sum() / hulls > _MIN_SOLIDITY else None


def _stands_out(saliency: Array, mask: Array) -> bool:
    inside, outside = saliency[mask > 0], saliency[mask == 0]
    return bool(inside.size and inside.mean() > 2.2 * outside.mean() + 0.05)


def _along_edges(values: Array, small: Array, radius: int = 12) -> Array:
    """Smooth values while preserving the image's edges."""
    guide = small.astype(np.float32) / 255
    return cv2.ximgproc.guidedFilter(guide, values.astype(np.float32), radius, 1e-3)


def _stretched(values: Array) -> Array:
    """Scale values linearly so that the 2nd and 98th percentiles become 0 and 1."""
    low, high = np.percentile(values, (2, 98))
    return np.clip((values - low) / max(float(high - low), 1e-3), 0, 1).astype(np.float32)
