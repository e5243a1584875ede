"""Fields over the image: noise, papers, directions, lines, halftone screens and light.

All functions map float32 arrays (HxW, or HxWx3 for colors, 0 to 1) to arrays of the same kind.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Always float32, which OpenCV's stubs cannot express.
Array = NDArray[Any]
Size = tuple[int, int]


def blur(image: Array, sigma: float) -> Array:
    """Apply a Gaussian blur; a large sigma works on a reduced image."""
    factor = int(sigma // 6)
    height, width = image.shape[:2]
    if factor < 2 or min(height, width) < 8 * factor:
        return cv2.GaussianBlur(image, (0, 0), max(sigma, 0.1), borderType=cv2.BORDER_REFLECT)
    small = cv2.resize(image, (width // factor, height // factor), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / factor, borderType=cv2.BORDER_REFLECT)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def stretch(gray: Array, low: float = 0.01, high: float = 0.99) -> Array:
    """Stretch `gray` so that its quantiles `low` and `high` become 0 and 1."""
    sample = gray[::3, ::3]
    bottom, top = (float(np.quantile(sample, q)) for q in (low, high))
    if top - bottom < 0.12:
        return np.clip(gray, 0, 1)
    return np.clip((gray - bottom) / (top - bottom), 0, 1)


def step(low: float, high: float, values: Array) -> Array:
    """Return a smooth step: 0 below `low`, 1 above `high`."""
    t = np.clip((values - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def mix(first: Array, second: Array, share: Array | float) -> Array:
    """Blend two arrays: `first` where `share` is 0, `second` where it is 1."""
    if isinstance(share, np.ndarray) and share.ndim < first.ndim:
        share = share[..., None]
    return first + (second - first) * share


def noise(size: Size, cell: float, rng: np.random.Generator, octaves: int = 1) -> Array:
    """Return smooth noise with mean 0, deviation about 1 and features of `cell` pixels."""
    height, width = size
    total = np.zeros(size, np.float32)
    weight = 1.0
    norm = 0.0
    for _ in range(octaves):
        rows, columns = max(2, round(height / cell) + 2), max(2, round(width / cell) + 2)
        if cell <= 1.5:
            layer = rng.standard_normal(size, dtype=np.float32)
        else:
            grid = rng.standard_normal((min(rows, height), min(columns, width)), dtype=np.float32)
            layer = cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) * np.float32(1.3)
        total += layer * np.float32(weight)
        norm += weight * weight
        weight *= 0.55
        cell = max(1.0, cell / 2)
    return total / np.float32(np.sqrt(norm))


def paper(size: Size, unit: float, rng: np.random.Generator, rough: float = 1.0) -> Array:
    """Return a paper relief with pulp and fine tooth, mean 0, about -1 to 1."""
    tooth = noise(size, max(1.0, 2.2 * unit * rough), rng)
    pulp = noise(size, 7 * unit * rough, rng, 2)
    return np.clip(0.30 * tooth + 0.28 * pulp, -1, 1)


def weave(size: Size, pitch: float, rng: np.random.Generator) -> Array:
    """Return a linen canvas relief with slightly uneven threads, about -1 to 1."""
    rows = np.arange(size[0], dtype=np.float32)[:, None]
    columns = np.arange(size[1], dtype=np.float32)[None, :]
    drift = noise(size, pitch * 12, rng) * np.float32(0.35)
    across = np.sin(columns * np.float32(2 * np.pi / pitch) + drift)
    down = np.sin(rows * np.float32(2 * np.pi / pitch) + drift)
    return across * down


def structure_tensor(gray: Array, sigma: float) -> tuple[Array, Array]:
    """Return the structure tensor in double-angle form (HxWx2 along the edges), and its energy."""
    across = cv2.Scharr(gray, cv2.CV_32F, 1, 0)
    down = cv2.Scharr(gray, cv2.CV_32F, 0, 1)
    parts = cv2.merge([down * down - across * across, -2 * across * down, across * across + down * down])
    parts = blur(parts, sigma)
    return parts[..., :2], parts[..., 2]


def flow(gray: Array, sigma: float, rng: np.random.Generator, swirl: float = 0.02) -> Array:
    """Return unit vectors along the edges.

    `swirl` is the strength of a turning field in regions without edges.
    """
    height, width = gray.shape
    fine, energy = structure_tensor(gray, sigma)
    wide = blur(fine, sigma * 5)
    power = float(energy.mean()) + 1e-6
    angle = noise((height, width), max(height, width) / 3.2, rng, 2) * np.float32(0.9)
    idle = cv2.merge([np.cos(2 * angle), np.sin(2 * angle)])
    double = fine + np.float32(0.6) * wide + idle * np.float32(swirl * power)
    turned = np.arctan2(double[..., 1], double[..., 0]) / 2
    return cv2.merge([np.cos(turned), np.sin(turned)])


def streaks(texture: Array, along: Array, length: float, steps: int = 8) -> Array:
    """Average `texture` over `length` pixels both ways along a field (line integral convolution)."""
    height, width = texture.shape[:2]
    pace = np.float32(max(0.5, length / steps))
    start_x, start_y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    total = texture.copy()
    for sign in (1.0, -1.0):
        heading = along * np.float32(sign)
        x, y = start_x.copy(), start_y.copy()
        for _ in range(steps):
            x += heading[..., 0] * pace
            y += heading[..., 1] * pace
            total += cv2.remap(texture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
            here = cv2.remap(along, x, y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)
            # Directions are unsigned: continue in the direction of travel.
            same = here[..., 0] * heading[..., 0] + here[..., 1] * heading[..., 1]
            heading = here * np.where(same < 0, np.float32(-1), np.float32(1))[..., None]
    return total / np.float32(2 * steps + 1)


def directional_blur(texture: Array, degrees: float, length: float) -> Array:
    """Blur `texture` along one straight direction."""
    size = max(3, int(length) | 1)
    kernel = np.zeros((size, size), np.float32)
    center = size // 2
    dx, dy = np.cos(np.radians(degrees)) * center, np.sin(np.radians(degrees)) * center
    first = (round(center - dx), round(center - dy))
    cv2.line(kernel, first, (round(center + dx), round(center + dy)), 1.0, 1)
    return cv2.filter2D(texture, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT)


def contours(gray: Array, sigma: float, gain: float = 60, floor: float = 0.006) -> Array:
    """Return lines only, independent of tone: 1 is paper, 0 is ink on the dark side of an edge."""
    fine = cv2.GaussianBlur(gray, (0, 0), max(sigma, 0.4))
    wide = cv2.GaussianBlur(gray, (0, 0), max(sigma * 1.6, 0.64))
    return 1 - np.tanh(np.maximum(wide - fine - floor, 0) * gain)


def screen(size: Size, pitch: float, degrees: float) -> Array:
    """Return a halftone threshold for round dots, evenly distributed from 0 to 1."""
    theta = np.radians(degrees)
    rows = np.arange(size[0], dtype=np.float32)[:, None]
    columns = np.arange(size[1], dtype=np.float32)[None, :]
    turn = np.float32(2 * np.pi / pitch)
    u = (columns * np.float32(np.cos(theta)) + rows * np.float32(np.sin(theta))) * turn
    v = (rows * np.float32(np.cos(theta)) - columns * np.float32(np.sin(theta))) * turn
    wave = (np.cos(u) + np.cos(v)) / 4 + 0.5
    # The cosine sum is concentrated around the middle: spread it so that coverage follows tone.
    return np.clip(0.5 + (wave - 0.5) * (1.28 - 0.56 * np.abs(wave - 0.5)), 0.015, 0.985)


def dots(tone: Array, pitch: float, degrees: float, soft: float = 0.09) -> Array:
    """Return a halftone of `tone`: 0 where there is ink, which covers more in darker tones."""
    threshold = screen((tone.shape[0], tone.shape[1]), pitch, degrees)
    return step(-soft, soft, tone - threshold)


def relief(height: Array, strength: float, degrees: float = 235) -> Array:
    """Return the shading of a height field: about 1, higher where it faces the light."""
    across = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3)
    down = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)
    theta = np.radians(degrees)
    lit = across * np.float32(np.cos(theta)) + down * np.float32(np.sin(theta))
    return 1 - np.float32(strength) * np.tanh(lit)


def vignette(size: Size, strength: float, reach: float = 1.0) -> Array:
    """Return a vignette: 1 in the middle, darker towards the corners."""
    rows = np.linspace(-1, 1, size[0], dtype=np.float32)[:, None]
    columns = np.linspace(-1, 1, size[1], dtype=np.float32)[None, :]
    radius = np.sqrt(rows * rows + columns * columns) / np.float32(1.414 * reach)
    return 1 - np.float32(strength) * step(0.35, 1.05, radius)


def kuwahara(rgb: Array, radius: int) -> Array:
    """Apply a Kuwahara filter: each pixel takes the mean of the most uniform of four adjacent squares."""
    radius = max(1, radius)
    side = radius + 1
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    best: Array | None = None
    calm: Array | None = None
    for anchor in ((0, 0), (0, radius), (radius, 0), (radius, radius)):
        mean = cv2.boxFilter(rgb, -1, (side, side), anchor=anchor, borderType=cv2.BORDER_REFLECT)
        first = cv2.boxFilter(gray, -1, (side, side), anchor=anchor, borderType=cv2.BORDER_REFLECT)
        second = cv2.boxFilter(gray * gray, -1, (side, side), anchor=anchor, borderType=cv2.BORDER_REFLECT)
        spread = second - first * first
        if best is None or calm is None:
            best, calm = mean, spread
        else:
            wins = spread < calm
            calm = np.minimum(calm, spread)
            best = np.where(wins[..., None], mean, best)
    return best if best is not None else rgb


def quantize(tone: Array, bands: int, soft: float = 0.15) -> Array:
    """Quantize `tone` into flat bands; transitions are `soft` of a band wide."""
    scaled = tone * bands
    whole = np.floor(scaled)
    inside = step(0.5 - soft, 0.5 + soft, scaled - whole)
    return np.clip((whole + inside) / bands, 0, 1)


def warp(image: Array, by: float, cell: float, rng: np.random.Generator) -> Array:
    """Distort outlines by about `by` pixels, like a wet edge or an unsteady hand."""
    height, width = image.shape[:2]
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    x += noise((height, width), cell, rng, 2) * np.float32(by)
    y += noise((height, width), cell, rng, 2) * np.float32(by)
    return cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def shift(image: Array, dx: float, dy: float) -> Array:
    """Translate an image by fractional pixels; the border is reflected."""
    height, width = image.shape[:2]
    move = np.array([[1, 0, dx], [0, 1, dy]], np.float32)
    return cv2.warpAffine(image, move, (width, height), borderMode=cv2.BORDER_REFLECT)
