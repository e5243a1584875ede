"""The pages of an index that a caller can see: the pages that have a word, their number and their folders."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sixfold.core.memory.indexing.weights import Saturation
from sixfold.store.search.columns import Flags, Floats, Positions
from sixfold.store.search.page_store import IndexedPages, Label
from sixfold.store.search.vectors import array_bytes, norm, rarity

T = TypeVar("T")
Hits = tuple[Positions, Floats]
_MAX_POSTINGS = 1 << 20  # cached postings
_POSTING_BYTES = 12
_ENTRY_BYTES = 400  # measured size of the Python objects of a cached word
_COUNT_BYTES = 100  # of its number of pages


class VisiblePages:
    """The pages that `flags` flags, valid until the index changes; `whole` is true if these are all pages."""

    def __init__(self, index: IndexedPages, flags: Flags, *, whole: bool) -> None:
        self.index = index
        self.flags = flags
        self.whole = whole
        self.count = len(index) if whole else int(np.count_nonzero(flags))
        self._known: dict[Hashable, Hits] = {}
        self._postings = 0
        self._having: dict[str, int] = {}
        self._made: dict[Hashable, Any] = {}
        self._made_bytes = 0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, cached under `key`."""
        if key not in self._made:
            value = self._made[key] = make()
            self._made_bytes += array_bytes(value)
        return self._made[key]

    @property
    def size(self) -> int:
        """The estimated size of the cached data in bytes."""
        cached = self._postings * _POSTING_BYTES + len(self._known) * _ENTRY_BYTES
        return self.flags.nbytes + self._made_bytes + cached + len(self._having) * _COUNT_BYTES

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word; 0 for an unknown word."""
        having = self.having(word) or len(self.labelled("folder", word))
        return rarity(having, self.count) if having else 0.0

    def having(self, word: str) -> int:
        """Return the number of pages with a word."""
        having = self._having.get(word, 0)
        if not having and (hits := self.hits(word)) is not None:
            # Unknown words are not cached, as a misspelled word has hundreds of candidates.
            having = self._having[word] = len(hits[0])
        return having

    def hits(self, word: str) -> Hits | None:
        """Return the positions of the pages with a word, and its counts."""
        return self._kept((word, ""), lambda: self._shown_hits(self.index.hits(word)))

    def saturated(self, word: str, saturation: Saturation) -> Hits | None:
        """Return the postings of a word with BM25's term-frequency factor."""
        return self._kept((word, saturation), lambda: self._saturated(word, saturation))

    def in_folders(self, word: str) -> Hits | None:
        """Return the numbers of the folders with a word, and its counts."""
        return self._kept((word, "folders"), lambda: self._in_folders(self.hits(word)))

    def labelled(self, kind: Label, name: str) -> Positions:
        return self.of(self.index.labelled(kind, name))

    def of(self, positions: Positions) -> Positions:
        """Return the positions of visible pages."""
        return positions if self.whole else positions[self.flags[positions]]

    @cached_property
    def mean_length(self) -> float:
        index = self.index
        lengths: NDArray[Any] = index.folder_words.values if self.whole else index.length.values[self.flags]
        return max(float(lengths.sum(dtype=np.float64)) / max(self.count, 1), 1.0)

    @cached_property
    def folder_sizes(self) -> tuple[Positions, Floats]:
        """The numbers of visible pages and words of each folder; folder 0 is the top level."""
        index = self.index
        if self.whole:
            pages, length = index.folder_pages.values.copy(), index.folder_words.values.copy()
        else:
            of = index.folder.values[self.flags]
            pages = np.bincount(of, minlength=len(index.folder_pages))
            length = np.bincount(of, index.length.values[self.flags], len(index.folder_pages))
        pages[0] = 0
        length[0] = 0
        return pages, length.astype(np.float32)

    def newest(self) -> int:
        """Return the time of the last change of a page; 0 without pages."""
        if self.whole:
            return self.index.newest
        return int(self.index.updated.values[self.flags].max(initial=0))

    def frequencies(self, words: Iterable[str]) -> dict[str, int]:
        """Return the number of pages with each word, except words that no page has."""
        return {word: having for word in words if (having := self.having(word))}

    def _kept(self, key: Hashable, make: Callable[[], Hits | None]) -> Hits | None:
        """Return the cached result of `make`, or None if it is empty.

        The oldest entries above `_MAX_POSTINGS` are dropped.

        An empty result is not cached, as in `having`.
        """
        hits = self._known.get(key)
        if hits is None:
            hits = make()
            if hits is None or not len(hits[0]):
                return None
            self._known[key] = hits
            self._postings += len(hits[0])
            while self._postings > _MAX_POSTINGS and len(self._known) > 1:
                self._postings -= len(self._known.pop(next(iter(self._known)))[0])
        return hits

    def _shown_hits(self, hits: Hits | None) -> Hits | None:
        if hits is None or self.whole:
            return hits
        seen = self.flags[hits[0]]
        return (hits[0][seen], hits[1][seen]) if seen.any() else None

    def _in_folders(self, hits: Hits | None) -> Hits | None:
        if hits is None:
            return None
        times = np.zeros(len(self.index.folder_pages), np.float32)
        np.add.at(times, self.index.folder.values.take(hits[0]), hits[1])
        times[0] = 0
        positions = np.flatnonzero(times > 0)
        return positions, times[positions]

    def _saturated(self, word: str, saturation: Saturation) -> Hits | None:
        hits = self.hits(word)
        if hits is None:
            return None
        positions, times = hits
        lengths = norm(self.index.length.values.take(positions), self.mean_length, saturation)
        return positions, np.divide(times, times + lengths, dtype=np.float32)
