"""The order of the pages of a folder by creation time.

Pages of one import have the same creation time. They are sorted by the numbers in their names, so that
`turn-2` comes before `turn-10`, and then by name.
"""

from __future__ import annotations

import re
from bisect import bisect_left

import numpy as np

from sixfold.core.memory import slugs
from sixfold.store.search.columns import NO_PAGE, PackedColumn, Positions
from sixfold.store.search.strings import Numbers, StringColumn

_DIGITS = re.compile(r"\d{1,15}")
_NUMBERED = re.compile(r"(\D*)(\d{1,8}(?:[-_.]\d{1,8})*)")


class FolderOrder:
    """The neighbors of every page in its folder, updated as pages are added and removed."""

    def __init__(self, of: StringColumn, created: PackedColumn) -> None:
        """Use `of` and `created` as the slug and creation time of each position.

        Both must be set while the page is in the order.
        """
        self.before = PackedColumn(np.int32)
        self.after = PackedColumn(np.int32)
        self._slugs = of
        self._created = created
        self._series: dict[str, Numbers] = {}

    def add(self, position: int) -> None:
        """Insert a page into the order of its folder."""
        row = self._series.setdefault(slugs.parent(self._slugs[position]), Numbers("I"))
        at = len(row)
        if row and self._key(row[-1]) > self._key(position):
            at = bisect_left(row, self._key(position), key=self._key)
        row.insert(at, position)
        self._join(row[at - 1] if at else NO_PAGE, position)
        self._join(position, row[at + 1] if at + 1 < len(row) else NO_PAGE)

    def remove(self, position: int) -> None:
        folder = slugs.parent(self._slugs[position])
        row = self._series[folder]
        del row[bisect_left(row, self._key(position), key=self._key)]
        if not row:
            del self._series[folder]
        self._join(int(self.before[position]), int(self.after[position]))
        self.before[position] = self.after[position] = NO_PAGE

    def beside(self, position: int) -> Positions:
        """Return the pages of a page's folder in order."""
        return np.frombuffer(self._series[slugs.parent(self._slugs[position])].tobytes(), np.uint32).astype(
            np.int64
        )

    def _join(self, first: int, second: int) -> None:
        if first != NO_PAGE:
            self.after[first] = second
        if second != NO_PAGE:
            self.before[second] = first

    def _key(self, position: int) -> tuple[int, tuple[int, ...], str, int]:
        slug = self._slugs[position]
        numbers = tuple(int(digits) for digits in _DIGITS.findall(slugs.name(slug)))
        return int(self._created[position]), numbers, slug, position


def folder(slug: str) -> str:
    """Return the folder of a page, which includes the month for `log/2026-05-08`; "" at the top level."""
    head, _, name = slug.rpartition("/")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return head
    upper = re.split(r"[-_.]", numbered[2])[:-1]
    return f"{head}/{numbered[1]}{'-'.join(upper)}" if upper else head
