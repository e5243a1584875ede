"""From a mask to an edge: soft alpha at full size, and colors without the ground's fringe.

In a band round the mask's edge, the colors of the subject and of the ground are carried in from both
sides; a pixel's alpha is where its own color lies between the two. Where they are too much alike to say,
the guided filter (He, Sun and Tang) follows the image's own edges instead.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

_FINE_SIDE = 1600  # larger images get their alpha at this size, and its edges at their own
_BAND = 0.009  # of the long side, to each side of the edge
_HAIR = 0.03  # as far hair may reach, where the edge is ragged
_RAGGED = 1.5  # times the edge that a straight one has in the same neighborhood
_APART = 0.16  # distance of two colors (0 to 1) from which a pixel between them can be read
_GRAIN = 1e-4


def soft(rgb: Pixels, mask: NDArray[np.bool_], side: int = _FINE_SIDE) -> Array:
    """The soft alpha of a mask (of any size), at the image's size: HxW, 0 to 1.

    An image longer than `side` gets its alpha at that size, and its edges at its own.
    """
    height, width = rgb.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    fine = rgb if scale == 1 else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    found = _soft(fine.astype(np.float32) / 255, mask)
    if scale == 1:
        return found
    return _at_size(found, fine, rgb)


def enlarged(rgb: Pixels, alpha: Array) -> Array:
    """A soft alpha of any size at the image's size, its edge drawn to the image's own."""
    height, width = rgb.shape[:2]
    scale = min(1.0, _FINE_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    fine = rgb if scale == 1 else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    drawn = cv2.resize(alpha.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    return _at_size(drawn, fine, rgb)


def _soft(rgb: Array, mask: NDArray[np.bool_]) -> Array:
    height, width = rgb.shape[:2]
    radius = max(2, round(max(height, width) * _BAND))
    blurred = cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    blurred = cv2.GaussianBlur(blurred, (0, 0), max(0.6, radius * 0.2))
    solid = (blurred > 0.5).astype(np.uint8)
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    inside, outside = cv2.erode(solid, ball), 1 - cv2.dilate(solid, ball)
    reach = max(3, round(max(height, width) * _HAIR))
    hair = _hair(solid, reach)
    inside[hair], outside[hair] = 0, 0
    guided = cv2.ximgproc.guidedFilter(rgb, blurred, radius, _GRAIN)
    rooted = cv2.dilate(inside, np.ones((4 * reach + 1, 4 * reach + 1), np.uint8)) > 0
    bald = np.where(hair & rooted, 0, solid)  # between hairs the mask holds ground: no color to go by
    front, has_front = carried(rgb, _or_thinner(bald, inside, radius), radius)
    back, has_back = carried(rgb, outside, radius)
    between = front - back
    apart = np.sqrt((between**2).sum(2))
    read = ((rgb - back) * between).sum(2) / np.maximum(apart**2, 1e-6)
    off = np.linalg.norm(rgb - back - np.clip(read, 0, 1)[..., None] * between, axis=2)
    trust = np.clip((apart - _APART / 2) / _APART, 0, 1) * has_front * has_back
    trust *= np.clip(1.6 - off / np.maximum(0.35 * apart, 1e-3), 0, 1)
    mixed = trust * np.clip((read - 0.04) / 0.92, 0, 1) + (1 - trust) * np.clip(guided, 0, 1)
    # Far on either side of the drawn edge, a likeness of colors is chance.
    mixed = np.where(blurred < 0.02, np.minimum(mixed, 0.9), mixed)
    band = (inside == 0) & (outside == 0)
    return np.where(band, np.clip(mixed, 0, 1), solid).astype(np.float32)


def _hair(solid: Array, reach: int) -> NDArray[np.bool_]:
    """Where the edge is ragged: hair, fur, leaves."""
    edge = cv2.morphologyEx(solid, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)).astype(np.float32)
    wide = 2 * reach + 1
    length = cv2.blur(edge, (wide, wide)) * wide  # 2 for a straight edge through the middle
    ragged = (edge > 0) & (length > 2 * _RAGGED)
    return cv2.dilate(ragged.astype(np.uint8), np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)) > 0


def _or_thinner(solid: Array, inside: Array, radius: int) -> Array:
    """The sure inside; where a part is too thin to have one, its middle."""
    if radius <= 2:
        return inside
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    thin = cv2.erode(solid, ball)
    far = cv2.dilate(inside, np.ones((4 * radius + 1, 4 * radius + 1), np.uint8))
    return np.where(far > 0, inside, thin)


def carried(rgb: Array, sure: Array, radius: int) -> tuple[Array, Array]:
    """Colors of the sure part, carried outwards to where there are none; and where they reached (0, 1)."""
    held = sure.astype(np.float32)
    colors = np.zeros_like(rgb)
    reached = np.zeros(sure.shape, bool)
    for step in (0.7, 1.6, 4.0):
        sigma = max(1.0, radius * step)
        weight = _blurred(held, sigma)
        spread = _blurred(rgb * held[..., None], sigma)
        new = ~reached & (weight > 0.004)
        colors[new] = spread[new] / weight[new][:, None]
        reached |= new
    return colors, reached.astype(np.float32)


def _blurred(image: Array, sigma: float) -> Array:
    """A Gaussian blur that stays cheap when it is wide, as it then works on a smaller copy."""
    factor = int(sigma // 2.5)
    if factor < 2:
        return cv2.GaussianBlur(image, (0, 0), sigma)
    height, width = image.shape[:2]
    small = cv2.resize(image, (-(-width // factor), -(-height // factor)), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / factor)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)


def _at_size(alpha: Array, fine: Array, rgb: Pixels) -> Array:
    """The alpha at the image's own size, by local lines through lightness (the fast guided filter)."""
    guide = cv2.cvtColor(fine, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    mean, target = cv2.blur(guide, (5, 5)), cv2.blur(alpha, (5, 5))
    spread = cv2.blur(guide * guide, (5, 5)) - mean**2
    slope = (cv2.blur(guide * alpha, (5, 5)) - mean * target) / (spread + 4e-4)
    size = (rgb.shape[1], rgb.shape[0])
    slope, offset = cv2.blur(slope, (3, 3)), cv2.blur(target - slope * mean, (3, 3))
    large = cv2.resize(slope, size, interpolation=cv2.INTER_LINEAR)
    large *= cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) * np.float32(1 / 255)
    large += cv2.resize(offset, size, interpolation=cv2.INTER_LINEAR)
    plain = cv2.resize(alpha, size, interpolation=cv2.INTER_LINEAR)
    edge = (plain > 0.02) & (plain < 0.98)
    return np.where(edge, np.clip(large, 0, 1), plain).astype(np.float32)


def decontaminated(rgb: Pixels, alpha: Array) -> Pixels:
    """The subject's own colors: what the ground shines through an edge is taken out of it."""
    height, width = alpha.shape
    rows, columns = np.flatnonzero(alpha.max(1) > 0), np.flatnonzero(alpha.max(0) > 0)
    if not rows.size:
        return rgb
    radius = max(2, round(max(height, width) * _BAND))
    top, bottom = max(0, rows[0] - radius), min(height, rows[-1] + radius + 1)
    left, right = max(0, columns[0] - radius), min(width, columns[-1] + radius + 1)
    clean = rgb.copy()
    clean[top:bottom, left:right] = _clean(rgb[top:bottom, left:right], alpha[top:bottom, left:right], radius)
    return clean


def _clean(rgb: Pixels, alpha: Array, radius: int) -> Pixels:
    band = alpha < 0.995
    scale = min(1.0, _FINE_SIDE / max(rgb.shape[:2]))
    size = (max(1, round(rgb.shape[1] * scale)), max(1, round(rgb.shape[0] * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    cover = cv2.resize(alpha, size, interpolation=cv2.INTER_AREA)
    near = max(2, round(radius * scale))
    front, has_front = carried(small, (cover > 0.97).astype(np.uint8), near)
    back, has_back = carried(small, (cover < 0.03).astype(np.uint8), near)
    known = (has_front > 0) & (has_back > 0)
    front = np.where((has_front > 0)[..., None], front, small)
    back = np.where(known[..., None], back, front)
    own = (rgb.shape[1], rgb.shape[0])
    front, back = (
        cv2.resize(np.rint(part * 255).astype(np.uint8), own, interpolation=cv2.INTER_LINEAR)[band].astype(
            np.float32
        )
        / 255
        for part in (front, back)
    )
    share = alpha[band][:, None]
    seen = rgb[band].astype(np.float32) / 255
    solved = np.clip((seen - (1 - share) * back) / np.maximum(share, 0.05), 0, 1)
    steady = np.clip((share - 0.35) / 0.5, 0, 1)  # a division by little says little
    clean = rgb.copy()
    clean[band] = np.rint((solved * steady + front * (1 - steady)) * 255).astype(np.uint8)
    return clean
