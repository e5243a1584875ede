"""Which page stands before which: the pages of a folder as they were made.

Pages of one import were made at one moment; among them the numbers in their names decide, so that `turn-2`
comes before `turn-10`, and then their names.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from typing import Any

import numpy as np

from sixfold.store.search.columns import Column

_DIGITS = re.compile(r"\d{1,15}")
_NUMBERED = re.compile(r"(\D*)(\d{1,8}(?:[-_.]\d{1,8})*)")

Key = tuple[Any, ...]


class Order:
    """The neighbours of every page, kept as pages come and go."""

    def __init__(self) -> None:
        self.before = Column(np.int64)
        self.after = Column(np.int64)
        self._series: dict[str, list[tuple[Key, int]]] = {}

    def add(self, place: int, slug: str, created_at: int) -> None:
        """Put a page into its row; `place` is the next free one."""
        self.before.append(-1)
        self.after.append(-1)
        series, key = _position(slug, created_at)
        row = self._series.setdefault(series, [])
        insort(row, (key, place))
        at = bisect_left(row, (key, place))
        if at > 0:
            self._join(row[at - 1][1], place)
        if at + 1 < len(row):
            self._join(place, row[at + 1][1])

    def remove(self, place: int, slug: str, created_at: int) -> None:
        """Take a page out of its row."""
        series, key = _position(slug, created_at)
        row = self._series[series]
        at = bisect_left(row, (key, place))
        del row[at]
        if not row:
            del self._series[series]
        before, after = int(self.before[place]), int(self.after[place])
        if before >= 0:
            self.after[before] = after
        if after >= 0:
            self.before[after] = before
        self.before[place] = self.after[place] = -1

    def _join(self, first: int, second: int) -> None:
        self.after[first] = second
        self.before[second] = first


def folder(slug: str) -> str:
    """The document that a page is part of: its folder, in `log/2026-05-08` with `2026-05`; "" at the top."""
    head, _, name = slug.rpartition("/")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return head
    upper = re.split(r"[-_.]", numbered[2])[:-1]
    return f"{head}/{numbered[1]}{'-'.join(upper)}" if upper else head


def _position(slug: str, created_at: int) -> tuple[str, Key]:
    head, _, name = slug.rpartition("/")
    numbers = tuple(int(digits) for digits in _DIGITS.findall(name))
    return head, (created_at, numbers, slug)
