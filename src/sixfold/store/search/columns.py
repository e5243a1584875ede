"""Growing columns of numbers, and packed lists of who has a word: the ground of the page index."""

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

MOST_PLACES = 1 << 24  # what three of a posting's four bytes can tell apart
NOBODY = -1  # in a column of places, where there is none
_MOST_TIMES = 255  # the fourth counts


class PackedColumn:
    """An array that grows as it is written; `values` is a view of what there is, good until it grows."""

    def __init__(self, kind: Any) -> None:
        self._buffer: NDArray[Any] = np.zeros(64, kind)
        self._length = 0

    def __setitem__(self, place: int, value: float) -> None:
        """Write one number; those between it and what there was are 0."""
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
        """All numbers so far."""
        return self._buffer[: self._length]


class FreeList:
    """Places from 0 on, of which those that were given back are taken first."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        """A place that nobody has; raises `OverflowError` where a posting could not tell it from others."""
        if self._free:
            return self._free.pop()
        if self._next == MOST_PLACES:
            raise OverflowError("an account's index has no room for more pages")
        self._next += 1
        return self._next - 1

    def give_back(self, place: int) -> None:
        """Nobody has it any more."""
        self._free.append(place)


class SharedBuffer:
    """The places of a room that each page has: as many as it asked for last."""

    def __init__(self) -> None:
        self._room = FreeList()
        self._of: dict[int, list[int]] = {}
        self.count = 0  # of places that some page has

    def of(self, page: int) -> Sequence[int]:
        """What a page has."""
        return self._of.get(page, ())

    def fit(self, page: int, count: int) -> tuple[Sequence[int], Sequence[int]]:
        """The places that a page has from now on, and those that it had too many."""
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
    _Numbers = array  # which takes no type at run time


class _List(_Numbers):
    """A word's places in ascending order, each with how often it stands there in its last eight bits."""

    __slots__ = ("number", "word")
    number: int
    word: str  # "" where no place has it any more


class Postings:
    """For each word the places that have it and how often, four bytes each; for each place its words so, too.

    A place that is written anew changes the lists of those words alone that are others now: nothing of the
    past is left in them, and an edit costs what it changes.
    """

    def __init__(self) -> None:
        self._lists: dict[str, _List] = {}
        self._numbered: list[_List] = []
        self._numbers = FreeList()
        self._of: list[bytes] = []  # by place: number and times of each word
        self._renamed: set[int] = set()
        self._count = 0  # of postings

    def put(self, place: int, words: Mapping[str, int]) -> None:
        """Let a place have these counted words, and no others."""
        self._count += len(words)
        if place == len(self._of):
            self._of.append(self._append(place << 8, words))
        else:
            old = {packed >> 8: packed & 255 for packed in array("I", self._of[place])}
            self._count -= len(old)
            self._of[place] = self._rewrite(place << 8, old, words)

    def get(self, word: str) -> tuple[Places, Floats] | None:
        """The places that have a word, and how often each; None for an unknown word."""
        found = self._lists.get(word)
        if found is None:
            return None
        packed = _copied(found)
        return (packed >> 8).astype(np.int64), (packed & 255).astype(np.float32)

    def places(self, word: str) -> Places:
        """The places that have a word, none for an unknown one."""
        found = self._lists.get(word)
        return np.zeros(0, np.int64) if found is None else (_copied(found) >> 8).astype(np.int64)

    def among(self, places: Places, word: str) -> Flags:
        """Which of some places have a word."""
        having = self.places(word)
        if not len(having):
            return np.zeros(len(places), np.bool_)
        return having.take(np.searchsorted(having, places), mode="clip") == places

    def word(self, number: int) -> str:
        """The word of a number; "" where no place has it any more."""
        return self._numbered[number].word

    def words_from(self, first: int) -> Sequence[str]:
        """The words by their numbers, without the `first` ones."""
        return [found.word for found in self._numbered[first:]]

    def renamed(self) -> Sequence[tuple[int, str]]:
        """The numbers that were given to other words since this was asked last, and their words."""
        found = [(number, self._numbered[number].word) for number in self._renamed]
        self._renamed.clear()
        return found

    @property
    def size(self) -> int:
        """About how many bytes."""
        return self._count * 9 + len(self._numbered) * 290 + len(self._of) * 48

    def _append(self, base: int, words: Mapping[str, int]) -> bytes:
        """A place behind all others has these words; gives their numbers and times."""
        packed: list[int] = []
        lists = self._lists
        for word, times in words.items():
            found = lists.get(word)
            if found is None:
                found = self._new(word)
            many = times if times < _MOST_TIMES else _MOST_TIMES
            found.append(base | many)
            packed.append(found.number << 8 | many)
        return array("I", packed).tobytes()

    def _rewrite(self, base: int, old: Mapping[int, int], words: Mapping[str, int]) -> bytes:
        """A place that had `old` numbers has these words now; gives their numbers and times."""
        known = [(self._lists.get(word) or self._new(word), times) for word, times in words.items()]
        new = {found.number: min(times, _MOST_TIMES) for found, times in known}
        for number, times in new.items() - old.items():
            found = self._numbered[number]
            at = bisect_left(found, base)
            if number in old:
                found[at] = base | times
            else:
                found.insert(at, base | times)
        for number in old.keys() - new.keys():
            self._take_out(number, base)
        return array("I", [number << 8 | times for number, times in new.items()]).tobytes()

    def _new(self, word: str) -> _List:
        """An empty list for a word."""
        number = self._numbers.take()
        if number == len(self._numbered):
            self._numbered.append(cast("_List", _List("I")))
        else:
            self._renamed.add(number)
        found = self._lists[word] = self._numbered[number]
        found.number, found.word = number, word
        return found

    def _take_out(self, number: int, base: int) -> None:
        found = self._numbered[number]
        del found[bisect_left(found, base)]
        if not found:
            del self._lists[found.word]
            found.word = ""
            self._numbers.give_back(number)


def _copied(found: _List) -> NDArray[np.uint32]:
    """A list as it is now: it may grow while it is read."""
    return np.frombuffer(found.tobytes(), np.uint32)
