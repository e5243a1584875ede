"""Growing numeric columns, on which the page index is built.

The *position* of a page is its number in the index, counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Positions: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MAX_POSITIONS = 1 << 24  # a repeated word has three bytes for the position
NO_PAGE = -1  # value of an empty entry in a column of positions


class PackedColumn:
    """A growing array; `values` is a view that is valid until the next growth."""

    def __init__(self, kind: Any) -> None:
        self._buffer: NDArray[Any] = np.zeros(64, kind)
        self._length = 0

    @classmethod
    def of(cls, values: NDArray[Any]) -> PackedColumn:
        """Return a column that uses an array as its first buffer."""
        column = cls(values.dtype)
        column.__setstate__(values)
        return column

    def __getstate__(self) -> NDArray[Any]:
        return self.values

    def __setstate__(self, values: NDArray[Any]) -> None:
        self._buffer = values
        self._length = len(values)

    def __setitem__(self, position: int, value: float) -> None:
        """Set the number of a position; skipped entries become 0."""
        if position >= self._length:
            self._length = position + 1
            if position >= len(self._buffer):
                grown = np.zeros(2 * self._length, self._buffer.dtype)
                grown[: len(self._buffer)] = self._buffer
                self._buffer = grown
        self._buffer[position] = value

    def __getitem__(self, position: int) -> Any:
        return self._buffer[position]

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """A view of all numbers."""
        return self._buffer[: self._length]


class FreeList:
    """An allocator of positions, counted from 0, which reuses released positions first."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        """Allocate a position; raises `OverflowError` above `MAX_POSITIONS`."""
        if self._free:
            return self._free.pop()
        if self._next == MAX_POSITIONS:
            raise OverflowError(f"an account's index must have at most {MAX_POSITIONS:,} pages")
        self._next += 1
        return self._next - 1

    def release(self, position: int) -> None:
        self._free.append(position)


class SharedBuffer:
    """An allocator that assigns rows of a shared array to pages."""

    def __init__(self) -> None:
        self._room = FreeList()
        self._of: dict[int, list[int]] = {}
        self.count = 0  # allocated rows

    def of(self, page: int) -> Sequence[int]:
        return self._of.get(page, ())

    def fit(self, page: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
        """Change the number of rows of a page; return its rows and the released rows."""
        mine = self._of.pop(page, [])
        self.count += count - len(mine)
        spare = mine[count:]
        for position in spare:
            self._room.release(position)
        mine = mine[:count] + [self._room.take() for _ in range(count - len(mine))]
        if mine:
            self._of[page] = mine
        return mine, spare
