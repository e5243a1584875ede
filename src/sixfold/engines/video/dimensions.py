"""Frame sizes: even sides in the requested shape, with the short side near the requested length."""

from __future__ import annotations

from fractions import Fraction

# The short side may differ by this many pixels from the requested length.
_REACH = 16
# Tolerated relative error of the shape: 854 x 480 is indistinguishable from 16:9.
_TOLERANCE = 0.001
# Longer panoramas are cropped, because their long side would be unbounded.
_MAX_RATIO = 3.0

SHORT_SIDES = {"480p": 480, "580p": 580, "720p": 720, "1080p": 1080}
SHAPES = {"16:9": Fraction(16, 9), "9:16": Fraction(9, 16), "1:1": Fraction(1)}


def aspect_ratio(aspect: str, image: tuple[int, int] | None) -> float:
    """Return width divided by height.

    A named `aspect` takes precedence over the size (width, height) of the image, which is limited to 3:1. The
    default is 16:9.
    """
    if aspect in SHAPES:
        return float(SHAPES[aspect])
    if image is None:
        return 16 / 9
    return min(_MAX_RATIO, max(1 / _MAX_RATIO, image[0] / image[1]))


def frame(resolution: str, shape: float) -> tuple[int, int]:
    """Return the width and height in pixels for `resolution` (`720p`) and `shape` (width / height)."""
    target = SHORT_SIDES[resolution]
    stretch = max(shape, 1 / shape)

    def long_of(short: int) -> int:
        return 2 * round(short * stretch / 2)

    def error(short: int) -> float:
        return abs(long_of(short) / short / stretch - 1)

    near = sorted(range(target - _REACH, target + _REACH + 1, 2), key=lambda short: abs(short - target))
    short = next((side for side in near if error(side) <= _TOLERANCE), min(near, key=error))
    sides = (long_of(short), short)
    return sides if shape >= 1 else (sides[1], sides[0])
