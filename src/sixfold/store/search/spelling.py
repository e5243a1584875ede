"""Indexed words that are spelled similarly to an unknown word.

For each word, its length and a bit mask of its letters are stored, so that one pass of numpy excludes all but
a few words before they are compared letter by letter. These numbers are computed at the first search, and
later for new words only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sixfold.store.search.postings import Postings

_LONGEST = 24  # letters; longer words are not compared
_EXCHANGED, _LONG = 7, 8  # minimum letters for a changed letter, and for a changed first letter
_AT_ONCE = 1 << 14  # words per batch
_WORD_BYTES = 5  # two numbers
# The limit on the work of one search, about 30 ms: a unit is one word that is compared letter by letter, or
# the numbers of 64 words.
_MAX_UNITS = 50_000
_NEAR_UNITS, _YIELDED_UNITS, _WORDS_PER_UNIT = 8, 8, 64


class Spellings:
    """The words of postings, with the set of letters of each."""

    def __init__(self, words: Postings) -> None:
        self._of = words
        self._length = np.zeros(0, np.uint8)
        self._letters = np.zeros(0, np.uint32)
        self.units = _MAX_UNITS

    def begin(self) -> None:
        """Begin a search with a new limit on its work, after which no more words are yielded."""
        self.units = _MAX_UNITS

    def near(self, word: str, edits: int) -> Iterator[str]:
        """Yield the words that are exactly `edits` edits away from a word.

        An edit adds, removes or replaces a letter, or swaps two. A replaced letter turns most short words
        into other words, so it counts from seven letters on. Only one edit, of a long word, may be at its
        first letter.
        """
        if len(word) > _LONGEST:
            return
        if not self._may_scan():
            return
        apart = np.abs(self._length.astype(np.int16) - len(word))
        most = 2 * edits - apart if len(word) >= _EXCHANGED else np.where(apart > 1, -1, apart)
        first = "" if edits == 1 and len(word) >= _LONG else word[0]
        similar = np.bitwise_count(self._letters ^ _letters([word])[0]) <= most
        for at in self._limited(similar, _NEAR_UNITS):
            candidate = self._of.word(at)
            if candidate.startswith(first) and distance(word, candidate, edits) == edits:
                yield candidate

    def containing(self, part: str) -> Iterator[str]:
        """Yield the words that contain a string."""
        if not self._may_scan():
            return
        needed = _letters([part])[0]
        # Only the letters at the beginning of long words are stored.
        may = (self._letters & needed == needed) | (self._length > _LONGEST)
        for at in self._limited(may & (self._length > len(part)), 1):
            if part in (candidate := self._of.word(at)):
                self.units -= _YIELDED_UNITS
                yield candidate

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return len(self._length) * _WORD_BYTES

    def _may_scan(self) -> bool:
        """Return whether the numbers of all words may be compared, and count that work."""
        self.catch_up()
        self.units -= len(self._length) // _WORDS_PER_UNIT
        return self.units > 0

    def _limited(self, flags: NDArray[np.bool_], units: int) -> Iterator[int]:
        """Yield the numbers of the flagged words until the limit on the work is reached."""
        for at in np.flatnonzero(flags)[: max(0, self.units) // units].tolist():
            if self.units <= 0:
                return
            self.units -= units
            yield at

    def catch_up(self) -> None:
        """Read the words that are new or have been renamed."""
        for number, word in self._of.take_renamed():
            if number < len(self._length):
                self._length[number], self._letters[number] = _lengths([word])[0], _letters([word])[0]
        new = self._of.words_from(len(self._length))
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            self._length = np.append(self._length, _lengths(some))
            self._letters = np.append(self._letters, _letters(some))


def distance(first: str, second: str, most: int) -> int:
    """Return the edit distance of two words, `most` + 1 if it is greater."""
    same = 0
    for mine, its in zip(first, second, strict=False):
        if mine != its:
            break
        same += 1
    first, second = first[same:], second[same:]
    if not first or not second:
        return min(len(first) + len(second), most + 1)
    if abs(len(first) - len(second)) > most or not most:
        return most + 1
    ways = [(first[1:], second[1:]), (first[1:], second), (first, second[1:])]
    if first[:2] == second[1::-1]:
        ways.append((first[2:], second[2:]))
    return 1 + min(distance(mine, its, most - 1) for mine, its in ways)


def _lengths(words: Iterable[str]) -> NDArray[np.uint8]:
    return np.array([min(len(word), 255) for word in words], np.uint8)


def _letters(words: Iterable[str]) -> NDArray[np.uint32]:
    """Return the set of letters of each word as 32 bits."""
    spread = np.array(list(words), f"<U{_LONGEST}")
    codes = spread.view(np.uint32).reshape(len(spread), _LONGEST)
    bits = np.where(codes > 0, np.uint32(1) << (codes & 31), np.uint32(0))
    return np.bitwise_or.reduce(bits, axis=1)
