"""A model of the background, fitted to the image's border.

If a smooth color surface (a quadratic in x and y, fitted to the border by iteratively reweighted least
squares) explains the border, the background is `plain`: a wall, a sheet, a sky. A shadow on such a background
preserves the hue and has a soft edge: a region that differs only in darkness, with an edge of more than a few
pixels, is a shadow.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Width of the border, as a fraction of the long side.
_RIM = 0.035
_ROUNDS = 8
# Largest median distance of a plain border from its surface, as a fraction of the color range.
_PLAIN = 0.02
# Smallest fraction of the border that the surface must explain.
_SHARE = 0.6
# Maximum number of crossings of a subject with the border; more indicate a pattern.
_RUNS = 3
_SMOOTH = 0.96
_DARKEST = 0.38
_MIN_NOISE = 0.006
# Largest change of hue in a shadow, in units of the grain and as a fraction of the darkening.
_OWN_HUE = (3.0, 0.10)
# Smallest size of the rest of the subject relative to its shadow.
_CASTER = 0.3
# Width in pixels over which a shadow's edge darkens.
_SOFT = 2.6


class BackgroundModel(msgspec.Struct, frozen=True):
    """A fitted background.

    `surface` (HxWx3) is the background without the subject, `noise` its grain; both 0 to 1. `distance` (HxW)
    is a pixel's distance from the surface in units of `noise`; `plain` is True if the distance suffices to
    find the subject. `shadow` (HxW) marks pixels that are only darker.
    """

    surface: Array
    distance: Array
    shadow: NDArray[np.bool_]
    noise: float
    plain: bool


def border(height: int, width: int) -> NDArray[np.bool_]:
    """Return a mask of the image's border, a few pixels wide."""
    wide = max(2, round(max(height, width) * _RIM))
    ring = np.ones((height, width), bool)
    ring[wide:-wide, wide:-wide] = False
    return ring


def fit_background(rgb: Array) -> BackgroundModel:
    """Fit the background of a small float image, HxWx3 from 0 to 1."""
    height, width = rgb.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    terms = np.stack([np.ones_like(rows), rows, columns, rows * columns, rows**2, columns**2], 2)
    at = border(height, width)
    samples, colors = terms[at], rgb[at].astype(np.float64)
    fitted, _ = _fit(samples, colors)
    fitted = _refine(terms[::3, ::3].reshape(-1, 6), rgb[::3, ::3].reshape(-1, 3), fitted)
    distances = np.linalg.norm(colors - samples @ fitted, axis=1)
    surface = np.clip(terms @ fitted, 0.004, 1)
    noise = max(_MIN_NOISE, 1.3 * float(np.median(distances)))
    explained: NDArray[np.bool_] = distances < 5 * noise
    odd = np.zeros((height, width), np.uint8)
    odd[at] = ~explained
    share = float(explained.mean())
    few = share > _SHARE and _runs(odd) <= _RUNS
    plain = float(np.median(distances)) < _PLAIN and (few or share > _SMOOTH)
    smooth = cv2.GaussianBlur(rgb, (0, 0), 0.8).astype(np.float64)
    lightness = (smooth * surface).sum(2) / (surface**2).sum(2)
    hue = np.linalg.norm(smooth - lightness[..., None] * surface, axis=2)
    shade = (1 - lightness) * np.linalg.norm(surface, axis=2)
    distance = np.hypot(1.6 * hue, shade) / noise
    shadow = _shadow(hue, shade, lightness, noise) if plain else np.zeros((height, width), bool)
    return BackgroundModel(surface, distance, shadow, noise, plain)


def _runs(odd: NDArray[np.uint8]) -> int:
    """Return the number of separate pieces of the border that are not background."""
    closed = cv2.morphologyEx(odd, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    return cv2.connectedComponents(closed)[0] - 1


def _fit(samples: Array, colors: Array) -> tuple[Array, Array]:
    """Return the surface's coefficients and each sample's distance from it."""
    weights = _start(colors)
    fitted = np.zeros((samples.shape[1], 3))
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)[:, None]
        fitted = np.linalg.lstsq(samples * root, colors * root, rcond=None)[0]
        distances = np.linalg.norm(colors - samples @ fitted, axis=1)
        scale = max(_MIN_NOISE, float(np.median(distances)))
        weights = 1 / (1 + (distances / (2.5 * scale)) ** 2) ** 2
    return fitted, np.linalg.norm(colors - samples @ fitted, axis=1)


def _refine(terms: Array, colors: Array, fitted: Array) -> Array:
    """Refit the surface to nearby pixels inside the image, which constrain the middle better."""
    for reach in (0.12, 0.08, 0.05, 0.035):
        distances = np.linalg.norm(colors - terms @ fitted, axis=1)
        root = (1 / (1 + (distances / reach) ** 2) ** 2)[:, None] ** 0.5
        fitted = np.linalg.lstsq(terms * root, colors * root, rcond=None)[0]
    return fitted


def _start(colors: Array) -> Array:
    """Return initial weights, so that a subject that touches the border does not bend the surface."""
    middle = np.median(colors, axis=0)
    distances = np.linalg.norm(colors - middle, axis=1)
    scale = max(0.03, float(np.median(distances)))
    return 1 / (1 + (distances / (2 * scale)) ** 2)


def _shadow(hue: Array, shade: Array, lightness: Array, noise: float) -> NDArray[np.bool_]:
    only_darker = (hue < np.maximum(_OWN_HUE[0] * noise, _OWN_HUE[1] * shade)) & (lightness > _DARKEST)
    dark = only_darker & (shade > 2.5 * noise)
    count, labels = cv2.connectedComponents(dark.astype(np.uint8), connectivity=4)
    if count < 2:
        return dark
    rim_of = cv2.dilate(dark.astype(np.uint8), np.ones((7, 7), np.uint8)) > 0
    free = cv2.erode((only_darker | (shade < 2.5 * noise)).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    soft = cv2.GaussianBlur(shade.astype(np.float32), (0, 0), 1.0)
    slope = np.hypot(cv2.Sobel(soft, cv2.CV_32F, 1, 0), cv2.Sobel(soft, cv2.CV_32F, 0, 1)) / 8
    depth = cv2.dilate(soft, np.ones((9, 9), np.uint8)) - cv2.erode(soft, np.ones((9, 9), np.uint8))
    ground = ((shade < 2.5 * noise) & (hue < 4 * noise)).astype(np.uint8)
    by_ground = cv2.dilate(cv2.erode(ground, np.ones((3, 3), np.uint8)), np.ones((11, 11), np.uint8)) > 0
    steps = rim_of & free & by_ground & (depth > 4 * noise)
    near = cv2.dilate(labels.astype(np.float32), np.ones((7, 7), np.uint8)).astype(np.int32)
    shadows = np.zeros(count, bool)
    for part in range(1, count):
        here = steps & (near == part)
        if here.sum() < 8:
            # A region without a visible edge lies inside the subject.
            shadows[part] = False
            continue
        edge_width = np.median(depth[here] / np.maximum(slope[here], 1e-4))
        shadows[part] = edge_width > 2 * _SOFT
    shadow: NDArray[np.bool_] = shadows.take(np.asarray(labels, np.int64))
    difference = (shade > 4 * noise) & ~shadow | ((hue > 4 * noise) & ~shadow)
    return shadow if difference.sum() > _CASTER * shadow.sum() else np.zeros_like(shadow)
