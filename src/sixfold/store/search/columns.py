"""Growing columns of numbers, and packed lists of who has a word: the ground of the page index."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MOST_PLACES = 1 << 24  # what three of a posting's four bytes can tell apart
_MOST_TIMES = 255  # the fourth counts


class Column:
    """An array that grows by appending; `values` is a view of what there is, good until the next append."""

    def __init__(self, kind: Any) -> None:
        self._buffer: NDArray[Any] = np.zeros(64, kind)
        self._length = 0

    def append(self, value: float) -> int:
        """Add one number; gives its place."""
        if self._length == len(self._buffer):
            grown = np.zeros(2 * self._length, self._buffer.dtype)
            grown[: self._length] = self._buffer
            self._buffer = grown
        self._buffer[self._length] = value
        self._length += 1
        return self._length - 1

    def __setitem__(self, place: int, value: float) -> None:
        self._buffer[place] = value

    def __getitem__(self, place: int) -> Any:
        return self._buffer[place]

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """All numbers so far."""
        return self._buffer[: self._length]


class Lists:
    """For each name the places that bear it, four bytes each."""

    def __init__(self) -> None:
        self._of: dict[str, array[int]] = {}

    def add(self, place: int, names: Iterable[str]) -> None:
        """Note the names of a place."""
        for name in names:
            found = self._of.get(name)
            if found is None:
                found = self._of[name] = array("I")
            found.append(place)

    def get(self, name: str) -> Places:
        """The places that bear a name, none for an unknown one."""
        found = self._of.get(name)
        return np.frombuffer(found.tobytes() if found is not None else b"", np.uint32).astype(np.int64)


class Postings:
    """For each word the places that have it and how often, four bytes each."""

    def __init__(self) -> None:
        self._of: dict[str, array[int]] = {}
        self.count = 0

    def add(self, place: int, words: Mapping[str, int]) -> None:
        """Note the counted words of a place; places come in ascending order."""
        base = place << 8
        of = self._of
        for word, times in words.items():
            found = of.get(word)
            if found is None:
                found = of[word] = array("I")
            found.append(base | (times if times < _MOST_TIMES else _MOST_TIMES))
        self.count += len(words)

    def get(self, word: str) -> tuple[Places, Floats] | None:
        """The places that have a word, and how often each; None for an unknown word."""
        found = self._of.get(word)
        if found is None:
            return None
        packed = np.frombuffer(found.tobytes(), np.uint32)  # a copy: the list may grow while it is read
        return (packed >> 8).astype(np.int64), (packed & 255).astype(np.float32)

    def words_from(self, first: int) -> list[str]:
        """The words, in the order of their coming, without the `first` ones."""
        return list(islice(self._of, first, None)) if first < len(self._of) else []

    @property
    def size(self) -> int:
        """About how many bytes."""
        return self.count * 5 + len(self._of) * 240
