"""Fields over the image: noise, papers, directions, lines, screens and light.

Everything here maps float32 arrays (HxW, or HxWx3 for colors, 0 to 1) to the same.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# float32 throughout; OpenCV's stubs cannot promise it.
Array = NDArray[Any]
Size = tuple[int, int]


def blur(image: Array, sigma: float) -> Array:
    """A Gaussian blur, made on a reduced image where sigma is large."""
    factor = int(sigma // 6)
    height, width = image.shape[:2]
    if factor < 2 or min(height, width) < 8 * factor:
        return cv2.GaussianBlur(image, (0, 0), max(sigma, 0.1), borderType=cv2.BORDER_REFLECT)
    small = cv2.resize(image, (width // factor, height // factor), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / factor, borderType=cv2.BORDER_REFLECT)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def stretched(gray: Array, low: float = 0.01, high: float = 0.99) -> Array:
    """`gray` with its quantiles `low` and `high` moved to 0 and 1."""
    sample = gray[::3, ::3]
    bottom, top = (float(np.quantile(sample, q)) for q in (low, high))
    if top - bottom < 0.12:
        return np.clip(gray, 0, 1)
    return np.clip((gray - bottom) / (top - bottom), 0, 1)


def step(low: float, high: float, values: Array) -> Array:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((values - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def mix(first: Array, second: Array, share: Array | float) -> Array:
    """`first` where `share` is 0, `second` where it is 1."""
    if isinstance(share, np.ndarray) and share.ndim < first.ndim:
        share = share[..., None]
    return first + (second - first) * share


def noise(size: Size, cell: float, rng: np.random.Generator, octaves: int = 1) -> Array:
    """Smooth noise of mean 0 and deviation about 1, with features of `cell` pixels."""
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
    """A paper's relief, mean 0, about -1 to 1: pulp, fine tooth and a few fibres."""
    tooth = noise(size, max(1.0, 2.2 * unit * rough), rng)
    pulp = noise(size, 7 * unit * rough, rng, 2)
    return np.clip(0.30 * tooth + 0.28 * pulp, -1, 1)


def weave(size: Size, pitch: float, rng: np.random.Generator) -> Array:
    """A linen canvas's relief: threads over and under, slightly uneven, about -1 to 1."""
    rows = np.arange(size[0], dtype=np.float32)[:, None]
    columns = np.arange(size[1], dtype=np.float32)[None, :]
    drift = noise(size, pitch * 12, rng) * np.float32(0.35)
    across = np.sin(columns * np.float32(2 * np.pi / pitch) + drift)
    down = np.sin(rows * np.float32(2 * np.pi / pitch) + drift)
    return across * down


def tensor(gray: Array, sigma: float) -> tuple[Array, Array]:
    """The structure tensor in double-angle form: HxWx2 along the edges, and its total energy."""
    across = cv2.Scharr(gray, cv2.CV_32F, 1, 0)
    down = cv2.Scharr(gray, cv2.CV_32F, 0, 1)
    parts = cv2.merge([down * down - across * across, -2 * across * down, across * across + down * down])
    parts = blur(parts, sigma)
    return parts[..., :2], parts[..., 2]


def flow(gray: Array, sigma: float, rng: np.random.Generator, swirl: float = 0.02) -> Array:
    """Unit vectors along the edges; `swirl` is how strong a turning field fills the empty places."""
    height, width = gray.shape
    fine, energy = tensor(gray, sigma)
    wide = blur(fine, sigma * 5)
    power = float(energy.mean()) + 1e-6
    angle = noise((height, width), max(height, width) / 3.2, rng, 2) * np.float32(0.9)
    idle = cv2.merge([np.cos(2 * angle), np.sin(2 * angle)])
    double = fine + np.float32(0.6) * wide + idle * np.float32(swirl * power)
    turned = np.arctan2(double[..., 1], double[..., 0]) / 2
    return cv2.merge([np.cos(turned), np.sin(turned)])


def streaks(texture: Array, along: Array, length: float, steps: int = 8) -> Array:
    """Line-integral convolution: `texture` averaged over `length` pixels either way along a field."""
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
            # A direction has no sign: keep walking the way we came.
            same = here[..., 0] * heading[..., 0] + here[..., 1] * heading[..., 1]
            heading = here * np.where(same < 0, np.float32(-1), np.float32(1))[..., None]
    return total / np.float32(2 * steps + 1)


def straight(texture: Array, degrees: float, length: float) -> Array:
    """`texture` blurred along one straight direction."""
    size = max(3, int(length) | 1)
    kernel = np.zeros((size, size), np.float32)
    center = size // 2
    dx, dy = np.cos(np.radians(degrees)) * center, np.sin(np.radians(degrees)) * center
    first = (round(center - dx), round(center - dy))
    cv2.line(kernel, first, (round(center + dx), round(center + dy)), 1.0, 1)
    return cv2.filter2D(texture, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT)


def lines(gray: Array, sigma: float, sharp: float = 18, level: float = 0.5, phi: float = 9) -> Array:
    """Ink lines by an extended difference of Gaussians: 1 is paper, 0 is ink."""
    fine = cv2.GaussianBlur(gray, (0, 0), max(sigma, 0.4))
    wide = cv2.GaussianBlur(gray, (0, 0), max(sigma * 1.6, 0.64))
    sharpened = (1 + sharp) * fine - sharp * wide
    return np.where(sharpened >= level, 1, 1 + np.tanh(phi * (sharpened - level))).astype(np.float32)


def contours(gray: Array, sigma: float, gain: float = 60, floor: float = 0.006) -> Array:
    """Only the lines, whatever the tone: 1 is paper, 0 is ink on the dark side of an edge."""
    fine = cv2.GaussianBlur(gray, (0, 0), max(sigma, 0.4))
    wide = cv2.GaussianBlur(gray, (0, 0), max(sigma * 1.6, 0.64))
    return 1 - np.tanh(np.maximum(wide - fine - floor, 0) * gain)


def screen(size: Size, pitch: float, degrees: float) -> Array:
    """A halftone's threshold for round dots, evenly spread from 0 to 1."""
    theta = np.radians(degrees)
    rows = np.arange(size[0], dtype=np.float32)[:, None]
    columns = np.arange(size[1], dtype=np.float32)[None, :]
    turn = np.float32(2 * np.pi / pitch)
    u = (columns * np.float32(np.cos(theta)) + rows * np.float32(np.sin(theta))) * turn
    v = (rows * np.float32(np.cos(theta)) - columns * np.float32(np.sin(theta))) * turn
    wave = (np.cos(u) + np.cos(v)) / 4 + 0.5
    # The cosine sum crowds about the middle: spread it so that coverage follows tone.
    return np.clip(0.5 + (wave - 0.5) * (1.28 - 0.56 * np.abs(wave - 0.5)), 0.015, 0.985)


def dots(tone: Array, pitch: float, degrees: float, soft: float = 0.09) -> Array:
    """A halftone of `tone`: 0 where ink lies, more of it the darker the tone."""
    threshold = screen((tone.shape[0], tone.shape[1]), pitch, degrees)
    return step(-soft, soft, tone - threshold)


def relief(height: Array, strength: float, degrees: float = 235) -> Array:
    """How light falls on a surface: about 1, more where it faces the light."""
    across = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3)
    down = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)
    theta = np.radians(degrees)
    lit = across * np.float32(np.cos(theta)) + down * np.float32(np.sin(theta))
    return 1 - np.float32(strength) * np.tanh(lit)


def vignette(size: Size, strength: float, reach: float = 1.0) -> Array:
    """Darkening towards the corners: 1 in the middle."""
    rows = np.linspace(-1, 1, size[0], dtype=np.float32)[:, None]
    columns = np.linspace(-1, 1, size[1], dtype=np.float32)[None, :]
    radius = np.sqrt(rows * rows + columns * columns) / np.float32(1.414 * reach)
    return 1 - np.float32(strength) * step(0.35, 1.05, radius)


def kuwahara(rgb: Array, radius: int) -> Array:
    """Each pixel takes the mean of the calmest of four squares beside it: flat daubs, crisp edges."""
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


def banded(tone: Array, bands: int, soft: float = 0.15) -> Array:
    """`tone` in flat bands with edges that are `soft` of a band wide."""
    scaled = tone * bands
    whole = np.floor(scaled)
    inside = step(0.5 - soft, 0.5 + soft, scaled - whole)
    return np.clip((whole + inside) / bands, 0, 1)


def warped(image: Array, by: float, cell: float, rng: np.random.Generator) -> Array:
    """`image` with its outlines made to wobble by about `by` pixels, as a wet edge or a hand does."""
    height, width = image.shape[:2]
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    x += noise((height, width), cell, rng, 2) * np.float32(by)
    y += noise((height, width), cell, rng, 2) * np.float32(by)
    return cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def shifted(image: Array, dx: float, dy: float) -> Array:
    """`image` moved by a part of its own, its border repeated."""
    height, width = image.shape[:2]
    move = np.array([[1, 0, dx], [0, 1, dy]], np.float32)
    return cv2.warpAffine(image, move, (width, height), borderMode=cv2.BORDER_REFLECT)
