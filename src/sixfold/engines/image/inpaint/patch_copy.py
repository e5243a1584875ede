"""What repeats: a hole filled by the surroundings themselves, moved by the offset that fits its rim best.

The misfit of every offset at once is a few correlations: what lies round the hole against the same ring
moved, only where both are known. Grids, stripes and facades go on as they are, at the image's own size.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_SIDE = 384  # of the part in which offsets are looked for
_RING = 0.45  # of the hole's depth: how wide the ring is that is compared
_LEAST_RING, _MOST_RING = 6, 48
_SEEN = 0.6  # of the ring must be known where it is moved to
_PIECES = 6  # offsets that one hole is filled from
_WHOLE, _LEAST = 0.9999, 0.2  # of what is left: all of it, or enough to be a piece
_SAMPLES = 4000
_GOOD = 0.2  # misfit as a share of the ring's own contrast, up to which a repetition is believed


def copied(part: Pixels, gone: Array) -> Pixels | None:
    """The part with its hole filled; None where nothing repeats well enough."""
    scale = min(1.0, _SIDE / max(gone.shape))
    size = (max(8, round(gone.shape[1] * scale)), max(8, round(gone.shape[0] * scale)))
    small = cv2.resize(part, size, interpolation=cv2.INTER_AREA).astype(np.float64)
    hidden = cv2.resize(gone.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
    ring = ring_of(hidden)
    if not ring.any():
        return None
    limit = (_GOOD * float(small[ring].std(0).mean())) ** 2
    misfit = _misfits(small, hidden, ring)
    made, left, wanted = part.copy(), gone.copy(), hidden
    for _ in range(_PIECES):
        covers = _correlated(wanted, ~hidden) / max(int(wanted.sum()), 1)
        whole = (covers > _WHOLE) & (misfit <= limit)
        worth = np.where(whole if whole.any() else (covers > _LEAST) & (misfit <= limit), misfit, np.inf)
        at = np.unravel_index(int(np.argmin(worth)), worth.shape)
        if not np.isfinite(worth[at]):
            return None
        offset = (int(at[0]) - worth.shape[0] // 2, int(at[1]) - worth.shape[1] // 2)
        _lay(made, left, part, gone, _refined(part, gone, offset, scale))
        if not left.any():
            return made
        wanted = cv2.resize(left.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
        misfit[at] = np.inf
    return None


def _lay(made: Pixels, left: Array, part: Pixels, gone: Array, offset: tuple[int, int]) -> None:
    """Fill what is left from what lies `offset` rows and columns away, where that is known."""
    rows, columns = np.nonzero(left)
    there, beside = rows + offset[0], columns + offset[1]
    inside = (there >= 0) & (there < gone.shape[0]) & (beside >= 0) & (beside < gone.shape[1])
    rows, columns, there, beside = (places[inside] for places in (rows, columns, there, beside))
    known = ~gone[there, beside]
    made[rows[known], columns[known]] = part[there[known], beside[known]]
    left[rows[known], columns[known]] = False


def _refined(part: Pixels, gone: Array, offset: tuple[int, int], scale: float) -> tuple[int, int]:
    """An offset of the small image as one of the whole part: the best of those that it may stand for."""
    if scale == 1.0:
        return offset
    rows, columns = np.nonzero(ring_of(gone))
    every = max(1, len(rows) // _SAMPLES)
    rows, columns = rows[::every], columns[::every]
    here = part[rows, columns].astype(np.float32)
    middle, reach = (round(offset[0] / scale), round(offset[1] / scale)), int(np.ceil(1 / scale))
    best, least = middle, np.inf
    for down in range(middle[0] - reach, middle[0] + reach + 1):
        for across in range(middle[1] - reach, middle[1] + reach + 1):
            there = (
                np.clip(rows + down, 0, gone.shape[0] - 1),
                np.clip(columns + across, 0, gone.shape[1] - 1),
            )
            apart = ((part[there] - here) ** 2).mean(1)[~gone[there]]
            if len(apart) and apart.mean() < least:
                best, least = (down, across), float(apart.mean())
    return best


def ring_of(hidden: Array) -> Array:
    """What lies round a hole."""
    depth = float(cv2.distanceTransform(np.pad(hidden, 1).astype(np.uint8), cv2.DIST_L2, 3).max())
    width = int(np.clip(round(2 * _RING * depth), _LEAST_RING, _MOST_RING))
    return ~hidden & (cv2.distanceTransform((~hidden).astype(np.uint8), cv2.DIST_L2, 5) <= width)


def _misfits(small: Array, hidden: Array, ring: Array) -> Array:
    """For each offset (except the middle) the mean square difference of the ring and what lies there."""
    known = ~hidden
    values = (small - small[ring].mean(0)) * known[..., None]
    square = (values**2).sum(2)
    count = _correlated(ring, known)
    total = _correlated(square * ring, known) + _correlated(ring, square)
    for channel in range(3):
        total -= 2 * _correlated(values[..., channel] * ring, values[..., channel])
    misfit = np.maximum(total, 0) / np.maximum(count, 1) / 3
    misfit[count < _SEEN * ring.sum()] = np.inf
    return misfit


def _correlated(first: Array, second: Array) -> Array:
    """How two planes agree under every offset, the middle being none."""
    shape = tuple(cv2.getOptimalDFTSize(2 * side) for side in first.shape)
    turned = np.conj(np.fft.rfft2(first.astype(np.float64), shape))
    return np.fft.fftshift(np.fft.irfft2(turned * np.fft.rfft2(second.astype(np.float64), shape), shape))
