"""Checks for failed images: NaN, black, a single color, and (in a self-check) noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLACK = 3 / 255
_FLAT = 3 / 255
# Correlation of neighboring pixels: at least 0.8 in photos and drawings, about 0 in noise.
_NOISE = 0.35


def find_fault(low: Sequence[float], high: Sequence[float]) -> str | None:
    """Return the fault of an image, as the object of "The model returned", or None for a valid image.

    `low` and `high` are the smallest and largest value of each channel, from 0 to 1 or NaN.
    """
    if not np.isfinite([*low, *high]).all():
        return "NaN values"
    if max(high) <= _BLACK:
        return "a black image"
    if max(np.subtract(high, low)) <= _FLAT:
        return "an image of a single color"
    return None


def is_noise(image: NDArray[Any]) -> bool:
    """Return whether neighboring pixels (HxWx3) are uncorrelated, the sign of a wrong decoder."""
    gray = image.astype(np.float64).mean(axis=2)
    return min(_correlation(gray[:, :-1], gray[:, 1:]), _correlation(gray[:-1], gray[1:])) < _NOISE


def _correlation(image: NDArray[Any], other: NDArray[Any]) -> float:
    first, second = image - image.mean(), other - other.mean()
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / norm if norm else 1.0
