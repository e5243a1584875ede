"""Counts attempts of any number of keys in fixed memory, so that no flood of keys makes it forget one."""

from __future__ import annotations

import hashlib
import math
import secrets
from array import array
from collections.abc import Callable
from typing import NamedTuple

from sixfold import errors

_ROWS, _WIDTH = 4, 65_536
_MAX_COUNT = 65_535


class Spent(NamedTuple):
    """Where an attempt was counted."""

    window: int
    cells: tuple[int, ...]


class Attempts:
    """At most `limit` attempts per key in each window of `seconds`; `clock` gives seconds that never go back.

    A count-min sketch: a key counts in one cell of each row, and its count is the least of them. It is never
    too low. It is too high where each of its cells is also another key's, for one key in 2,500 when 10,000
    others have used up their attempts. Which cells those are is secret.
    """

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._ends = -math.inf
        self._window = 0
        self._rows: list[array[int]] = []

    def spend(self, key: str) -> Spent:
        """Count one attempt and return where; raises `TooManyRequests` when there were too many."""
        moment = self._clock()
        if moment >= self._ends:
            self._ends = moment + self._seconds
            self._window += 1
            self._rows = [array("H", bytes(2 * _WIDTH)) for _ in range(_ROWS)]
        cells = self._cells(key)
        if min(row[cell] for row, cell in zip(self._rows, cells, strict=True)) >= self._limit:
            raise errors.TooManyRequests(
                "Too many attempts: wait a little", retry_after=max(1, math.ceil(self._ends - moment))
            )
        for row, cell in zip(self._rows, cells, strict=True):
            row[cell] = min(_MAX_COUNT, row[cell] + 1)
        return Spent(self._window, cells)

    def give_back(self, spent: Spent) -> None:
        """Take off the count an attempt that was no failure."""
        if spent.window == self._window:
            for row, cell in zip(self._rows, spent.cells, strict=True):
                row[cell] = max(0, row[cell] - 1)

    def _cells(self, key: str) -> tuple[int, ...]:
        name = key.encode("utf-8", "replace")
        digest = hashlib.blake2b(name, key=self._secret, digest_size=2 * _ROWS).digest()
        return tuple(int.from_bytes(digest[at : at + 2]) for at in range(0, 2 * _ROWS, 2))
