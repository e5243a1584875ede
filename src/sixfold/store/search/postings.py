"""Packed posting lists: for each word the places that contain it, and for each place its words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np

from sixfold.store.search.columns import Flags, Floats, FreeList, Places
from sixfold.store.search.strings import BytesColumn, Numbers

_BLOCK_BITS = 16  # a posting has the last 16 bits of its place
_BLOCK_MASK = (1 << _BLOCK_BITS) - 1
_MAX_TIMES = 255
_SEVEN_BITS, _MORE = 127, 128
_WORD_BYTES = 300  # measured size of the Python objects of one word


class _List(Numbers):
    """The places of a word in ascending order, without the bits of their blocks of 65,536 places.

    `starts` contains the position of the first place of each block, from the second block to the last one
    with a place. `repeated` contains the places in which the word occurs more than once, with the count in
    the last 8 bits.
    """

    __slots__ = ("number", "repeated", "starts", "word")
    number: int
    word: str  # empty if no page contains the word
    starts: Numbers | None
    repeated: Numbers | None

    def append_place(self, place: int, times: int) -> None:
        """Add a place that is greater than all places in the list."""
        if place > _BLOCK_MASK:
            self._begin_block(place >> _BLOCK_BITS)
        self.append(place & _BLOCK_MASK)
        if times > 1:
            if self.repeated is None:
                self.repeated = Numbers("I")
            self.repeated.append(place << 8 | times)

    def set_place(self, place: int, times: int) -> None:
        """Add a place, or change its count."""
        at, found = self._find(place)
        if not found:
            self.insert(at, place & _BLOCK_MASK)
            self._shift(place >> _BLOCK_BITS, 1)
        self._set_times(place, times)

    def remove_place(self, place: int) -> None:
        at, _ = self._find(place)
        del self[at]
        self._shift(place >> _BLOCK_BITS, -1)
        self._set_times(place, 1)

    def times(self, place: int) -> int:
        """Return how often a page contains the word."""
        repeated = self.repeated
        if repeated is None:
            return 1
        at = bisect_left(repeated, place << 8)
        return repeated[at] & 255 if at < len(repeated) and repeated[at] >> 8 == place else 1

    def places(self) -> Places:
        # The list is copied, as it may grow while it is read.
        places = np.frombuffer(self.tobytes(), np.uint16).astype(np.int64)
        if self.starts is not None:
            for block, start in enumerate(self.starts, 1):
                end = self.starts[block] if block < len(self.starts) else None
                places[start:end] += block << _BLOCK_BITS
        return places

    def _begin_block(self, block: int) -> None:
        if self.starts is None:
            self.starts = Numbers("I")
        while len(self.starts) < block:
            self.starts.append(len(self))

    def _find(self, place: int) -> tuple[int, bool]:
        block, low = place >> _BLOCK_BITS, place & _BLOCK_MASK
        if block:
            self._begin_block(block)
        starts = self.starts or ()
        begin = starts[block - 1] if block else 0
        end = starts[block] if block < len(starts) else len(self)
        at = bisect_left(self, low, begin, end)
        return at, at < end and self[at] == low

    def _shift(self, block: int, by: int) -> None:
        if self.starts is not None:
            for later in range(block, len(self.starts)):
                self.starts[later] += by

    def _set_times(self, place: int, times: int) -> None:
        repeated = self.repeated
        if repeated is None:
            if times == 1:
                return
            repeated = self.repeated = Numbers("I")
        at = bisect_left(repeated, place << 8)
        exists = at < len(repeated) and repeated[at] >> 8 == place
        if exists and times == 1:
            del repeated[at]
            if not repeated:
                self.repeated = None
        elif exists:
            repeated[at] = place << 8 | times
        elif times > 1:
            repeated.insert(at, place << 8 | times)


class Postings:
    """An inverted index: two bytes for each word of a place, and about 1.5 in the list of the place's words.

    Replacing the words of a place updates only the lists of words that were added, removed or whose count
    changed, so the cost of an edit depends on the size of the change.
    """

    def __init__(self) -> None:
        self._lists: dict[str, _List] = {}
        self._numbered: list[_List] = []
        self._numbers = FreeList()
        self._of = BytesColumn()  # by place: the numbers of its words
        self._last = -1  # the greatest place that was put
        self._renamed: set[int] = set()
        self._count = 0  # number of postings

    def put(self, place: int, words: Mapping[str, int]) -> None:
        """Replace the words of the page at `place`; `words` maps each word to its count."""
        self._count += len(words)
        if place > self._last:
            for skipped in range(self._last + 1, place):
                self._of[skipped] = b""
            self._of[place] = _pack(self._append(place, words))
            self._last = place
        else:
            old = _unpack(self._of[place])
            self._count -= len(old)
            self._of[place] = _pack(self._rewrite(place, old, words))

    def get(self, word: str) -> tuple[Places, Floats] | None:
        """Return the places that contain a word, with its count in each; None for an unknown word."""
        entry = self._lists.get(word)
        if entry is None:
            return None
        places = entry.places()
        times = np.ones(len(places), np.float32)
        if entry.repeated is not None:
            packed = np.frombuffer(entry.repeated.tobytes(), np.uint32)
            # Another thread may have changed the list in between.
            np.put(times, np.searchsorted(places, packed >> 8), packed & 255, mode="clip")
        return places, times

    def places(self, word: str) -> Places:
        """Return the places of the pages that contain a word, in ascending order."""
        entry = self._lists.get(word)
        return np.zeros(0, np.int64) if entry is None else entry.places()

    def among(self, places: Places, word: str) -> Flags:
        """Return a flag for each of `places`: whether its page contains the word."""
        containing = self.places(word)
        if not len(containing):
            return np.zeros(len(places), np.bool_)
        return containing.take(np.searchsorted(containing, places), mode="clip") == places

    def word(self, number: int) -> str:
        """Return the word with a number; an empty string if no page contains it."""
        return self._numbered[number].word

    def words_from(self, first: int) -> Sequence[str]:
        """Return the words with the number `first` and higher numbers, in order."""
        return [entry.word for entry in self._numbered[first:]]

    def take_renamed(self) -> Sequence[tuple[int, str]]:
        """Return the numbers that were reused since the last call, with their new words."""
        entries = [(number, self._numbered[number].word) for number in self._renamed]
        self._renamed.clear()
        return entries

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._count * 7 // 2 + len(self._numbered) * _WORD_BYTES + self._of.size

    def _append(self, place: int, words: Mapping[str, int]) -> list[int]:
        numbers: list[int] = []
        lists, first_block = self._lists, place <= _BLOCK_MASK
        for word, times in words.items():
            entry = lists.get(word)
            if entry is None:
                entry = self._new(word)
            if times == 1 and first_block:
                entry.append(place)
            else:
                entry.append_place(place, min(times, _MAX_TIMES))
            numbers.append(entry.number)
        return numbers

    def _rewrite(self, place: int, old: Collection[int], words: Mapping[str, int]) -> list[int]:
        known = [(self._lists.get(word) or self._new(word), times) for word, times in words.items()]
        new = {entry.number: min(times, _MAX_TIMES) for entry, times in known}
        before = set(old)
        for number, times in new.items():
            entry = self._numbered[number]
            if number not in before or entry.times(place) != times:
                entry.set_place(place, times)
        for number in before - new.keys():
            self._take_out(number, place)
        return list(new)

    def _new(self, word: str) -> _List:
        number = self._numbers.take()
        if number == len(self._numbered):
            self._numbered.append(cast("_List", _List("H")))
        else:
            self._renamed.add(number)
        entry = self._lists[word] = self._numbered[number]
        entry.number, entry.word = number, word
        entry.starts = entry.repeated = None
        return entry

    def _take_out(self, number: int, place: int) -> None:
        entry = self._numbered[number]
        entry.remove_place(place)
        if not entry:
            del self._lists[entry.word]
            entry.word = ""
            self._numbers.release(number)


def _pack(numbers: list[int]) -> bytes:
    """Return the differences of the sorted numbers, seven bits per byte; each ends with a byte below 128."""
    numbers.sort()
    packed: list[int] = []
    before = 0
    for number in numbers:
        step = number - before
        before = number
        while step > _SEVEN_BITS:
            packed.append(step & _SEVEN_BITS | _MORE)
            step >>= 7
        packed.append(step)
    return bytes(packed)


def _unpack(packed: bytes) -> list[int]:
    numbers: list[int] = []
    number = shift = 0
    for byte in packed:
        number += (byte & _SEVEN_BITS) << shift
        shift += 7
        if byte < _MORE:
            numbers.append(number)
            shift = 0
    return numbers
