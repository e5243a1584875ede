"""How near each part of a picture is, guessed from the picture alone.

What stands low, what stands out and what is sharp is near; a bright, smooth region that hangs from the upper
edge is sky. The guess is gentle, so that a wrong one bends nothing; only a thing whose outline is clear
beyond doubt is cut out. It is good for parallax and is not metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SIDE = 320  # pixels of the longer side that the guess is made at
_GRAB_SIDE = 200
_LEAST, _MOST = 0.03, 0.45  # how much of the picture a subject may be
_EDGE = 60.0  # of Lab by a 3 x 3 Sobel: an edge that an eye would call one
_SOLID = 0.8  # how much of its own hull a subject fills
_CLEAR = 0.93  # how much of a subject's outline has to lie on such edges


@dataclass(frozen=True, slots=True)
class DepthGuess:
    """All float32 in 0..1 at a small size: `near`, how much a pixel is `sky`, and the `subject` or None."""

    near: Array
    sky: Array
    subject: Array | None


def estimate(rgb: Array) -> DepthGuess:
    """The guess for a picture of bytes, at most 320 pixels long."""
    height, width = rgb.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    sky, saliency = _sky(small, lab), salience(lab)
    rows = np.linspace(0, 1, size[1], dtype=np.float32)[:, None]
    near = (0.7 * rows + 0.3 * _gentle(saliency) + 0.1 * _gentle(_sharpness(lab[..., 0]))) * (
        1 - 0.6 * _gentle(sky)
    )
    subject = _subject(small, saliency * (1 - sky))
    return DepthGuess(np.clip(near, 0, 1).astype(np.float32), sky, subject)


def _gentle(values: Array) -> Array:
    """Without any edge: where a guess is wrong, straight lines at least stay nearly straight."""
    return cv2.GaussianBlur(values, (0, 0), 0.09 * max(values.shape))


def salience(lab: Array) -> Array:
    """How much each pixel stands out from the picture's margins and from its surroundings, 0..1."""
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
    """Smooth, bright or blue pixels that hang together from the upper edge."""
    lightness = lab[..., 0]
    rough = cv2.GaussianBlur(np.abs(cv2.Laplacian(lightness, cv2.CV_32F, ksize=3)), (0, 0), 2.5)
    blue = small[..., 2].astype(np.int16) - small[..., 0] > -12
    bright = lightness > np.median(lightness) - 4
    like = ((rough < 3.0) & (bright | blue)).astype(np.uint8)
    count, labels = cv2.connectedComponents(like)
    on_top = np.unique(labels[: max(1, labels.shape[0] // 40)])
    hanging = np.isin(labels, [label for label in on_top if 0 < label < count]).astype(np.float32)
    if not 0.06 < hanging.mean() < 0.9:
        return np.zeros_like(lightness)
    hanging *= np.linspace(1.25, 0.2, hanging.shape[0], dtype=np.float32).clip(0, 1)[:, None]
    return np.clip(_along_edges(cv2.GaussianBlur(hanging, (0, 0), 2), small), 0, 1)


def _subject(small: Array, saliency: Array) -> Array | None:
    """What stands out as one thing, cut along its edges; None where nothing does clearly."""
    scale = _GRAB_SIDE / max(small.shape[:2])
    size = (round(small.shape[1] * scale), round(small.shape[0] * scale))
    little = cv2.resize(small, size, interpolation=cv2.INTER_AREA)
    out = cv2.resize(saliency, size, interpolation=cv2.INTER_AREA)
    marks = np.full(out.shape, cv2.GC_PR_BGD, np.uint8)
    marks[out > 0.45] = cv2.GC_PR_FGD
    marks[out > 0.75] = cv2.GC_FGD
    marks[out < 0.12] = cv2.GC_BGD
    rim = max(1, min(size) // 40)
    marks[:rim], marks[:, :rim], marks[:, -rim:] = cv2.GC_BGD, cv2.GC_BGD, cv2.GC_BGD
    sure = (marks == cv2.GC_FGD).mean()
    if not 0.004 < sure < _MOST:
        return None
    cv2.setRNGSeed(0)
    back, front = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(little, marks, (0, 0, 0, 0), back, front, 3, cv2.GC_INIT_WITH_MASK)
    cut = np.isin(marks, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    cut = _whole(_largest(cv2.morphologyEx(cut, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))))
    if cut is None:
        return None
    if not _LEAST < cut.mean() < _MOST or not _stands_out(out, cut) or _on_edges(little, cut) < _CLEAR:
        return None
    soft = cv2.resize(
        cut.astype(np.float32), (small.shape[1], small.shape[0]), interpolation=cv2.INTER_LINEAR
    )
    return np.clip(_along_edges(soft, small, radius=3), 0, 1)


def _on_edges(little: Array, cut: Array) -> float:
    """How much of a cut's outline lies on edges of the picture: a cut through plain ground is a wrong one."""
    lab = cv2.cvtColor(little.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    across, down = cv2.Sobel(lab, cv2.CV_32F, 1, 0), cv2.Sobel(lab, cv2.CV_32F, 0, 1)
    strength = cv2.dilate(np.sqrt((across * across + down * down).sum(2)), np.ones((3, 3), np.uint8))
    outline = cv2.morphologyEx(cut, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    return float((strength[outline] > _EDGE).mean())


def _largest(mask: Array) -> Array:
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask)
    if count < 2:
        return mask
    areas = stats[1:, cv2.CC_STAT_AREA]
    kept = [label + 1 for label in range(count - 1) if areas[label] > 0.15 * areas.max()]
    return np.isin(labels, kept).astype(np.uint8)


def _whole(cut: Array) -> Array | None:
    """The cut without holes; None where its outline is so ragged that it is no one thing."""
    outlines, _ = cv2.findContours(cut, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    solid = cv2.drawContours(np.zeros_like(cut), outlines, -1, 1, cv2.FILLED)
    hulls = sum(cv2.contourArea(cv2.convexHull(outline)) for outline in outlines)
    return solid if hulls and solid.sum() / hulls > _SOLID else None


def _stands_out(saliency: Array, cut: Array) -> bool:
    inside, outside = saliency[cut > 0], saliency[cut == 0]
    return bool(inside.size and inside.mean() > 2.2 * outside.mean() + 0.05)


def _along_edges(values: Array, small: Array, radius: int = 12) -> Array:
    """Smoothed, but not across the picture's edges."""
    guide = small.astype(np.float32) / 255
    return cv2.ximgproc.guidedFilter(guide, values.astype(np.float32), radius, 1e-3)


def _stretched(values: Array) -> Array:
    """With the 2nd and 98th percentiles at 0 and 1."""
    low, high = np.percentile(values, (2, 98))
    return np.clip((values - low) / max(float(high - low), 1e-3), 0, 1).astype(np.float32)
