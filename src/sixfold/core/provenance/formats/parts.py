"""Parts that a container consists of, such as chunks and boxes: iterated within a budget."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from sixfold.core.input_budget import InputBudget, Limit

MAX_PARTS = 1_000_000
_STRIDE = 16  # parts that `walk` adds to the budget at once
# Errors of a reader whose data ends too early or contradicts itself.
DAMAGE = (struct.error, LookupError, OverflowError, ZeroDivisionError, ValueError)


Kind = TypeVar("Kind", bytes, int)


class MalformedFile(ValueError):
    """The file contradicts its own format, or has more parts than are read."""


class MediaHeader(NamedTuple):
    """Properties that a file claims; zero and None where the format or its reader does not state them.

    Width and height are as stored, before any rotation. `buffer_pixels` is the largest image that a decoder
    would have to hold at once: more than width x height where the file asks for oversized tiles.
    """

    width: int = 0
    height: int = 0
    buffer_pixels: int = 0
    seconds: float | None = None

    @classmethod
    def of_image(cls, width: int, height: int) -> MediaHeader:
        """Return the header of an image that is decoded at its own size."""
        return cls(width, height, width * height)


class ContainerPart(NamedTuple, Generic[Kind]):
    """One chunk, box, segment or element: its payload begins at `body`, and the next part at `end`.

    `is_open`: its size is not known, and it reaches to the end of its parent.
    """

    kind: Kind
    start: int
    body: int
    end: int
    is_open: bool = False


def part_budget(most: int = MAX_PARTS) -> InputBudget:
    """Return the budget for the parts of one file."""
    return InputBudget(parts=_limit(most))


@cache
def _limit(most: int) -> Limit:
    return Limit(most, "The file has more than {:,} parts", MalformedFile)


def walk(
    data: bytes,
    at: int,
    end: int,
    read: Callable[[bytes, int], ContainerPart[Kind] | None],
    *,
    last: Kind | None = None,
    budget: InputBudget | None = None,
) -> Iterator[ContainerPart[Kind]]:
    """Yield each whole part between two offsets, up to one of the kind `last`.

    `read` returns the part at an offset; None, or an error that the data is too short, ends the iteration.
    Raises `MalformedFile` when the budget is spent.
    """
    budget = budget or part_budget()
    left = 0
    while at < end:
        if left == 0:
            budget.spend(parts=_STRIDE)
            left = _STRIDE
        left -= 1
        try:
            part = read(data, at)
        except (struct.error, IndexError):
            return
        if part is None or not at < part.end <= end:
            return
        yield part
        if part.kind == last:
            return
        at = part.end
