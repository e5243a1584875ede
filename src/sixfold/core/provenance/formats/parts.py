"""Parts of containers, such as chunks and boxes, iterated within a budget."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from sixfold.core.input_limits.budget import InputBudget, Limit

MAX_PARTS = 1_000_000
# Number of parts that `walk` adds to the budget at a time.
_STRIDE = 16
# Errors of a reader if the data ends too early or is inconsistent.
DAMAGE = (struct.error, LookupError, OverflowError, ZeroDivisionError, ValueError)


Kind = TypeVar("Kind", bytes, int)


class MalformedFile(ValueError):
    """The file violates its format, or has more parts than are allowed."""


class MediaHeader(NamedTuple):
    """Properties that a file states; 0 or None if the format or its reader does not provide them.

    Width and height are as stored, before rotation. `buffer_pixels` is the number of pixels of the largest
    image that a decoder must hold in memory, which exceeds width x height if the file has oversized tiles.
    """

    width: int = 0
    height: int = 0
    buffer_pixels: int = 0
    seconds: float | None = None

    @classmethod
    def of_image(cls, width: int, height: int) -> MediaHeader:
        """Return the header of an image that is decoded at its stored size."""
        return cls(width, height, width * height)


class ContainerPart(NamedTuple, Generic[Kind]):
    """A chunk, box, segment or element: its payload begins at `body`, and the next part at `end`.

    If `is_open` is set, the size of the part is unknown, and it extends to the end of its parent.
    """

    kind: Kind
    start: int
    body: int
    end: int
    is_open: bool = False


def part_budget(max_parts: int = MAX_PARTS) -> InputBudget:
    return InputBudget(parts=_limit(max_parts))


@cache
def _limit(max_parts: int) -> Limit:
    return Limit(max_parts, "The file has more than {:,} parts", MalformedFile)


def walk(
    data: bytes,
    at: int,
    end: int,
    read: Callable[[bytes, int], ContainerPart[Kind] | None],
    *,
    last: Kind | None = None,
    budget: InputBudget | None = None,
) -> Iterator[ContainerPart[Kind]]:
    """Yield each complete part between two offsets, up to the first part of the kind `last`.

    `read` returns the part at an offset; None, or an error because the data is too short, ends the iteration.
    Raises `MalformedFile` if the budget is exceeded.
    """
    budget = budget or part_budget()
    remaining = 0
    while at < end:
        if remaining == 0:
            budget.spend(parts=_STRIDE)
            remaining = _STRIDE
        remaining -= 1
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
