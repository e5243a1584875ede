"""How large a film is: a short side near the asked one, both sides even, the shape right."""

from __future__ import annotations

from fractions import Fraction

_REACH = 16  # how far the short side may lie from what was asked for
_NEAR_ENOUGH = 0.001  # of the shape: 854 x 480 is 16:9 to any eye
_WIDEST = 3.0  # a longer panorama is cut: its long side would have no end

SHORT_SIDES = {"480p": 480, "580p": 580, "720p": 720, "1080p": 1080}
SHAPES = {"16:9": Fraction(16, 9), "9:16": Fraction(9, 16), "1:1": Fraction(1)}


def shape_of(aspect: str, picture: tuple[int, int] | None) -> float:
    """Width by height: a named one, or the picture's (width, height) within 3 to 1; 16:9 without either."""
    if aspect in SHAPES:
        return float(SHAPES[aspect])
    if picture is None:
        return 16 / 9
    return min(_WIDEST, max(1 / _WIDEST, picture[0] / picture[1]))


def frame(resolution: str, shape: float) -> tuple[int, int]:
    """Width and height in pixels of a film of `resolution` (`720p`) in `shape` (width by height)."""
    wanted = SHORT_SIDES[resolution]
    stretch = max(shape, 1 / shape)

    def long_of(short: int) -> int:
        return 2 * round(short * stretch / 2)

    def error(short: int) -> float:
        return abs(long_of(short) / short / stretch - 1)

    near = sorted(range(wanted - _REACH, wanted + _REACH + 1, 2), key=lambda short: abs(short - wanted))
    short = next((side for side in near if error(side) <= _NEAR_ENOUGH), min(near, key=error))
    sides = (long_of(short), short)
    return sides if shape >= 1 else (sides[1], sides[0])
