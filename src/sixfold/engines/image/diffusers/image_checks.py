"""Is this an image at all? Not a number, black, one color, and (for a self-check) noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLACK = 3 / 255
_FLAT = 3 / 255
_NOISE = 0.35  # neighbors in a photograph or drawing agree by 0.8 and more, in noise by about 0


def fault_of(low: Sequence[float], high: Sequence[float]) -> str | None:
    """Why an image is none, in words that follow "The model gave", or None.

    `low` and `high` are the least and the largest value of each channel, from 0 to 1 or NaN.
    """
    if not np.isfinite([*low, *high]).all():
        return "numbers that are none (NaN)"
    if max(high) <= _BLACK:
        return "a black picture"
    if max(np.subtract(high, low)) <= _FLAT:
        return "a picture of a single colour"
    return None


def is_noise(picture: NDArray[Any]) -> bool:
    """Whether neighboring pixels (HxWx3) know nothing of each other: a wrong decoder."""
    gray = picture.astype(np.float64).mean(axis=2)
    return min(_agreement(gray[:, :-1], gray[:, 1:]), _agreement(gray[:-1], gray[1:])) < _NOISE


def _agreement(one: NDArray[Any], other: NDArray[Any]) -> float:
    first, second = one - one.mean(), other - other.mean()
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / norm if norm else 1.0
