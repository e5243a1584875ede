"""Packed posting lists: for each word the positions of its pages, and for each position its words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sixfold.store.search.columns import Flags, Floats, FreeList, Positions
from sixfold.store.search.strings import BytesColumn, Numbers

BLOCK_BITS = 16  # a posting has the last 16 bits of its position
BLOCK_MASK = (1 << BLOCK_BITS) - 1
_MAX_TIMES = 255
_SEVEN_BITS, _MORE = 127, 128
# A binary search takes as long as clearing and reading about this many numbers.
_SCATTER_SHARE = 128
_WORD_BYTES = 300  # measured size of the Python objects of one word


class _List(Numbers):
    """The positions of a word in ascending order, without the bits of their blocks of 65,536 positions.

    `starts` contains the list index at which each block starts, from the second block to the last one in use.
    `repeated` contains the positions at which the word occurs more than once, with the count in the last 8
    bits.
    """

    __slots__ = ("number", "repeated", "starts", "word")
    number: int
    word: str  # empty if no page contains the word
    starts: Numbers | None
    repeated: Numbers | None

    def append_position(self, position: int, times: int) -> None:
        """Add a position that is greater than all positions in the list."""
        if position > BLOCK_MASK:
            self._begin_block(position >> BLOCK_BITS)
        self.append(position & BLOCK_MASK)
        if times > 1:
            if self.repeated is None:
                self.repeated = Numbers("I")
            self.repeated.append(position << 8 | times)

    def set_position(self, position: int, times: int) -> None:
        """Add a position, or change its count."""
        at, found = self._find(position)
        if not found:
            self.insert(at, position & BLOCK_MASK)
            self._shift(position >> BLOCK_BITS, 1)
        self._set_times(position, times)

    def remove_position(self, position: int) -> None:
        at, _ = self._find(position)
        del self[at]
        self._shift(position >> BLOCK_BITS, -1)
        self._set_times(position, 1)

    def times(self, position: int) -> int:
        """Return how often a page contains the word."""
        repeated = self.repeated
        if repeated is None:
            return 1
        at = bisect_left(repeated, position << 8)
        return repeated[at] & 255 if at < len(repeated) and repeated[at] >> 8 == position else 1

    def positions(self) -> Positions:
        # The list is copied, as it may grow while it is read.
        positions = np.frombuffer(self.tobytes(), np.uint16).astype(np.int64)
        if self.starts is not None:
            for block, start in enumerate(self.starts, 1):
                end = self.starts[block] if block < len(self.starts) else None
                positions[start:end] += block << BLOCK_BITS
        return positions

    def _begin_block(self, block: int) -> None:
        if self.starts is None:
            self.starts = Numbers("I")
        while len(self.starts) < block:
            self.starts.append(len(self))

    def _find(self, position: int) -> tuple[int, bool]:
        block, low = position >> BLOCK_BITS, position & BLOCK_MASK
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

    def _set_times(self, position: int, times: int) -> None:
        repeated = self.repeated
        if repeated is None:
            if times == 1:
                return
            repeated = self.repeated = Numbers("I")
        at = bisect_left(repeated, position << 8)
        exists = at < len(repeated) and repeated[at] >> 8 == position
        if exists and times == 1:
            del repeated[at]
            if not repeated:
                self.repeated = None
        elif exists:
            repeated[at] = position << 8 | times
        elif times > 1:
            repeated.insert(at, position << 8 | times)


class Postings:
    """An inverted index: two bytes for each word of a page, and about 1.5 in the list of the page's words.

    Replacing the words of a page updates only the lists of the words that were added, removed or counted
    differently, so the cost of an edit depends on the size of the change.
    """

    def __init__(self) -> None:
        self._lists: dict[str, _List] = {}
        self._numbered: list[_List] = []
        self._numbers = FreeList()
        self._of = BytesColumn()  # by position: the numbers of its words
        self._last = -1  # the greatest position that was put
        self._renamed: set[int] = set()
        self._count = 0  # number of postings

    def put(self, position: int, words: Mapping[str, int]) -> None:
        """Replace the words of the page at `position`; `words` maps each word to its count."""
        self._count += len(words)
        if position > self._last:
            for skipped in range(self._last + 1, position):
                self._of[skipped] = b""
            self._of[position] = _pack(self._append(position, words))
            self._last = position
        else:
            old = _unpack(self._of[position])
            self._count -= len(old)
            self._of[position] = _pack(self._rewrite(position, old, words))

    def get(self, word: str) -> tuple[Positions, Floats] | None:
        """Return the positions of the pages with a word, and its counts; None for an unknown word."""
        entry = self._lists.get(word)
        if entry is None:
            return None
        positions = entry.positions()
        # Another thread may change or empty the list meanwhile.
        repeated = entry.repeated
        packed = np.frombuffer(repeated.tobytes() if repeated is not None else b"", np.uint32)
        if not (len(packed) and len(positions)):
            return positions, np.ones(len(positions), np.float32)
        return positions, _times(positions, packed)

    def positions(self, word: str) -> Positions:
        """Return the positions of the pages that contain a word, in ascending order."""
        entry = self._lists.get(word)
        return np.zeros(0, np.int64) if entry is None else entry.positions()

    def among(self, positions: Positions, word: str) -> Flags:
        """Return a flag for each of `positions`: whether its page contains the word."""
        containing = self.positions(word)
        if not len(containing):
            return np.zeros(len(positions), np.bool_)
        return containing.take(np.searchsorted(containing, positions), mode="clip") == positions

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

    def _append(self, position: int, words: Mapping[str, int]) -> list[int]:
        numbers: list[int] = []
        lists, first_block = self._lists, position <= BLOCK_MASK
        for word, times in words.items():
            entry = lists.get(word)
            if entry is None:
                entry = self._new(word)
            if times == 1 and first_block:
                entry.append(position)
            else:
                entry.append_position(position, min(times, _MAX_TIMES))
            numbers.append(entry.number)
        return numbers

    def _rewrite(self, position: int, old: Collection[int], words: Mapping[str, int]) -> list[int]:
        known = [(self._lists.get(word) or self._new(word), times) for word, times in words.items()]
        new = {entry.number: min(times, _MAX_TIMES) for entry, times in known}
        before = set(old)
        for number, times in new.items():
            entry = self._numbered[number]
            if number not in before or entry.times(position) != times:
                entry.set_position(position, times)
        for number in before - new.keys():
            self._take_out(number, position)
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

    def _take_out(self, number: int, position: int) -> None:
        entry = self._numbered[number]
        entry.remove_position(position)
        if not entry:
            del self._lists[entry.word]
            entry.word = ""
            self._numbers.release(number)


def _times(positions: Positions, packed: NDArray[np.uint32]) -> Floats:
    """Return the counts of a word at `positions`; `packed` has those above 1, as in `_List.repeated`."""
    repeated, counts = (packed >> 8).astype(np.int64), packed & 255
    # The list may have changed between the two copies.
    length = int(max(positions[-1], repeated[-1])) + 1
    if len(packed) * _SCATTER_SHARE < length:
        times = np.ones(len(positions), np.float32)
        np.put(times, np.searchsorted(positions, repeated), counts, mode="clip")
        return times
    scattered = np.ones(length, np.float32)
    scattered[repeated] = counts
    return scattered.take(positions)


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
