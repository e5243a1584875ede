"""Growing columns of numbers, and packed lists of who has a word: the ground of the page index."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MOST_PLACES = 1 << 24  # what three of a posting's four bytes can tell apart
NOBODY = -1  # in a column of places, where there is none
_MOST_TIMES = 255  # the fourth counts


class Column:
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


class Room:
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


class Shares:
    """The places of a room that each page has: as many as it asked for last."""

    def __init__(self) -> None:
        self._room = Room()
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


class Postings:
    """For each word the places that have it and how often, four bytes each; for each place its words so, too.

    A place that is written anew changes the lists of those words alone that are others now: nothing of the
    past is left in them, and an edit costs what it changes.
    """

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._words: list[str] = []  # by number, "" for none
        self._lists: list[array[int]] = []  # by number: place and times, in ascending order
        self._numbers = Room()
        self._of: list[bytes] = []  # by place: number and times of each word
        self._renamed: set[int] = set()
        self._count = 0  # of postings

    def put(self, place: int, words: Mapping[str, int]) -> None:
        """Let a place have these counted words, and no others."""
        base, counts = place << 8, words.values()
        numbers = self._numbers_of(words)
        if max(counts, default=0) > _MOST_TIMES:
            counts = [min(times, _MOST_TIMES) for times in counts]
        new = array("I", [of << 8 | times for of, times in zip(numbers, counts, strict=True)])
        self._count += len(new)
        if place == len(self._of):  # behind all others
            lists = self._lists
            for of, times in zip(numbers, counts, strict=True):
                lists[of].append(base | times)
            self._of.append(new.tobytes())
        else:
            old = array("I", self._of[place])
            self._count -= len(old)
            self._rewrite(base, _unpacked(old), _unpacked(new))
            self._of[place] = new.tobytes()

    def get(self, word: str) -> tuple[Places, Floats] | None:
        """The places that have a word, and how often each; None for an unknown word."""
        number = self._number.get(word)
        if number is None:
            return None
        packed = self._copied(number)
        return (packed >> 8).astype(np.int64), (packed & 255).astype(np.float32)

    def places(self, word: str) -> Places:
        """The places that have a word, none for an unknown one."""
        number = self._number.get(word)
        if number is None:
            return np.zeros(0, np.int64)
        return (self._copied(number) >> 8).astype(np.int64)

    def among(self, places: Places, word: str) -> Flags:
        """Which of some places have a word."""
        having = self.places(word)
        if not len(having):
            return np.zeros(len(places), np.bool_)
        return having.take(np.searchsorted(having, places), mode="clip") == places

    def word(self, number: int) -> str:
        """The word of a number; "" where no place has it any more."""
        return self._words[number]

    def words_from(self, first: int) -> Sequence[str]:
        """The words by their numbers, without the `first` ones."""
        return self._words[first:]

    def renamed(self) -> Sequence[tuple[int, str]]:
        """The numbers that were given to other words since this was asked last, and their words."""
        found = [(number, self._words[number]) for number in self._renamed]
        self._renamed.clear()
        return found

    @property
    def size(self) -> int:
        """About how many bytes."""
        return self._count * 9 + len(self._words) * 290 + len(self._of) * 48

    def _numbers_of(self, words: Collection[str]) -> Sequence[int]:
        """The numbers of some words; a new one gets its own."""
        known = list(map(self._number.get, words))
        pairs = zip(words, known, strict=True)
        return [self._numbered(word) if of is None else of for word, of in pairs]

    def _numbered(self, word: str) -> int:
        number = self._number[word] = self._numbers.take()
        if number == len(self._words):
            self._words.append(word)
            self._lists.append(array("I"))
        else:
            self._words[number] = word
            self._renamed.add(number)
        return number

    def _rewrite(self, base: int, old: Mapping[int, int], new: Mapping[int, int]) -> None:
        """A place has other numbers now, or as often as not."""
        for number, times in new.items() - old.items():
            found = self._lists[number]
            at = bisect_left(found, base)
            if number in old:
                found[at] = base | times
            else:
                found.insert(at, base | times)
        for number in old.keys() - new.keys():
            self._take_out(number, base)

    def _take_out(self, number: int, base: int) -> None:
        found = self._lists[number]
        del found[bisect_left(found, base)]
        if not found:
            del self._number[self._words[number]]
            self._words[number] = ""
            self._numbers.give_back(number)

    def _copied(self, number: int) -> NDArray[np.uint32]:
        """A list as it is now: it may grow while it is read."""
        return np.frombuffer(self._lists[number].tobytes(), np.uint32)


def _unpacked(packed: array[int]) -> Mapping[int, int]:
    return {one >> 8: one & 255 for one in packed}
