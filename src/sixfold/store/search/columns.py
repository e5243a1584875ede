"""Growing numeric columns and packed posting lists, on which the page index is built.

The *place* of a page is its index position, a number from 0 on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MOST_PLACES = 1 << 24  # a posting has three bytes for the place
NOBODY = -1  # value of an empty entry in a column of places
_MOST_TIMES = 255  # and one for the count


class PackedColumn:
    """An array that grows on writes; `values` is a view that is valid until the next growth."""

    def __init__(self, kind: Any) -> None:
        self._buffer: NDArray[Any] = np.zeros(64, kind)
        self._length = 0

    def __setitem__(self, place: int, value: float) -> None:
        """Set one number; skipped entries become 0."""
        if place >= self._length:
            self._length = place + 1
            if place >= len(self._buffer):
                grown = np.zeros(2 * self._length, self._buffer.dtype)
                grown[: len(self._buffer)] = self._buffer
                self._buffer = grown
        self._buffer[place] = value

    def __getitem__(self, place: int) -> Any:
        return self._buffer[place]

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """View of all numbers."""
        return self._buffer[: self._length]


class FreeList:
    """Allocator of places from 0 on, which reuses released ones first."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        """Allocate a place; raises `OverflowError` above `MOST_PLACES`."""
        if self._free:
            return self._free.pop()
        if self._next == MOST_PLACES:
            raise OverflowError(f"an account's index must have at most {MOST_PLACES:,} pages")
        self._next += 1
        return self._next - 1

    def give_back(self, place: int) -> None:
        self._free.append(place)


class SharedBuffer:
    """Allocation of rows of a shared array to pages."""

    def __init__(self) -> None:
        self._room = FreeList()
        self._of: dict[int, list[int]] = {}
        self.count = 0  # allocated rows

    def of(self, page: int) -> Sequence[int]:
        return self._of.get(page, ())

    def fit(self, page: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
        """Change the number of rows of a page; returns its rows and the released ones."""
        mine = self._of.pop(page, [])
        self.count += count - len(mine)
        spare = mine[count:]
        for place in spare:
            self._room.give_back(place)
        mine = mine[:count] + [self._room.take() for _ in range(count - len(mine))]
        if mine:
            self._of[page] = mine
        return mine, spare


if TYPE_CHECKING:
    _Numbers = array[int]
else:
    _Numbers = array  # not generic at run time


class _List(_Numbers):
    """Places of a word in ascending order, each with its count in the last eight bits."""

    __slots__ = ("number", "word")
    number: int
    word: str  # "" if no page contains it


class Postings:
    """Inverted index: for each word its places and counts, four bytes each, and for each place its words.

    Replacing the words of a place updates only the lists of words that were added, removed or whose count
    changed, so the cost of an edit depends on the size of the change.
    """

    def __init__(self) -> None:
        self._lists: dict[str, _List] = {}
        self._numbered: list[_List] = []
        self._numbers = FreeList()
        self._of: list[bytes] = []  # by place: number and count of each word
        self._renamed: set[int] = set()
        self._count = 0  # number of postings

    def put(self, place: int, words: Mapping[str, int]) -> None:
        """Replace the words of the page at `place` by `words`, a count for each word."""
        self._count += len(words)
        if place == len(self._of):
            self._of.append(self._append(place << 8, words))
        else:
            old = {packed >> 8: packed & 255 for packed in array("I", self._of[place])}
            self._count -= len(old)
            self._of[place] = self._rewrite(place << 8, old, words)

    def get(self, word: str) -> tuple[Places, Floats] | None:
        """Return the places that contain a word and its count in each, or None if it is unknown."""
        entry = self._lists.get(word)
        if entry is None:
            return None
        packed = _copied(entry)
        return (packed >> 8).astype(np.int64), (packed & 255).astype(np.float32)

    def places(self, word: str) -> Places:
        """Return the index positions of the pages that contain a word, in ascending order."""
        entry = self._lists.get(word)
        return np.zeros(0, np.int64) if entry is None else (_copied(entry) >> 8).astype(np.int64)

    def among(self, places: Places, word: str) -> Flags:
        """Return a flag for each of `places`: whether its page contains the word."""
        having = self.places(word)
        if not len(having):
            return np.zeros(len(places), np.bool_)
        return having.take(np.searchsorted(having, places), mode="clip") == places

    def word(self, number: int) -> str:
        """Return the word with a number, or "" if no page contains it."""
        return self._numbered[number].word

    def words_from(self, first: int) -> Sequence[str]:
        """Return the words in the order of their numbers, from number `first` on."""
        return [entry.word for entry in self._numbered[first:]]

    def renamed(self) -> Sequence[tuple[int, str]]:
        """Return the numbers that were reused since the last call, with their new words."""
        entries = [(number, self._numbered[number].word) for number in self._renamed]
        self._renamed.clear()
        return entries

    @property
    def size(self) -> int:
        """Estimated bytes of memory."""
        return self._count * 9 + len(self._numbered) * 290 + len(self._of) * 48

    def _append(self, base: int, words: Mapping[str, int]) -> bytes:
        packed: list[int] = []
        lists = self._lists
        for word, times in words.items():
            entry = lists.get(word)
            if entry is None:
                entry = self._new(word)
            many = times if times < _MOST_TIMES else _MOST_TIMES
            entry.append(base | many)
            packed.append(entry.number << 8 | many)
        return array("I", packed).tobytes()

    def _rewrite(self, base: int, old: Mapping[int, int], words: Mapping[str, int]) -> bytes:
        known = [(self._lists.get(word) or self._new(word), times) for word, times in words.items()]
        new = {entry.number: min(times, _MOST_TIMES) for entry, times in known}
        for number, times in new.items() - old.items():
            entry = self._numbered[number]
            at = bisect_left(entry, base)
            if number in old:
                entry[at] = base | times
            else:
                entry.insert(at, base | times)
        for number in old.keys() - new.keys():
            self._take_out(number, base)
        return array("I", [number << 8 | times for number, times in new.items()]).tobytes()

    def _new(self, word: str) -> _List:
        number = self._numbers.take()
        if number == len(self._numbered):
            self._numbered.append(cast("_List", _List("I")))
        else:
            self._renamed.add(number)
        entry = self._lists[word] = self._numbered[number]
        entry.number, entry.word = number, word
        return entry

    def _take_out(self, number: int, base: int) -> None:
        entry = self._numbered[number]
        del entry[bisect_left(entry, base)]
        if not entry:
            del self._lists[entry.word]
            entry.word = ""
            self._numbers.give_back(number)


def _copied(entry: _List) -> NDArray[np.uint32]:
    """Copy a list, which may grow while it is read."""
    return np.frombuffer(entry.tobytes(), np.uint32)
