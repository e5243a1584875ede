"""Filling of holes with repetitions, copied from the offset that fits the hole's edge best.

A few correlations give the misfit of all offsets at once: a ring around the hole is compared with its shifted
copy where both are known. Grids, stripes and facades are continued at the image's own resolution.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Longer side of the part in which offsets are searched.
_SIDE = 384
# Width of the compared ring, as a fraction of the hole's depth.
_RING = 0.45
_MIN_RING, _MAX_RING = 6, 48
# Fraction of the ring that must be known at an offset.
_KNOWN = 0.6
# Maximum number of offsets from which one hole is filled.
_PIECES = 6
# Fraction of the remaining hole above which an offset counts as covering it, and the minimum if none does.
_WHOLE, _MIN_COVER = 0.9999, 0.2
_SAMPLES = 4000
# Largest misfit that counts as a repetition, as a fraction of the ring's contrast.
_GOOD = 0.2


def offsets(part: Pixels, mask: Array) -> Array | None:
    """Return the offset (rows, columns) to each pixel's source, or None if no repetition fits well enough."""
    scale = min(1.0, _SIDE / max(mask.shape))
    size = (max(8, round(mask.shape[1] * scale)), max(8, round(mask.shape[0] * scale)))
    small = cv2.resize(part, size, interpolation=cv2.INTER_AREA).astype(np.float64)
    hidden = cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
    ring = ring_of(hidden)
    if not ring.any():
        return None
    limit = (_GOOD * float(small[ring].std(0).mean())) ** 2
    misfit = _misfits(small, hidden, ring)
    moves, unfilled, needed = np.zeros((*mask.shape, 2), np.intp), mask.copy(), hidden
    for _ in range(_PIECES):
        covers = _correlate(needed, ~hidden) / max(int(needed.sum()), 1)
        whole = (covers > _WHOLE) & (misfit <= limit)
        worth = np.where(whole if whole.any() else (covers > _MIN_COVER) & (misfit <= limit), misfit, np.inf)
        at = np.unravel_index(int(np.argmin(worth)), worth.shape)
        if not np.isfinite(worth[at]):
            return None
        offset = (int(at[0]) - worth.shape[0] // 2, int(at[1]) - worth.shape[1] // 2)
        _lay(moves, unfilled, mask, _refine(part, mask, offset, scale))
        if not unfilled.any():
            return moves
        needed = cv2.resize(unfilled.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
        misfit[at] = np.inf
    return None


def _lay(moves: Array, unfilled: Array, mask: Array, offset: tuple[int, int]) -> None:
    """Assign an offset to the remaining pixels whose source at that offset is known, in place."""
    rows, columns = np.nonzero(unfilled)
    there, beside = rows + offset[0], columns + offset[1]
    inside = (there >= 0) & (there < mask.shape[0]) & (beside >= 0) & (beside < mask.shape[1])
    rows, columns, there, beside = (values[inside] for values in (rows, columns, there, beside))
    valid = ~mask[there, beside]
    moves[rows[valid], columns[valid]] = offset
    unfilled[rows[valid], columns[valid]] = False


def _refine(part: Pixels, mask: Array, offset: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return the best offset at full resolution near an offset of the reduced image."""
    if scale == 1.0:
        return offset
    rows, columns = np.nonzero(ring_of(mask))
    every = max(1, len(rows) // _SAMPLES)
    rows, columns = rows[::every], columns[::every]
    here = part[rows, columns].astype(np.float32)
    middle, reach = (round(offset[0] / scale), round(offset[1] / scale)), int(np.ceil(1 / scale))
    best, smallest = middle, np.inf
    for down in range(middle[0] - reach, middle[0] + reach + 1):
        for across in range(middle[1] - reach, middle[1] + reach + 1):
            there = (
                np.clip(rows + down, 0, mask.shape[0] - 1),
                np.clip(columns + across, 0, mask.shape[1] - 1),
            )
            difference = ((part[there] - here) ** 2).mean(1)[~mask[there]]
            if len(difference) and difference.mean() < smallest:
                best, smallest = (down, across), float(difference.mean())
    return best


def ring_of(hidden: Array) -> Array:
    """Return a mask of the ring around a hole, which is compared with its shifted copies."""
    depth = float(cv2.distanceTransform(np.pad(hidden, 1).astype(np.uint8), cv2.DIST_L2, 3).max())
    width = int(np.clip(round(2 * _RING * depth), _MIN_RING, _MAX_RING))
    return ~hidden & (cv2.distanceTransform((~hidden).astype(np.uint8), cv2.DIST_L2, 5) <= width)


def _misfits(small: Array, hidden: Array, ring: Array) -> Array:
    """Return the mean squared difference of the ring and the pixels at each offset.

    Offset zero is in the middle.
    """
    visible = ~hidden
    values = (small - small[ring].mean(0)) * visible[..., None]
    square = (values**2).sum(2)
    count = _correlate(ring, visible)
    total = _correlate(square * ring, visible) + _correlate(ring, square)
    for channel in range(3):
        total -= 2 * _correlate(values[..., channel] * ring, values[..., channel])
    misfit = np.maximum(total, 0) / np.maximum(count, 1) / 3
    misfit[count < _KNOWN * ring.sum()] = np.inf
    return misfit


def _correlate(first: Array, second: Array) -> Array:
    """Return the correlation of two planes at every offset, with the zero offset in the middle."""
    shape = tuple(cv2.getOptimalDFTSize(2 * side) for side in first.shape)
    turned = np.conj(np.fft.rfft2(first.astype(np.float64), shape))
    return np.fft.fftshift(np.fft.irfft2(turned * np.fft.rfft2(second.astype(np.float64), shape), shape))
