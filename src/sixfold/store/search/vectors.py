"""Functions of vectors and positions that the views of a page index use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from sixfold.core.memory.indexing.weights import MIN_PASSED_SHARE, Saturation
from sixfold.store.search.columns import Floats, Positions

_BLOCK = 128  # positions per block when the best scores are selected
_SCATTERED = 0.25  # fraction of pages with distant neighbors above which all neighbors are looked up
NONE = np.zeros(0, np.int64)


def common(lists: Sequence[Positions]) -> Positions:
    """Return the positions that all ascending lists contain, beginning with the shortest list."""
    ordered = sorted(lists, key=len)
    shared = ordered[0] if ordered else NONE
    for positions in ordered[1:]:
        if len(shared):
            shared = shared[positions.take(np.searchsorted(positions, shared), mode="clip") == shared]
    return shared


def distinct(lists: Sequence[Positions]) -> Positions:
    """Return the values of all lists in ascending order, each once."""
    # `np.unique` takes several times as long, as it hashes the values first.
    values = np.sort(np.concatenate(lists))
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def norm(length: Floats, mean: float, saturation: Saturation) -> Floats:
    k1, b = saturation.k1, saturation.b
    length = np.maximum(length, 1)  # avoids a division by zero
    return np.float32(k1 * (1 - b)) + np.float32(k1 * b / mean) * length


def steps(positions: Positions, step: int) -> tuple[Positions | slice, Positions, Positions]:
    """Return the indexes of distant neighbors, these neighbors, and the indexes without a neighbor."""
    ends = np.flatnonzero(positions < 0)
    odd = np.flatnonzero(positions != np.arange(step, len(positions) + step, dtype=positions.dtype))
    odd = odd[positions[odd] >= 0]
    if len(odd) > len(positions) * _SCATTERED:
        return slice(None), np.maximum(positions, 0, dtype=np.int64), ends
    return odd, positions[odd].astype(np.int64), ends


def array_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(array_bytes, cast("Mapping[str, Any]", value).values()))
    return sum(map(array_bytes, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else 0


def rarity(having: int, of: int) -> float:
    return math.log(1 + (of - having + 0.5) / (having + 0.5))


def greatest(vector: Floats, count: int) -> Positions:
    """Return the positions of the greatest values, at most `count`, excluding values far below the best."""
    best = float(np.max(vector, initial=0.0))
    least = max(MIN_PASSED_SHARE * best, reached(vector, count))
    positions = np.flatnonzero(vector >= least) if best > 0 else np.zeros(0, np.int64)
    if len(positions) > count:
        positions = positions[np.argsort(-vector[positions], kind="stable")[:count]]
    return positions


def reached(vector: Floats, count: int) -> float:
    """Return a value near the `count`-th greatest that at least `count` positions reach, or 0."""
    tops = np.maximum.reduceat(vector, np.arange(0, len(vector), _BLOCK)) if len(vector) else vector
    return float(np.partition(tops, -count)[-count]) if len(tops) > count else 0.0
