"""Seamless joining of copied pieces by their gradients (Perez, Gangnet and Blake, 2003).

The solution is a correction of the copied colors. Across the hole's edge and between pieces the correction
compensates for the difference between the sources; elsewhere it is as smooth as possible.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Longer side of the hole at which the correction is solved, and the rounds at that size and at full size.
_SIDE, _ROUNDS, _FINE_ROUNDS = 160, 160, 8
# Difference in levels across the hole's edge above which the edge belongs to an object and is preserved.
_EDGE = 48.0
# Weight that pulls the correction towards zero where no gradient determines it.
_REST = 1e-4
_BESIDE = ((-1, 0), (1, 0), (0, -1), (0, 1))


def join(part: Pixels, mask: Array, offsets: Array) -> Pixels:
    """Return the part with its hole copied from `offsets` rows and columns away, without seams."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    box = tuple(slice(max(0, line[0] - 1), line[-1] + 2) for line in (rows, columns))
    hole, moves = mask[box], offsets[box]
    values = part.astype(np.float32)
    top, left = box[0].start, box[1].start
    scale = min(1.0, _SIDE / max(hole.shape))
    start, rounds = np.zeros((*hole.shape, 3), np.float32), _ROUNDS
    if scale < 1:
        small = cv2.resize(values, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        size = (round(hole.shape[1] * scale), round(hole.shape[0] * scale))
        reduced = cv2.resize(hole.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST_EXACT) > 0
        planes = [
            cv2.resize(plane, size, interpolation=cv2.INTER_NEAREST_EXACT)
            for plane in cv2.split(moves.astype(np.float32))
        ]
        near = np.rint(np.dstack(planes) * scale).astype(np.intp)
        corner = (round(top * scale), round(left * scale))
        coarse = _correction(small, reduced, near, corner, np.zeros((*reduced.shape, 3), np.float32), _ROUNDS)
        start = cv2.resize(coarse, hole.shape[::-1], interpolation=cv2.INTER_LINEAR)
        rounds = _FINE_ROUNDS
    correction = _correction(values, hole, moves, (top, left), start, rounds)
    filling = _source(values, moves, (top, left), (0, 0)) + correction
    whole = part.copy()
    whole[box][hole] = np.clip(np.rint(filling), 0, 255).astype(np.uint8)[hole]
    return whole


def _source(values: Array, moves: Array, corner: tuple[int, int], beside: tuple[int, int]) -> Array:
    """Return, for each pixel of the box, the value at its source plus the offset `beside`."""
    rows, columns = np.indices(moves.shape[:2])
    row = np.clip(rows + corner[0] + moves[..., 0] + beside[0], 0, values.shape[0] - 1)
    column = np.clip(columns + corner[1] + moves[..., 1] + beside[1], 0, values.shape[1] - 1)
    return values[row, column]


def _correction(
    values: Array, hole: Array, moves: Array, corner: tuple[int, int], start: Array, rounds: int
) -> Array:
    """Return the correction within the hole after a number of rounds of relaxation."""
    here = _source(values, np.zeros_like(moves), corner, (0, 0))
    copied = _source(values, moves, corner, (0, 0))
    change, weights = np.zeros_like(start), np.full(hole.shape, _REST, np.float32)
    inner: list[Array] = []
    for beside in _BESIDE:
        both = hole & _beside(hole, beside)
        continued = _source(values, moves, corner, beside)
        step = _beside(here, beside) - continued
        exists = _beside(np.ones_like(hole), beside)
        edge = hole & ~both & exists & (np.abs(step).max(2) < _EDGE)
        back = _beside(_source(values, moves, corner, (-beside[0], -beside[1])), beside)
        # The mean gradient of both sources, minus the step between the copied pixels.
        lacking = 0.5 * ((back - copied) + (_beside(copied, beside) - continued))
        change += np.where(both[..., None], lacking, 0) + np.where(edge[..., None], step, 0)
        inner.append(both.astype(np.float32)[..., None])
        weights += both + edge.astype(np.float32)
    return _relaxed(start, change, inner, weights, rounds)


def _relaxed(correction: Array, change: Array, inner: list[Array], weights: Array, rounds: int) -> Array:
    """Return the solution by over-relaxed sweeps over the two colors of a chessboard."""
    board = (np.indices(weights.shape).sum(0) % 2)[..., None]
    depth = float(np.sqrt(float(inner[0].sum()) + 16))
    factor = np.float32(2 / (1 + np.pi / depth)) if rounds == _ROUNDS else np.float32(1)
    shares = [factor * (board == color) / weights[..., None] for color in (0, 1)]
    shares = [share.astype(np.float32) for share in shares]
    correction = correction * (weights > 1)[..., None]
    for turn in range(2 * rounds):
        total = change - weights[..., None] * correction
        for mask, beside in zip(inner, _BESIDE, strict=True):
            total += mask * _beside(correction, beside)
        correction += shares[turn % 2] * total
    return correction


def _beside(values: Array, beside: tuple[int, int]) -> Array:
    """Return, at each pixel, the value at the offset `beside`, or zero beyond the border."""
    result = np.zeros_like(values)
    down, across = beside
    height, width = values.shape[:2]
    target = np.s_[max(0, -down) : height - max(0, down), max(0, -across) : width - max(0, across)]
    source = np.s_[max(0, down) : height - max(0, -down), max(0, across) : width - max(0, -across)]
    result[target] = values[source]
    return result
