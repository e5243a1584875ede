"""Painting primitives for float32 RGB images (0 to 1) with a depth plane (0 near, 1 far)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Always float32; numpy's stubs widen every sum with a Python float.
Image = NDArray[Any]
Color = NDArray[Any]
Points = NDArray[Any]


def rgb(text: str) -> Color:
    """Parse `#rrggbb` into three floats from 0 to 1."""
    return np.array([int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)], np.float32)


def mix(a: Color, b: Color, t: float) -> Color:
    """Return the color at fraction `t` between `a` and `b`."""
    return (a + (b - a) * np.float32(t)).astype(np.float32)


def luma(color: Color) -> float:
    """Return the perceived lightness, 0 to 1."""
    return float(color[0] * 0.299 + color[1] * 0.587 + color[2] * 0.114)


def saturate(color: Color, amount: float) -> Color:
    """Return `color` with its chroma multiplied by `amount`."""
    gray = np.float32(luma(color))
    return np.clip(gray + (color - gray) * np.float32(amount), 0, 1).astype(np.float32)


def _box(alpha: Image) -> tuple[slice, slice] | None:
    """Return the rows and columns that `alpha` covers, or None if `alpha` is zero everywhere."""
    rows = np.flatnonzero(alpha.any(1))
    if not rows.size:
        return None
    columns = np.flatnonzero(alpha[rows[0] : rows[-1] + 1].any(0))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def over(image: Image, paint: Image | Color, alpha: Image) -> None:
    """Blend `paint` (a color or an image) over `image` in place, by `alpha` (height, width)."""
    alpha = np.broadcast_to(alpha, image.shape[:2])
    box = _box(alpha)
    if box is None:
        return
    if paint.ndim == 3:
        paint = np.broadcast_to(paint, image.shape)[box]
    part = image[box]
    part += (paint - part) * alpha[box][..., None]


def glow(image: Image, light: Color, alpha: Image) -> None:
    """Add light in place, as a screen blend."""
    image += (1 - np.clip(image, 0, 1)) * (alpha[..., None] * light)


def ramp(stops: Sequence[tuple[float, Color]], values: Image) -> Image:
    """Return colors for `values` along gradient `stops` (position, color)."""
    positions = np.array([stop[0] for stop in stops], np.float32)
    table = np.stack([stop[1] for stop in stops])
    steps = np.linspace(float(positions[0]), float(positions[-1]), 1024, dtype=np.float32)
    lookup = np.stack([np.interp(steps, positions, table[:, c]) for c in range(3)], 1).astype(np.float32)
    span = float(positions[-1] - positions[0])
    index = np.clip((values - positions[0]) * np.float32(1023 / span), 0, 1023).astype(np.int32)
    return lookup[index]


def fill(shape: tuple[int, int], polygons: Sequence[Points], soft: bool = True) -> Image:
    """Return the union of `polygons` as an antialiased mask."""
    mask = np.zeros(shape, np.uint8)
    kind = cv2.LINE_AA if soft else cv2.LINE_8
    for polygon in polygons:
        fixed = np.round(np.clip(polygon, -30000, 30000) * 16).astype(np.int32)
        cv2.fillPoly(mask, [fixed], 255, kind, shift=4)
    return mask.astype(np.float32) / np.float32(255)


def blur(image: Image, sigma: float) -> Image:
    """Apply a Gaussian blur; a large `sigma` works on a smaller copy."""
    factor = int(max(1, sigma // 4))
    if factor == 1:
        return cv2.GaussianBlur(image, (0, 0), max(sigma, 0.3), borderType=cv2.BORDER_REPLICATE)
    height, width = image.shape[:2]
    small = (max(2, -(-width // factor)), max(2, -(-height // factor)))
    reduced = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    reduced = cv2.GaussianBlur(reduced, (0, 0), sigma / factor, borderType=cv2.BORDER_REPLICATE)
    return cv2.resize(reduced, (width, height), interpolation=cv2.INTER_LINEAR)


def disc(shape: tuple[int, int], center: tuple[float, float], radius: float) -> Image:
    mask = np.zeros(shape, np.uint8)
    at = (round(center[0] * 16), round(center[1] * 16))
    cv2.circle(mask, at, max(1, round(radius * 16)), 255, -1, cv2.LINE_AA, 4)
    return mask.astype(np.float32) / np.float32(255)


def distance(shape: tuple[int, int], center: tuple[float, float], stretch: float = 1.0) -> Image:
    """Return the distance in pixels of every pixel from `center`; `stretch` above 1 flattens vertically."""
    y = (np.arange(shape[0], dtype=np.float32) - np.float32(center[1])) * np.float32(stretch)
    x = np.arange(shape[1], dtype=np.float32) - np.float32(center[0])
    return np.sqrt(x[None, :] ** 2 + y[:, None] ** 2)
