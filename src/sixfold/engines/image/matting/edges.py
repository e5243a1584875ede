"""Soft alpha at full size from a mask, and colors without the background's fringe.

In a band around the mask's edge, the colors of the subject and of the background are extended from both
sides; a pixel's alpha is the position of its color between the two. Where the two colors are too similar, the
guided filter (He, Sun and Tang) follows the image's edges instead. For images, closed-form matting refines
the result.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.matting import closed_form

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

# Larger images get the alpha at this size, and only its edges at full size.
_FINE_SIDE = 1600
# The same for closed-form matting, whose time grows with the length of the edge and the width of the band.
_REFINED_SIDE = 800
# Width of the band on each side of the edge, as a fraction of the long side.
_BAND = 0.009
# Reach of hair where the edge is ragged, as a fraction of the long side.
_HAIR = 0.03
# Length of a ragged edge relative to a straight one in the same neighborhood.
_RAGGED = 1.5
# Distance of two colors (0 to 1) from which a pixel between them can be separated.
_APART = 0.16
_GRAIN = 1e-4
# Weight of the blended alpha in closed-form matting, except around ragged edges, where it is 1.
_EDGE_PRIOR = 0.1


def soft_alpha(rgb: Pixels, mask: NDArray[np.bool_], side: int = _FINE_SIDE) -> Array:
    """Return the soft alpha of a mask of any size at the image's size: HxW, 0 to 1.

    For an image longer than `side`, the alpha is computed at that size, and its edges are refined at full
    size.
    """
    fine = _reduce(rgb, side)
    alpha = _blend(fine.astype(np.float32) / 255, mask, hairy=True).alpha
    return alpha if fine is rgb else _upsample(alpha, fine, rgb)


def _reduce(rgb: Pixels, side: int) -> Pixels:
    """Return a copy whose long side is `side`, or the image itself if it is not larger."""
    height, width = rgb.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if scale == 1:
        return rgb
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)


def upsample(rgb: Pixels, alpha: Array) -> Array:
    """Scale a soft alpha of any size to the image's size and align its edges to the image's."""
    fine = _reduce(rgb, _FINE_SIDE)
    size = (fine.shape[1], fine.shape[0])
    resized = cv2.resize(alpha.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    return _upsample(resized, fine, rgb)


def refined_alpha(rgb: Pixels, mask: NDArray[np.bool_], hair_trust: float) -> Array:
    """Return the soft alpha of a mask at the image's size, refined by closed-form matting: HxW, 0 to 1.

    Around ragged edges, the refinement also covers the pixels whose colors are trusted by more than
    `hair_trust`; 1 covers none of them.
    """
    fine = _reduce(rgb, _REFINED_SIDE)
    floats = fine.astype(np.float32) / 255
    edge = _blend(floats, mask, hairy=False)
    alpha, band, trust = edge.alpha, edge.band, _EDGE_PRIOR * edge.trust
    if hair_trust < 1:
        wide = _blend(floats, mask, hairy=True)
        hair = wide.band & ~band & (cv2.blur(wide.trust, (5, 5)) > hair_trust)
        alpha, trust = np.where(hair, wide.alpha, alpha), np.where(hair, wide.trust, trust)
        band = band | hair
    refined = closed_form.refine(floats, alpha, band, trust)
    return refined if fine is rgb else _upsample(refined, fine, rgb)


class _BlendedEdge(msgspec.Struct, frozen=True):
    """A first alpha (HxW), the band of uncertain pixels, and the trust (0 to 1) in the band's alpha."""

    alpha: Array
    band: NDArray[np.bool_]
    trust: Array


def _blend(rgb: Array, mask: NDArray[np.bool_], *, hairy: bool) -> _BlendedEdge:
    """Compute the alpha from colors; `hairy` widens the band where the edge is ragged."""
    height, width = rgb.shape[:2]
    radius = max(2, round(max(height, width) * _BAND))
    blurred = cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    blurred = cv2.GaussianBlur(blurred, (0, 0), max(0.6, radius * 0.2))
    solid = (blurred > 0.5).astype(np.uint8)
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    inside, outside = cv2.erode(solid, ball), 1 - cv2.dilate(solid, ball)
    own = solid
    if hairy:
        reach = max(3, round(max(height, width) * _HAIR))
        hair = _hair(solid, reach)
        inside[hair], outside[hair] = 0, 0
        rooted = cv2.dilate(inside, np.ones((4 * reach + 1, 4 * reach + 1), np.uint8)) > 0
        # Between hairs the mask contains background, so its color must not be used.
        own = np.where(hair & rooted, 0, solid)
    guided = cv2.ximgproc.guidedFilter(rgb, blurred, radius, _GRAIN)
    front, has_front = extend_colors(rgb, _or_middle(own, inside, radius), radius)
    back, has_back = extend_colors(rgb, outside, radius)
    between = front - back
    separation = np.sqrt((between**2).sum(2))
    projection = ((rgb - back) * between).sum(2) / np.maximum(separation**2, 1e-6)
    off = np.linalg.norm(rgb - back - np.clip(projection, 0, 1)[..., None] * between, axis=2)
    trust = np.clip((separation - _APART / 2) / _APART, 0, 1) * has_front * has_back
    trust *= np.clip(1.6 - off / np.maximum(0.35 * separation, 1e-3), 0, 1)
    mixed = trust * np.clip((projection - 0.04) / 0.92, 0, 1) + (1 - trust) * np.clip(guided, 0, 1)
    # Far from the edge, similar colors are a coincidence.
    mixed = np.where(blurred < 0.02, np.minimum(mixed, 0.9), mixed)
    band = (inside == 0) & (outside == 0)
    alpha = np.where(band, np.clip(mixed, 0, 1), solid).astype(np.float32)
    return _BlendedEdge(alpha, band, trust)


def _hair(solid: Array, reach: int) -> NDArray[np.bool_]:
    """Return a mask of ragged edges, such as those of hair, fur and leaves."""
    edge = cv2.morphologyEx(solid, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)).astype(np.float32)
    wide = 2 * reach + 1
    # A straight edge through the middle has length 2.
    length = cv2.blur(edge, (wide, wide)) * wide
    ragged = (edge > 0) & (length > 2 * _RAGGED)
    return cv2.dilate(ragged.astype(np.uint8), np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)) > 0


def _or_middle(solid: Array, inside: Array, radius: int) -> Array:
    """Return the certain inside, including the middle of parts that are too thin to contain any."""
    if radius <= 2:
        return inside
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    thin = cv2.erode(solid, ball)
    far = cv2.dilate(inside, np.ones((4 * radius + 1, 4 * radius + 1), np.uint8))
    return np.where(far > 0, inside, thin)


def extend_colors(rgb: Array, sure: Array, radius: int) -> tuple[Array, Array]:
    """Extend the colors of the certain part outwards; return them and a mask (0 or 1) of their reach."""
    known = sure.astype(np.float32)
    colors = np.zeros_like(rgb)
    reached = np.zeros(sure.shape, bool)
    for step in (0.7, 1.6, 4.0):
        sigma = max(1.0, radius * step)
        weight = _blur(known, sigma)
        spread = _blur(rgb * known[..., None], sigma)
        new = ~reached & (weight > 0.004)
        colors[new] = spread[new] / weight[new][:, None]
        reached |= new
    return colors, reached.astype(np.float32)


def _blur(image: Array, sigma: float) -> Array:
    """Blur an image; wide blurs work on a smaller copy to stay fast."""
    factor = int(sigma // 2.5)
    if factor < 2:
        return cv2.GaussianBlur(image, (0, 0), sigma)
    height, width = image.shape[:2]
    small = cv2.resize(image, (-(-width // factor), -(-height // factor)), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / factor)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)


def _upsample(alpha: Array, fine: Array, rgb: Pixels) -> Array:
    """Return the alpha at the image's size, by local linear models of lightness (the fast guided filter)."""
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


def decontaminate(rgb: Pixels, alpha: Array) -> Pixels:
    """Return the subject's colors, with the background removed from translucent edges."""
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
    front, has_front = extend_colors(small, (cover > 0.97).astype(np.uint8), near)
    back, has_back = extend_colors(small, (cover < 0.03).astype(np.uint8), near)
    both = (has_front > 0) & (has_back > 0)
    front = np.where((has_front > 0)[..., None], front, small)
    back = np.where(both[..., None], back, front)
    own = (rgb.shape[1], rgb.shape[0])
    front, back = (
        cv2.resize(np.rint(part * 255).astype(np.uint8), own, interpolation=cv2.INTER_LINEAR)[band].astype(
            np.float32
        )
        / 255
        for part in (front, back)
    )
    share = alpha[band][:, None]
    observed = rgb[band].astype(np.float32) / 255
    solved = np.clip((observed - (1 - share) * back) / np.maximum(share, 0.05), 0, 1)
    # The extended color is used where alpha is small, because dividing by a small alpha is unreliable.
    steady = np.clip((share - 0.35) / 0.5, 0, 1)
    clean = rgb.copy()
    clean[band] = np.rint((solved * steady + front * (1 - steady)) * 255).astype(np.uint8)
    return clean
