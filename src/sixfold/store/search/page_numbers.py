"""Numbers that are derived from each page alone, for all pages.

After a change, only the numbers of the changed pages are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import numpy as np

from sixfold.store.search.columns import Floats, PackedColumn, Positions

Rows: TypeAlias = Positions | slice
_MAX_CHANGED = 0.1  # fraction of the pages above which all numbers are computed again


class PageNumbers:
    """Columns with a number per page; an unused position has 0."""

    def __init__(self) -> None:
        self._columns: dict[Hashable, tuple[PackedColumn, Callable[[Rows], Floats], int]] = {}
        self._changed: set[int] = set()

    def get(self, key: Hashable, compute: Callable[[Rows], Floats], version: int = 0) -> Floats:
        """Return the numbers that `compute` returns for all rows; later, it is called for changed pages.

        With another `version`, all numbers are computed again.
        """
        if key not in self._columns or self._columns[key][2] != version:
            self._columns[key] = PackedColumn.of(compute(slice(None))), compute, version
        return self._columns[key][0].values

    def change(self, position: int) -> None:
        """Note that a page has changed."""
        if self._columns:
            self._changed.add(position)

    def catch_up(self, length: int) -> None:
        """Compute the numbers of the changed pages; `length` is the number of positions."""
        changed = np.fromiter(self._changed, np.int64, len(self._changed))
        self._changed.clear()
        if len(changed) > length * _MAX_CHANGED:
            self._columns.clear()
        for column, compute, _ in self._columns.values():
            for position, number in zip(changed.tolist(), compute(changed).tolist(), strict=True):
                column[position] = number
            if len(column) < length:
                column[length - 1] = 0

    @property
    def size(self) -> int:
        """The size of the columns in bytes."""
        return sum(column.values.nbytes for column, *_ in self._columns.values())
