"""Filling of holes with large pieces of the surroundings by shift maps (Pritch et al., 2009).

A shift map is computed at a reduced size, where it converges quickly. Each patch of the result is then
matched with its source patch in the image, so that the pieces can be copied at full size. Descriptors of
patches are integers whose products float32 holds exactly, so the matches are the same on any machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# Longer side of the part in which pieces are searched, and the radius of a patch.
_SIDE, _RADIUS = 288, 3
# Highest frequencies (of a cosine transform of the patch) that are compared, in brightness and in two colors,
# and the levels of one step.
_FREQUENCIES, _STEP = (3, 1, 1), 8.0
# Number of known patches that are compared at once.
_CHUNK = 512
# Sweeps that join neighbors into pieces, the number of frequent offsets to which each may change, and the
# cost of a neighbor in another piece as a fraction of the median distance of the matches.
_SWEEPS, _COMMON, _BREAK = 12, 24, 1.0
_BESIDE = ((-1, 0), (1, 0), (0, -1), (0, 1))


def offsets(part: Pixels, mask: Array) -> Array | None:
    """Return the offset (rows, columns) to each pixel's source, or None if too little is known."""
    scale = min(1.0, _SIDE / max(mask.shape))
    size = (max(8, round(mask.shape[1] * scale)), max(8, round(mask.shape[0] * scale)))
    small = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
    hidden = cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0
    sources = np.argwhere(~_near(hidden, border=True))
    if not len(sources):
        return None
    described = _described(_filled(small, hidden))
    targets = np.argwhere(_near(hidden))
    moves = np.zeros((*hidden.shape, 2), np.intp)
    moves[tuple(targets.T)] = _matches(described, targets, sources) - targets
    visible = np.zeros(hidden.shape, bool)
    visible[tuple(sources.T)] = True
    _join(moves, targets, described, visible)
    planes = [
        cv2.resize(plane, mask.shape[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        for plane in cv2.split(moves.astype(np.float32))
    ]
    return np.rint(np.dstack(planes) * (np.array(mask.shape) / hidden.shape)).astype(np.intp)


def _near(hidden: Array, *, border: bool = False) -> Array:
    """Return a mask of the pixels whose patch touches the hole or, with `border`, the image's border."""
    window = np.ones((2 * _RADIUS + 1,) * 2, np.uint8)
    padded = np.pad(hidden, 1, constant_values=border).astype(np.uint8)
    return cv2.dilate(padded, window, borderValue=int(border))[1:-1, 1:-1] > 0


def _filled(small: Pixels, hidden: Array) -> Pixels:
    lab = cv2.cvtColor(np.ascontiguousarray(small), cv2.COLOR_RGB2LAB)
    cv2.setRNGSeed(0)
    out = lab.copy()
    cv2.xphoto.inpaint(lab, np.where(hidden, 0, 255).astype(np.uint8), out, cv2.xphoto.INPAINT_SHIFTMAP)
    return np.where(hidden[..., None], cv2.cvtColor(out, cv2.COLOR_LAB2RGB), small)


@cache
def _cosines() -> tuple[Array, ...]:
    """Return the rows of the cosine transform of a patch's side."""
    side = 2 * _RADIUS + 1
    angles = (2 * np.arange(side) + 1) * np.pi / (2 * side)
    gains = [np.sqrt((2 if number else 1) / side) for number in range(side)]
    return tuple((gain * np.cos(number * angles)).astype(np.float32) for number, gain in enumerate(gains))


def _described(image: Pixels) -> Array:
    """Return the descriptor of the patch around each pixel: its low frequencies, as integers."""
    rows = _cosines()
    result: list[Array] = []
    for plane, highest in zip(cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb)), _FREQUENCIES, strict=True):
        for down in range(highest + 1):
            for across in range(highest + 1 - down):
                part = cv2.sepFilter2D(
                    plane, cv2.CV_32F, rows[across], rows[down], borderType=cv2.BORDER_REFLECT
                )
                result.append(np.rint(part / _STEP))
    return np.dstack(result)


def _matches(described: Array, targets: Array, sources: Array) -> Array:
    """Return the source of the most similar patch for each target."""
    target, candidates = described[tuple(targets.T)], described[tuple(sources.T)]
    # One product gives the distance minus a constant: the square of the target descriptor.
    target = np.hstack([-2 * target, np.ones((len(target), 1), np.float32)])
    candidates = np.hstack([candidates, (candidates**2).sum(1, keepdims=True)])
    least, best = np.full(len(targets), np.inf, np.float32), np.zeros(len(targets), np.intp)
    every = np.arange(len(targets))
    for start in range(0, len(candidates), _CHUNK):
        distances = target @ candidates[start : start + _CHUNK].T
        at = distances.argmin(1)
        distance = distances[every, at]
        better = distance < least
        best[better], least[better] = at[better] + start, distance[better]
    return sources[best]


def _join(moves: Array, targets: Array, described: Array, known: Array) -> None:
    """Assign the same offset to neighbors if the cost is low (iterated conditional modes), in place."""
    often, counts = np.unique(moves[tuple(targets.T)], axis=0, return_counts=True)
    common = often[np.argsort(-counts, kind="stable")[:_COMMON]]
    limits = np.array(known.shape) - 1
    for sweep in range(_SWEEPS):
        here = targets[targets.sum(1) % 2 == sweep % 2]
        if not len(here):
            continue
        own = tuple(here.T)
        around = [moves[tuple(np.clip(here + beside, 0, limits).T)] for beside in _BESIDE]
        best, least, price = moves[own], np.full(len(here), np.inf, np.float32), None
        for candidate in [best, *around, *common]:
            there = tuple(np.clip(here + candidate, 0, limits).T)
            cost = ((described[own] - described[there]) ** 2).sum(1)
            price = price or _BREAK * float(np.median(cost)) + 1
            breaks = sum((neighbor != candidate).any(1).astype(np.float32) for neighbor in around)
            cost = np.where(known[there], cost + price * breaks, np.inf)
            best = np.where((cost < least)[:, None], candidate, best)
            least = np.minimum(cost, least)
        moves[own] = best
