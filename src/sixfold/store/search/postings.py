"""Packed posting lists: for each word the positions of its pages, and for each position its words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

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
_BATCH = 8  # pages from which sorting their words together takes less time
_WORD_BYTES = 300  # measured size of the Python objects of one word


class _List(Numbers):
    """The positions of a word in ascending order, without the bits of their blocks of 65,536 positions.

    `starts` contains the list index at which each block starts, from the second block to the last one in use.
    `repeated` contains the positions at which the word occurs more than once, with the count in the last 8
    bits.
    """

    __slots__ = ("repeated", "starts", "word")
    word: str  # empty if no page contains the word
    starts: Numbers | None
    repeated: Numbers | None

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

    def begin_block(self, block: int) -> None:
        """Start all blocks up to `block`, before the list has one of its positions."""
        if self.starts is None:
            self.starts = Numbers("I")
        while len(self.starts) < block:
            self.starts.append(len(self))

    def _find(self, position: int) -> tuple[int, bool]:
        block, low = position >> BLOCK_BITS, position & BLOCK_MASK
        if block:
            self.begin_block(block)
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


class _WordNumbers(dict[str, int]):
    """The numbers of words; an unknown word gets a number and an empty list."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[_List] = []  # by number
        self.renamed: set[int] = set()
        self.unused = FreeList()

    def __missing__(self, word: str) -> int:
        number = self.unused.take()
        if number == len(self.lists):
            self.lists.append(cast("_List", _List("H")))
        else:
            self.renamed.add(number)
        entry = self.lists[number]
        entry.word = word
        entry.starts = entry.repeated = None
        self[word] = number
        return number

    def release(self, number: int) -> None:
        """Release the number of a word that no page contains."""
        entry = self.lists[number]
        del self[entry.word]
        entry.word = ""
        self.unused.release(number)


class Postings:
    """An inverted index: two bytes for each word of a page, and about 1.5 in the list of the page's words.

    Replacing the words of a page updates only the lists of the words that were added, removed or counted
    differently, so the cost of an edit depends on the size of the change.
    """

    def __init__(self) -> None:
        self._numbers = _WordNumbers()
        self._lists = self._numbers.lists
        self._of = BytesColumn()  # by position: the numbers of its words
        self._last = -1  # the greatest position that was put
        self._count = 0  # number of postings

    def __getstate__(self) -> tuple[Any, ...]:
        columns = [
            _joined(code, [getattr(entry, name) if name else entry for entry in self._lists])
            for code, name in (("H", ""), ("I", "starts"), ("I", "repeated"))
        ]
        words = [entry.word for entry in self._lists]
        return words, columns, self._numbers.renamed, self._numbers.unused, self._of, self._last, self._count

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._numbers = _WordNumbers()
        words, columns, self._numbers.renamed, self._numbers.unused = state[:4]
        self._of, self._last, self._count = state[4:]
        self._numbers |= {word: number for number, word in enumerate(words) if word}
        self._lists = self._numbers.lists
        for word, *parts in zip(words, *(_separate(*column) for column in columns), strict=True):
            entry = cast("_List", _List("H"))
            self._lists.append(entry)
            entry.word = word
            entry.frombytes(parts[0])
            entry.starts, entry.repeated = (Numbers("I", part) if part else None for part in parts[1:])

    def put(self, position: int, words: Mapping[str, int]) -> None:
        """Replace the words of the page at `position`; `words` maps each word to its count."""
        self.put_many({position: words})

    def put_many(self, pages: Mapping[int, Mapping[str, int]]) -> None:
        """Replace the words of pages by position.

        Many pages behind the last position are added together, with one change of the list of each word.
        """
        self._count += sum(map(len, pages.values()))
        together = self._last if len(pages) >= _BATCH else max(pages, default=0)
        for position in sorted(pages):
            if position <= together:
                self._extend(position)
                old = _unpack(self._of[position])
                self._count -= len(old)
                self._of[position] = _pack(self._rewrite(position, old, pages[position]))
        new = sorted(position for position in pages if position > together)
        while new:
            in_block = bisect_right(new, new[0] | BLOCK_MASK)
            self._append(new[:in_block], [pages[position] for position in new[:in_block]])
            new = new[in_block:]

    def get(self, word: str) -> tuple[Positions, Floats] | None:
        """Return the positions of the pages with a word, and its counts; None for an unknown word."""
        number = self._numbers.get(word)
        if number is None:
            return None
        entry = self._lists[number]
        positions = entry.positions()
        # Another thread may change or empty the list meanwhile.
        repeated = entry.repeated
        packed = np.frombuffer(repeated.tobytes() if repeated is not None else b"", np.uint32)
        if not (len(packed) and len(positions)):
            return positions, np.ones(len(positions), np.float32)
        return positions, _times(positions, packed)

    def positions(self, word: str) -> Positions:
        """Return the positions of the pages that contain a word, in ascending order."""
        number = self._numbers.get(word)
        return np.zeros(0, np.int64) if number is None else self._lists[number].positions()

    def among(self, positions: Positions, word: str) -> Flags:
        """Return a flag for each of `positions`: whether its page contains the word."""
        containing = self.positions(word)
        if not len(containing):
            return np.zeros(len(positions), np.bool_)
        return containing.take(np.searchsorted(containing, positions), mode="clip") == positions

    def word(self, number: int) -> str:
        """Return the word with a number; an empty string if no page contains it."""
        return self._lists[number].word

    def words_from(self, first: int) -> Sequence[str]:
        """Return the words with the number `first` and higher numbers, in order."""
        return [entry.word for entry in self._lists[first:]]

    def take_renamed(self) -> Sequence[tuple[int, str]]:
        """Return the numbers that were reused since the last call, with their new words."""
        entries = [(number, self._lists[number].word) for number in self._numbers.renamed]
        self._numbers.renamed.clear()
        return entries

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._count * 7 // 2 + len(self._lists) * _WORD_BYTES + self._of.size

    def _append(self, positions: Sequence[int], pages: Sequence[Mapping[str, int]]) -> None:
        """Add pages of one block, in ascending order behind the last position."""
        lengths = np.fromiter(map(len, pages), np.int64, len(pages))
        total = int(lengths.sum())
        words = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(pages)), np.int64, total)
        times = np.fromiter(chain.from_iterable(page.values() for page in pages), np.int64, total)
        at = np.repeat(np.array(positions, np.int64), lengths)
        self._append_to_lists(words << 32 | at << 8 | np.minimum(times, _MAX_TIMES))
        packed, ends = _pack_pages(words, lengths)
        start = 0
        for position, end in zip(positions, ends, strict=True):
            self._extend(position)
            self._of[position] = packed[start:end]
            start = end

    def _extend(self, position: int) -> None:
        for new in range(self._last + 1, position + 1):
            self._of[new] = b""
            self._last = new

    def _append_to_lists(self, postings: Positions) -> None:
        """Add postings of one block: the number of a word, a position (24 bits) and a count (8 bits)."""
        postings.sort()
        places = postings.astype(np.uint32)  # without the words
        block = int(places[0]) >> 8 >> BLOCK_BITS if len(places) else 0
        added = (places >> 8 & BLOCK_MASK).astype(np.uint16).tobytes()
        for number, start, end in _runs(postings >> 32):
            if block:
                self._lists[number].begin_block(block)
            self._lists[number].frombytes(added[2 * start : 2 * end])
        several = (places & 255) > 1
        repeated = places[several].tobytes()
        for number, start, end in _runs(postings[several] >> 32):
            entry = self._lists[number]
            if entry.repeated is None:
                entry.repeated = Numbers("I")
            entry.repeated.frombytes(repeated[4 * start : 4 * end])

    def _rewrite(self, position: int, old: Collection[int], words: Mapping[str, int]) -> list[int]:
        new = {self._numbers[word]: min(times, _MAX_TIMES) for word, times in words.items()}
        before = set(old)
        for number, times in new.items():
            entry = self._lists[number]
            if number not in before or entry.times(position) != times:
                entry.set_position(position, times)
        for number in before - new.keys():
            self._take_out(number, position)
        return list(new)

    def _take_out(self, number: int, position: int) -> None:
        self._lists[number].remove_position(position)
        if not self._lists[number]:
            self._numbers.release(number)


def _joined(code: str, arrays: Sequence[Numbers | None]) -> tuple[str, Numbers, bytes]:
    """Return the size of the numbers, the length of each array, and all of them, to store them at once."""
    lengths = Numbers("I", (0 if part is None else len(part) for part in arrays))
    return code, lengths, b"".join(part for part in arrays if part is not None)


def _separate(code: str, lengths: Numbers, joined: bytes) -> Iterator[bytes]:
    start, size = 0, Numbers(code).itemsize
    for length in lengths:
        yield joined[start : start + length * size]
        start += length * size


def _runs(words: Positions) -> Iterator[tuple[int, int, int]]:
    """Yield each number of the sorted `words` with the start and the end of its run."""
    if not len(words):
        return
    starts = np.flatnonzero(np.append(True, words[1:] != words[:-1]))
    ends = np.append(starts[1:], len(words))
    yield from zip(words[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)


def _pack_pages(words: Positions, lengths: Positions) -> tuple[bytes, list[int]]:
    """Return what `_pack` returns for each page, one after the other, and the end of each."""
    page = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    words = np.sort(page << 32 | words)
    steps = np.diff(words, prepend=0)
    # The first number of a page is not a difference.
    steps = np.where(words >> 32 == np.append(0, words[:-1] >> 32), steps, words & 0xFFFFFFFF)
    sizes = np.ones(len(steps), np.int64)
    for bits in (7, 14, 21):
        sizes += steps >> bits > 0
    ends = np.append(0, np.cumsum(sizes))
    packed = np.zeros(int(ends[-1]), np.uint8)
    for byte in range(int(sizes.max(initial=0))):
        longer = sizes > byte
        more = np.where(sizes[longer] > byte + 1, _MORE, 0)
        packed[ends[:-1][longer] + byte] = steps[longer] >> 7 * byte & _SEVEN_BITS | more
    return packed.tobytes(), ends[np.cumsum(lengths)].tolist()


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
