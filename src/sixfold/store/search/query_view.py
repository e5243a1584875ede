"""A view of a page index for one caller, with the numeric operations that ranking needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sixfold.core.memory.indexing.answer_kinds import KINDS, AnswerKind
from sixfold.core.memory.indexing.weights import ENOUGH_ANSWERS, MIN_PASSED_SHARE, Saturation
from sixfold.core.memory.search.ports import SearchFilter
from sixfold.store.search.columns import Flags, Floats, Positions
from sixfold.store.search.page_numbers import Rows
from sixfold.store.search.page_store import IndexedPages

T = TypeVar("T")
_EVERYTHING = SearchFilter()
_MAX_POSTINGS = 1 << 20  # cached postings
_POSTING_BYTES = 12
_ENTRY_BYTES = 400  # measured size of the Python objects of a cached word
_VIEW_BYTES = 6_000  # measured size of the Python objects of a view
_NEWEST_US = 10_000_000
_BLOCK = 128  # positions per block when the best scores are selected
_SCATTERED = 0.25  # fraction of pages with distant neighbors above which all neighbors are looked up
_NONE = np.zeros(0, np.int64)
Hits = tuple[Positions, Floats]


class PageView:
    """The search port's `IndexView` on numpy, valid until the index changes; a vector is an array."""

    def __init__(self, index: IndexedPages, visible: Flags, *, whole: bool) -> None:
        """Create a view of the pages that `visible` flags; `whole` is True if these are all pages."""
        self._of = index
        self._visible = visible
        self._pages = int(np.count_nonzero(visible))
        self._whole = whole
        self._known: dict[Hashable, Hits] = {}
        self._postings = 0
        self._made: dict[Hashable, Any] = {}
        self._made_bytes = 0
        self._zero = np.zeros(len(visible), np.float32)
        self._zero.flags.writeable = False

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            value = self._made[key] = make()
            self._made_bytes += _array_bytes(value)
        return self._made[key]

    @property
    def size(self) -> int:
        """The estimated size of the cached data in bytes."""
        cached = self._postings * _POSTING_BYTES + len(self._known) * _ENTRY_BYTES
        return _VIEW_BYTES + self._zero.nbytes + self._visible.nbytes + self._made_bytes + cached

    def nothing(self) -> Floats:
        """Return a vector of zeros, always the same object."""
        return self._zero

    # -- words -----------------------------------------------------------------------------------

    def text(self, words: Mapping[str, float], saturation: Saturation) -> Floats:
        """Return the BM25 score of each page for the weighted words."""
        score = self._zero.copy()
        for word, weight in words.items():
            hits = self._kept((word, saturation), lambda word=word: self._saturated(word, saturation))
            if hits is not None:
                positions, part = hits
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                np.add.at(score, positions, np.float32(gain) * part)
        return score

    def passages(self, words: Mapping[str, float], saturation: Saturation, text: Any) -> Floats:
        """Return the BM25 score of each page's best passage; `text` is used for pages with one passage."""
        index = self._of
        if not len(index.passage_page):
            return text
        score = np.zeros(len(index.passage_page), np.float32)
        touched: list[Positions] = []
        for word, weight in words.items():
            hits = index.passage_words.get(word)
            if hits is not None:
                positions, times = hits
                norm = _norm(index.passage_length.values[positions], self._mean_length, saturation)
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                score[positions] += np.float32(gain) * times / (times + norm)
                touched.append(positions)
        if not touched:
            return text
        best = text.copy()
        best[index.several.values] = 0
        positions = np.unique(np.concatenate(touched))
        np.maximum.at(best, index.passage_page.values[positions], score[positions])
        return best if self._whole else best * self._visible

    def folders(self, words: Mapping[str, float], saturation: Saturation, crowd: int) -> Floats:
        """Return the BM25 score of each page's folder as one document.

        It is reduced if more than `crowd` pages share the folder.
        """
        of = self._of.folder.values
        pages, length = self._folder_sizes
        count = int(np.count_nonzero(pages))
        if not count:
            return self._zero
        score = np.zeros(len(pages), np.float32)
        mean = max(float(length.sum()) / count, 1.0)
        norm = self.once(("folders", saturation), lambda: _norm(length, mean, saturation))
        share = self.once(("crowd", crowd), lambda: np.minimum(1, np.float32(crowd) / np.maximum(pages, 1)))
        for word, weight in words.items():
            hits = self._kept((word, "folders"), lambda word=word: self._in_folders(self._hits(word)))
            if hits is not None:
                positions, times = hits
                gain = weight * _rarity(len(positions), count) * (saturation.k1 + 1)
                score[positions] += np.float32(gain) * times / (times + norm.take(positions))
        score *= share
        scores: Floats = score.take(of)
        return scores if self._whole else scores * self._visible

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word; 0 for an unknown word."""
        hits = self._hits(word)
        if hits is not None:
            return _rarity(len(hits[0]), self._pages)
        having = len(self._along(word))
        return _rarity(having, self._pages) if having else 0.0

    def near(self, word: str, edits: int, max_words: int) -> Sequence[str]:
        """Return at most `max_words` indexed words within `edits` edits of a word, by frequency."""
        spellings = self._of.spellings.near(word, edits)
        having = {other: len(hits[0]) for other in spellings if (hits := self._hits(other)) is not None}
        alike = [other for other in having if other[0] == word[0]] or having
        return sorted(alike, key=lambda other: (-having[other], other))[:max_words]

    def containing(self, part: str, max_words: int) -> Sequence[str]:
        """Return at most `max_words` indexed words that contain a string, the most frequent first."""
        words = self._of.spellings.containing(part)
        having = {word: len(hits[0]) for word in words if (hits := self._hits(word)) is not None}
        return sorted(having, key=lambda word: (-having[word], word))[:max_words]

    def named(self, names: Collection[str]) -> Floats:
        known = [positions for name in names if len(positions := self._seen(self._of.labelled("name", name)))]
        if not known:
            return self._zero
        share = self._zero.copy()
        for positions in known:
            share[positions] += np.float32(1 / len(known))
        return share

    def title_shares(self, words: Mapping[str, float]) -> Floats:
        """Return the fraction of the words' rarity that each title covers; 0 for titles with other words."""
        total = sum(self.rarity(word) for word in words)
        count, share = self._zero, self._zero
        for word in words:
            positions = self._seen(self._of.labelled("title", word))
            if len(positions):
                if count is self._zero:
                    count, share = self._zero.copy(), self._zero.copy()
                count[positions] += 1
                share[positions] += np.float32(self.rarity(word) / total)
        if count is self._zero:
            return count
        share[count < self._of.title_words.values] = 0
        return share

    def entitled(self, words: Collection[str]) -> Floats:
        positions = _common([self._seen(self._of.labelled("title", word)) for word in words])
        if not len(positions):
            return self._zero
        share = self._zero.copy()
        length = np.maximum(self._of.title_words.values[positions], 1)
        share[positions] = np.float32(0.5) + np.float32(0.5 * len(words)) / length
        return share

    def complete(self, words: Collection[str]) -> Floats:
        positions = _common([hits[0] if (hits := self._hits(word)) is not None else _NONE for word in words])
        if not len(positions):
            return self._zero
        having = self._zero.copy()
        having[positions] = 1
        return having

    def folder_words(self, words: Mapping[str, float]) -> Floats:
        """Return the summed weight of the words in the names of each page's folders."""
        scores = self._zero
        for word, weight in words.items():
            positions = self._along(word)
            if len(positions):
                scores = self._zero.copy() if scores is self._zero else scores
                scores[positions] += np.float32(weight * _rarity(len(positions), self._pages))
        return scores

    def parts(self) -> Floats:
        """Return 1 for a page that is part of its folder, 0 for a self-contained article."""
        part = self._of.part
        return self._of.numbers.get("parts", lambda rows: part.values[rows].astype(np.float32))

    def statements(self) -> Floats:
        """Return 1 for a page that makes a statement, 0 for a short question."""
        states = self._of.states
        return self._of.numbers.get("statements", lambda rows: states.values[rows].astype(np.float32))

    def asking(self) -> Floats:
        return (self._visible & ~self._of.states.values).astype(np.float32)

    def kind_counts(self, kind: AnswerKind) -> Floats:
        """Return the answers of the requested kind on each page, as a fraction of `ENOUGH_ANSWERS`."""
        counts = self._of.holds[KINDS.index(kind)].values
        return counts.astype(np.float32) * np.float32(1 / ENOUGH_ANSWERS)

    def substance(self, half: int) -> Floats:
        """Return a measure of the amount of content: 0.5 at `half` significant words, approaching 1."""
        lengths = self._of.length

        def compute(rows: Rows) -> Floats:
            length = lengths.values[rows]
            return np.divide(length, length + np.float32(half))

        return self._of.numbers.get(("substance", half), compute)

    # -- positions of pages ----------------------------------------------------------------------

    def previous(self, vector: Any) -> Floats:
        return self._beside(vector, "before")

    def next(self, vector: Any) -> Floats:
        return self._beside(vector, "after")

    def _beside(self, vector: Any, side: Literal["before", "after"]) -> Floats:
        if vector is self._zero:
            return vector
        step = -1 if side == "before" else 1
        odd, there, ends = self.once(side, lambda: _steps(getattr(self._of.order, side).values, step))
        buffer = np.empty_like(vector)
        if step < 0:  # most pages follow each other in the index as in their folders
            buffer[1:] = vector[:-1]
        else:
            buffer[:-1] = vector[1:]
        buffer[odd] = vector.take(there)
        buffer[ends] = 0
        return buffer

    def linked(self, vector: Any, linking: int, crowd: int = 0) -> Floats:
        """Return for each page the best value of its linked pages, among the `linking` best pages only.

        If `crowd` is set, a page with more links than that passes a smaller value to each.
        """
        best = _greatest(vector, linking)
        neighbors = [self._of.neighbors(position) for position in best.tolist()]
        others = [position for positions in neighbors for position in positions]
        if not others:
            return self._zero
        passed = self._zero.copy()
        counts = [len(positions) for positions in neighbors]
        values = vector[best]
        if crowd:
            values = values * np.minimum(1, np.float32(crowd) / np.maximum(counts, 1)).astype(np.float32)
        np.maximum.at(passed, others, np.repeat(values, counts))
        return passed if self._whole else passed * self._visible

    def from_scores(self, numbers: Mapping[str, float]) -> Floats:
        """Return a vector from values by page id; unknown and invisible pages are left out."""
        scores = self._zero.copy()
        for page_id, number in numbers.items():
            position = self._of.position_of(page_id)
            if position is not None and self._visible[position]:
                scores[position] = number
        return scores

    def recency(self, half_life_us: int) -> Floats:
        """Return 1 for the newest page, halved for each half-life of age.

        Ages are relative to a multiple of 10 seconds, so that most changes affect only the changed page.
        """
        updated = self._of.updated
        if not self._pages:
            return self._zero.copy()
        newest = int(self._shown(updated.values).max()) // _NEWEST_US * _NEWEST_US

        def compute(rows: Rows) -> Floats:
            return np.exp2((updated.values[rows] - newest) / half_life_us).astype(np.float32)

        if not self._whole:
            return compute(slice(None))
        return self._of.numbers.get(("recency", half_life_us), compute, newest)

    def when(self, since: int, until: int) -> Floats:
        """Return 1 for pages of a period, otherwise 0.

        The date in the slug decides, or else the time of creation or last change.
        """
        of = self._of
        dated = (of.dated_from.values <= until) & (of.dated_to.values >= since)
        for moment in (of.created.values, of.updated.values):
            dated |= (of.dated_to.values == 0) & (moment >= since) & (moment <= until)
        return (dated & self._visible).astype(np.float32)

    def meaning(self, question: bytes) -> Floats:
        """Return the cosine of a vector (32-bit floats) and each page's nearest passage, at least 0."""
        of = self._of.row_page.values
        nearest = self._zero.copy()
        if len(of):
            cosine = self._of.matrix[: len(of)] @ np.frombuffer(question, np.float32)
            there = of >= 0
            np.maximum.at(nearest, of[there], cosine[there])
        return nearest * self._visible

    def greatest(self, vector: Any) -> float:
        """Return the maximum of a vector, at least 0."""
        return float(np.max(vector, initial=0.0))

    def at_least(self, vector: Any, least: float) -> Floats:
        return (vector >= least).astype(np.float32)

    # -- results ---------------------------------------------------------------------------------

    def best(self, score: Any, candidates: Any, keep: SearchFilter, limit: int) -> Sequence[int]:
        """Return the positions of the `limit` best pages that pass `keep` and are above 0 in `candidates`."""
        allowed = (candidates > 0) & self._visible
        if keep != _EVERYTHING:
            allowed &= self._passing(keep)
        positions = np.flatnonzero((score >= _reached(score * allowed, limit)) & allowed)
        values = score[positions]
        if len(positions) > limit:
            least = np.partition(values, -limit)[-limit]
            positions = positions[values >= least]
        slugs = self._of.slugs
        return sorted(positions.tolist(), key=lambda position: (-float(score[position]), slugs[position]))[
            :limit
        ]

    def score_at(self, vector: Any, position: int) -> float:
        return float(vector[position])

    def page_id(self, position: int) -> str:
        """Return the id of the page at a position."""
        return self._of.page_ids[position]

    def on_disk(self, position: int) -> bool:
        """Return whether the words of a page are on disk and not in memory."""
        return bool(self._of.on_disk[position])

    def best_passage(self, position: int, words: Mapping[str, float]) -> int:
        """Return the index of the passage that contains most of the words."""
        passages = np.array(self._of.passages(position), np.int64)
        if not len(passages):
            return 0
        scores = np.zeros(len(passages))
        for word, weight in words.items():
            scores[self._of.passage_words.among(passages, word)] += weight * self.rarity(word)
        return int(scores.argmax())

    # -- internal --------------------------------------------------------------------------------

    def _hits(self, word: str) -> Hits | None:
        return self._kept((word, ""), lambda: self._seen_hits(self._of.hits(word)))

    def _kept(self, key: Hashable, make: Callable[[], Hits | None]) -> Hits | None:
        """Return the cached result of `make`, or None if it is empty.

        The oldest entries above `_MAX_POSTINGS` are dropped.

        An empty result is not cached, as a misspelled word has hundreds of candidates.
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

    def _seen_hits(self, hits: Hits | None) -> Hits | None:
        if hits is None or self._whole:
            return hits
        seen = self._visible[hits[0]]
        return (hits[0][seen], hits[1][seen]) if seen.any() else None

    def _in_folders(self, hits: Hits | None) -> Hits | None:
        if hits is None:
            return None
        times = np.zeros(len(self._of.folder_pages), np.float32)
        np.add.at(times, self._of.folder.values.take(hits[0]), hits[1])
        times[0] = 0
        positions = np.flatnonzero(times > 0)
        return positions, times[positions]

    def _along(self, word: str) -> Positions:
        return self._seen(self._of.labelled("folder", word))

    def _shown(self, column: NDArray[Any]) -> NDArray[Any]:
        return column if self._whole else column[self._visible]

    def _seen(self, positions: Positions) -> Positions:
        return positions if self._whole else positions[self._visible[positions]]

    def _passing(self, keep: SearchFilter) -> Flags:
        index = self._of
        flags = np.ones(len(self._visible), np.bool_)
        if keep.types:
            flags &= np.isin(index.type.values, [index.types.get(name, -1) for name in keep.types])
        if keep.collections:
            flags &= index.having("collection", keep.collections)
        if keep.tags:
            flags &= index.having("tag", keep.tags)
        if keep.since is not None:
            flags &= index.updated.values >= keep.since
        if keep.until is not None:
            flags &= index.updated.values <= keep.until
        return flags

    def _saturated(self, word: str, saturation: Saturation) -> Hits | None:
        """Return the postings of a word with BM25's term-frequency factor."""
        hits = self._hits(word)
        if hits is None:
            return None
        positions, times = hits
        norm = _norm(self._of.length.values.take(positions), self._mean_length, saturation)
        return positions, np.divide(times, times + norm, dtype=np.float32)

    @cached_property
    def _mean_length(self) -> float:
        total = float(self._shown(self._of.length.values).sum(dtype=np.float64))
        return max(total / max(self._pages, 1), 1.0)

    @cached_property
    def _folder_sizes(self) -> tuple[Positions, Floats]:
        """The numbers of visible pages and words of each folder; folder 0 is the top level."""
        index = self._of
        if self._whole:
            pages, length = index.folder_pages.values.copy(), index.folder_words.values.copy()
        else:
            of = index.folder.values[self._visible]
            pages = np.bincount(of, minlength=len(index.folder_pages))
            length = np.bincount(of, index.length.values[self._visible], len(index.folder_pages))
        pages[0] = 0
        length[0] = 0
        return pages, length.astype(np.float32)


def _common(lists: Sequence[Positions]) -> Positions:
    """Return the positions that all ascending lists contain, beginning with the shortest list."""
    ordered = sorted(lists, key=len)
    common = ordered[0] if ordered else _NONE
    for positions in ordered[1:]:
        if len(common):
            common = common[positions.take(np.searchsorted(positions, common), mode="clip") == common]
    return common


def _norm(length: Floats, mean: float, saturation: Saturation) -> Floats:
    k1, b = saturation.k1, saturation.b
    length = np.maximum(length, 1)  # avoids a division by zero
    return np.float32(k1 * (1 - b)) + np.float32(k1 * b / mean) * length


def _steps(positions: Positions, step: int) -> tuple[Positions | slice, Positions, Positions]:
    """Return the indexes of distant neighbors, these neighbors, and the indexes without a neighbor."""
    ends = np.flatnonzero(positions < 0)
    odd = np.flatnonzero(positions != np.arange(step, len(positions) + step, dtype=positions.dtype))
    odd = odd[positions[odd] >= 0]
    if len(odd) > len(positions) * _SCATTERED:
        return slice(None), np.maximum(positions, 0, dtype=np.int64), ends
    return odd, positions[odd].astype(np.int64), ends


def _array_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_array_bytes, cast("Mapping[str, Any]", value).values()))
    return sum(map(_array_bytes, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else 0


def _rarity(having: int, of: int) -> float:
    return math.log(1 + (of - having + 0.5) / (having + 0.5))


def _greatest(vector: Floats, count: int) -> Positions:
    """Return the positions of the greatest values, at most `count`, excluding values far below the best."""
    best = float(np.max(vector, initial=0.0))
    least = max(MIN_PASSED_SHARE * best, _reached(vector, count))
    positions = np.flatnonzero(vector >= least) if best > 0 else np.zeros(0, np.int64)
    if len(positions) > count:
        positions = positions[np.argsort(-vector[positions], kind="stable")[:count]]
    return positions


def _reached(vector: Floats, count: int) -> float:
    """Return a value near the `count`-th greatest that at least `count` positions reach, or 0."""
    tops = np.maximum.reduceat(vector, np.arange(0, len(vector), _BLOCK)) if len(vector) else vector
    return float(np.partition(tops, -count)[-count]) if len(tops) > count else 0.0
