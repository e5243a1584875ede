"""Seeds and noise, stable across processes, threads and hash seeds."""

from __future__ import annotations

import hashlib
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Always float32, as in `canvas`.
Field = NDArray[Any]


def stable_seed(*parts: object) -> int:
    """Return a 64-bit seed from the string form of `parts`, the same in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def stream(*parts: object) -> np.random.Generator:
    """Return an independent random generator for `parts`."""
    return np.random.Generator(np.random.PCG64(stable_seed(*parts)))


def _lattice(rng: np.random.Generator, rows: int, columns: int) -> Field:
    return rng.random((rows, columns), dtype=np.float32) * 2 - 1


def octave(rng: np.random.Generator, height: int, width: int, cells: tuple[float, float]) -> Field:
    """Return one octave of smooth noise in -1 to 1; `cells` is the number of lattice cells (down, across)."""
    rows, columns = max(2, round(cells[0])), max(2, round(cells[1]))
    grid = _lattice(rng, rows + 3, columns + 3)
    sx, sy = columns / width, rows / height
    matrix = np.array([[sx, 0, 1 + sx / 2], [0, sy, 1 + sy / 2]], np.float64)
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(grid, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT)


def fbm(
    rng: np.random.Generator,
    size: tuple[int, int],
    cells: tuple[float, float],
    octaves: int = 5,
    gain: float = 0.5,
) -> Field:
    """Return fractal noise of about -1 to 1 over `size` (height, width)."""
    height, width = size
    total = np.zeros(size, np.float32)
    amplitude, reach = 1.0, 0.0
    down, across = cells
    for _ in range(octaves):
        if down > height / 1.5 and across > width / 1.5:
            break
        layer = octave(rng, height, width, (min(down, height), min(across, width)))
        cv2.scaleAdd(layer, amplitude, total, total)
        reach += amplitude * amplitude
        amplitude *= gain
        down, across = down * 2.03, across * 2.03
    return total / np.float32(np.sqrt(max(reach, 1e-6)) * 1.15)


def _tile_octave(rng: np.random.Generator, size: int, cells: int) -> Field:
    grid = np.pad(_lattice(rng, cells, cells), 2, mode="wrap")
    scale = cells / size
    matrix = np.array([[scale, 0, 2 + scale / 2], [0, scale, 2 + scale / 2]], np.float64)
    return cv2.warpAffine(grid, matrix, (size, size), flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP)


def tile(rng: np.random.Generator, size: int, cells: int, octaves: int = 6, gain: float = 0.5) -> Field:
    """Return fractal noise of about -1 to 1 that wraps at its edges."""
    total = np.zeros((size, size), np.float32)
    amplitude, reach = 1.0, 0.0
    for _ in range(octaves):
        if cells > size // 2:
            break
        cv2.scaleAdd(_tile_octave(rng, size, cells), amplitude, total, total)
        reach += amplitude * amplitude
        amplitude *= gain
        cells *= 2
    return total / np.float32(np.sqrt(max(reach, 1e-6)) * 1.15)


def ridged_tile(rng: np.random.Generator, size: int, cells: int, octaves: int = 7) -> Field:
    """Return a ridged multifractal of about 0 to 1 that wraps: sharp crests, broad valleys."""
    total = np.zeros((size, size), np.float32)
    weight = np.ones((size, size), np.float32)
    amplitude, reach = 1.0, 0.0
    for _ in range(octaves):
        if cells > size // 2:
            break
        ridge = 1.0 - np.abs(_tile_octave(rng, size, cells)) * 1.25
        np.clip(ridge, 0, 1, out=ridge)
        ridge *= ridge
        ridge *= weight
        weight = np.clip(ridge * 1.9, 0, 1)
        cv2.scaleAdd(ridge, amplitude, total, total)
        reach += amplitude
        amplitude *= 0.5
        cells *= 2
    return total / np.float32(reach * 0.62)


def sample(texture: Field, x: Field, y: Field) -> Field:
    """Sample a wrapping texture bilinearly, with coordinates in tiles (1 is the whole tile)."""
    size = texture.shape[0]
    u = np.mod(x, 1.0).astype(np.float32) * np.float32(size)
    v = np.mod(y, 1.0).astype(np.float32) * np.float32(size)
    padded = cv2.copyMakeBorder(texture, 0, 2, 0, 2, cv2.BORDER_WRAP)
    return cv2.remap(padded, u, v, cv2.INTER_LINEAR)


def smoothstep(low: float, high: float, value: Field) -> Field:
    """Return 0 below `low`, 1 above `high`, and a smooth transition in between."""
    t = np.clip((value - np.float32(low)) / np.float32(high - low), 0, 1)
    return t * t * (3 - 2 * t)
