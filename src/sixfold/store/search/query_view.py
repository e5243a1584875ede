"""A view of a page index for one caller, with the numeric operations that ranking needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sixfold.core.clock import HOUR_US
from sixfold.core.memory.indexing.answer_kinds import KINDS, AnswerKind
from sixfold.core.memory.indexing.weights import ENOUGH_ANSWERS, Saturation
from sixfold.core.memory.search.ports import SearchFilter
from sixfold.store.search.columns import Flags, Floats, Positions
from sixfold.store.search.page_numbers import Rows
from sixfold.store.search.vectors import NONE, common, distinct, greatest, norm, rarity, reached, steps
from sixfold.store.search.visible_pages import VisiblePages

T = TypeVar("T")
Side: TypeAlias = Literal["before", "after"]
_EVERYTHING = SearchFilter()
_VIEW_BYTES = 6_000  # measured size of the Python objects of a view


class PageView:
    """The search port's `IndexView` on numpy, valid until the index changes; a vector is an array.

    A *row* is an index of vectors. Here, the row of a page is its position.
    """

    def __init__(self, pages: VisiblePages) -> None:
        self._pages = pages
        self._of = pages.index

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        return self._pages.once(key, make)

    @property
    def size(self) -> int:
        """The estimated size of the cached data in bytes."""
        return _VIEW_BYTES + self._pages.size

    def nothing(self) -> Floats:
        """Return a vector of zeros, always the same object."""
        return self._zero

    def narrowed(self, words: Collection[str], page_ids: Collection[str], *, linked: bool) -> PageView:
        """Return a view of the pages that affect the results for `words`."""
        return self

    # -- rows ------------------------------------------------------------------------------------

    def _column(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a vector from the values of all positions."""
        return values

    def _rows(self, positions: Positions) -> tuple[Positions, Positions | slice]:
        """Return the rows of pages, and the indexes of the pages that have one."""
        return positions, slice(None)

    def _row(self, position: int) -> int:
        return position

    def _positions(self, rows: Positions) -> Positions:
        return rows

    def _derived(self, key: Hashable, compute: Callable[[Rows], Floats], version: int = 0) -> Floats:
        """Return a vector of numbers that are derived from each page alone."""
        return self._of.numbers.get(key, compute, version)

    @cached_property
    def _zero(self) -> Floats:
        zero = np.zeros(len(self._visible), np.float32)
        zero.flags.writeable = False
        return zero

    @cached_property
    def _visible(self) -> Flags:
        return self._column(self._pages.flags)

    def _shown(self, vector: Floats) -> Floats:
        return vector if self._pages.whole else vector * self._visible

    # -- words -----------------------------------------------------------------------------------

    def text(self, words: Mapping[str, float], saturation: Saturation) -> Floats:
        """Return the BM25 score of each page for the weighted words."""
        score = self._zero.copy()
        for word, weight in words.items():
            hits = self._pages.saturated(word, saturation)
            if hits is not None:
                rows, kept = self._rows(hits[0])
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                np.add.at(score, rows, np.float32(gain) * hits[1][kept])
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
                lengths = norm(index.passage_length.values[positions], self._pages.mean_length, saturation)
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                score[positions] += np.float32(gain) * times / (times + lengths)
                touched.append(positions)
        if not touched:
            return text
        best = text.copy()
        best[self._column(index.several.values)] = 0
        positions = distinct(touched)
        rows, kept = self._rows(index.passage_page.values[positions])
        np.maximum.at(best, rows, score[positions][kept])
        return self._shown(best)

    def folders(self, words: Mapping[str, float], saturation: Saturation, crowd: int) -> Floats:
        """Return the BM25 score of each page's folder as one document.

        It is reduced if more than `crowd` pages share the folder.
        """
        pages, length = self._pages.folder_sizes
        count = int(np.count_nonzero(pages))
        if not count:
            return self._zero
        score = np.zeros(len(pages), np.float32)
        mean = max(float(length.sum()) / count, 1.0)
        lengths = self._pages.once(("folders", saturation), lambda: norm(length, mean, saturation))
        for word, weight in words.items():
            hits = self._pages.in_folders(word)
            if hits is not None:
                positions, times = hits
                gain = weight * rarity(len(positions), count) * (saturation.k1 + 1)
                score[positions] += np.float32(gain) * times / (times + lengths.take(positions))
        score *= self._pages.once(
            ("crowd", crowd), lambda: np.minimum(1, np.float32(crowd) / np.maximum(pages, 1))
        )
        scores: Floats = score.take(self._column(self._of.folder.values))
        return self._shown(scores)

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of a word; 0 for an unknown word."""
        return self._pages.rarity(word)

    def near(self, word: str, edits: int, max_words: int) -> Sequence[str]:
        """Return at most `max_words` indexed words within `edits` edits of a word, by frequency."""
        having = self._pages.frequencies(self._of.spellings.near(word, edits))
        alike = [other for other in having if other[0] == word[0]] or having
        return sorted(alike, key=lambda other: (-having[other], other))[:max_words]

    def containing(self, part: str, max_words: int) -> Sequence[str]:
        """Return at most `max_words` indexed words that contain a string, the most frequent first."""
        having = self._pages.frequencies(self._of.spellings.containing(part))
        return sorted(having, key=lambda word: (-having[word], word))[:max_words]

    def named(self, names: Collection[str]) -> Floats:
        known = [positions for name in names if len(positions := self._pages.labelled("name", name))]
        if not known:
            return self._zero
        share = self._zero.copy()
        for positions in known:
            share[self._rows(positions)[0]] += np.float32(1 / len(known))
        return share

    def title_shares(self, words: Collection[str]) -> Floats:
        """Return the fraction of the words' rarity that each title covers; 0 for titles with other words."""
        total = sum(self.rarity(word) for word in words)
        count, share = self._zero, self._zero
        for word in words:
            rows, _ = self._rows(self._pages.labelled("title", word))
            if len(rows):
                if count is self._zero:
                    count, share = self._zero.copy(), self._zero.copy()
                count[rows] += 1
                share[rows] += np.float32(self.rarity(word) / total)
        if count is self._zero:
            return count
        share[count < self._column(self._of.title_words.values)] = 0
        return share

    def entitled(self, words: Collection[str]) -> Floats:
        rows, _ = self._rows(common([self._pages.labelled("title", word) for word in words]))
        if not len(rows):
            return self._zero
        share = self._zero.copy()
        length = np.maximum(self._column(self._of.title_words.values)[rows], 1)
        share[rows] = np.float32(0.5) + np.float32(0.5 * len(words)) / length
        return share

    def complete(self, words: Collection[str]) -> Floats:
        having = [hits[0] if (hits := self._pages.hits(word)) is not None else NONE for word in words]
        rows, _ = self._rows(common(having))
        if not len(rows):
            return self._zero
        complete = self._zero.copy()
        complete[rows] = 1
        return complete

    def folder_words(self, words: Mapping[str, float]) -> Floats:
        """Return the summed weight of the words in the names of each page's folders."""
        scores = self._zero
        for word, weight in words.items():
            positions = self._pages.labelled("folder", word)
            if len(positions):
                scores = self._zero.copy() if scores is self._zero else scores
                gain = np.float32(weight * rarity(len(positions), self._pages.count))
                scores[self._rows(positions)[0]] += gain
        return scores

    def parts(self) -> Floats:
        """Return 1 for a page that is part of its folder, 0 for a self-contained article."""
        part = self._of.part
        return self._derived("parts", lambda rows: part.values[rows].astype(np.float32))

    def statements(self) -> Floats:
        """Return 1 for a page that makes a statement, 0 for a short question."""
        states = self._of.states
        return self._derived("statements", lambda rows: states.values[rows].astype(np.float32))

    def asking(self) -> Floats:
        return (self._visible & ~self._column(self._of.states.values)).astype(np.float32)

    def kind_counts(self, kind: AnswerKind) -> Floats:
        """Return the answers of the requested kind on each page, as a fraction of `ENOUGH_ANSWERS`."""
        counts = self._column(self._of.holds[KINDS.index(kind)].values)
        return counts.astype(np.float32) * np.float32(1 / ENOUGH_ANSWERS)

    def substance(self, half: int) -> Floats:
        """Return a measure of the amount of content: 0.5 at `half` significant words, approaching 1."""
        lengths = self._of.length

        def compute(rows: Rows) -> Floats:
            length = lengths.values[rows]
            return np.divide(length, length + np.float32(half))

        return self._derived(("substance", half), compute)

    # -- positions of pages ----------------------------------------------------------------------

    def previous(self, vector: Any) -> Floats:
        return self._beside(vector, "before")

    def next(self, vector: Any) -> Floats:
        return self._beside(vector, "after")

    def _beside(self, vector: Any, side: Side) -> Floats:
        if vector is self._zero:
            return vector
        step = -1 if side == "before" else 1
        odd, there, ends = self.once(side, lambda: steps(getattr(self._of.order, side).values, step))
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
        best = greatest(vector, linking)
        neighbors = [self._of.neighbors(position) for position in self._positions(best).tolist()]
        others = np.array([position for positions in neighbors for position in positions], np.int64)
        if not len(others):
            return self._zero
        passed = self._zero.copy()
        counts = [len(positions) for positions in neighbors]
        values = vector[best]
        if crowd:
            values = values * np.minimum(1, np.float32(crowd) / np.maximum(counts, 1)).astype(np.float32)
        rows, kept = self._rows(others)
        np.maximum.at(passed, rows, np.repeat(values, counts)[kept])
        return self._shown(passed)

    def from_scores(self, numbers: Mapping[str, float]) -> Floats:
        """Return a vector from values by page id; unknown and invisible pages are left out."""
        scores = self._zero.copy()
        for page_id, number in numbers.items():
            position = self._of.position_of(page_id)
            if position is not None and self._pages.flags[position]:
                scores[self._row(position)] = number
        return scores

    def recency(self, half_life_us: int) -> Floats:
        """Return 1 for the newest page, halved for each half-life of age.

        Ages are relative to a multiple of an hour, so that most changes affect only the changed page.
        """
        updated = self._of.updated
        if not self._pages.count:
            return self._zero.copy()
        newest = self._pages.newest() // HOUR_US * HOUR_US

        def compute(rows: Rows) -> Floats:
            return np.exp2((updated.values[rows] - newest) / half_life_us).astype(np.float32)

        if not self._pages.whole:
            return self._column(compute(slice(None)))
        return self._derived(("recency", half_life_us), compute, newest)

    def when(self, since: int, until: int) -> Floats:
        """Return 1 for pages of a period, otherwise 0.

        The date in the slug decides, or else the time of creation or last change.
        """
        first, last = (self._column(column.values) for column in (self._of.dated_from, self._of.dated_to))
        dated = (first <= until) & (last >= since)
        for column in (self._of.created, self._of.updated):
            moment = self._column(column.values)
            dated |= (last == 0) & (moment >= since) & (moment <= until)
        return (dated & self._visible).astype(np.float32)

    def meaning(self, question: bytes) -> Floats:
        """Return the cosine of a vector (32-bit floats) and each page's nearest passage, at least 0."""
        of = self._of.row_page.values
        nearest = self._zero.copy()
        if len(of):
            cosine = self._of.matrix[: len(of)] @ np.frombuffer(question, np.float32)
            with_page = np.flatnonzero(of >= 0)
            rows, kept = self._rows(of[with_page])
            np.maximum.at(nearest, rows, cosine[with_page][kept])
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
        rows = np.flatnonzero((score >= reached(score * allowed, limit)) & allowed)
        values = score[rows]
        if len(rows) > limit:
            least = np.partition(values, -limit)[-limit]
            rows, values = rows[values >= least], values[values >= least]
        found = zip(self._positions(rows).tolist(), values.tolist(), strict=True)
        slugs = self._of.slugs
        ordered = sorted(found, key=lambda page: (-page[1], slugs[page[0]]))
        return [position for position, _ in ordered[:limit]]

    def score_at(self, vector: Any, position: int) -> float:
        return float(vector[self._row(position)])

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

    def _passing(self, keep: SearchFilter) -> Flags:
        index = self._of
        flags = np.ones(len(self._visible), np.bool_)
        if keep.types:
            types = [index.types.get(name, -1) for name in keep.types]
            flags &= np.isin(self._column(index.type.values), types)
        if keep.collections:
            flags &= self._column(index.having("collection", keep.collections))
        if keep.tags:
            flags &= self._column(index.having("tag", keep.tags))
        updated = self._column(index.updated.values)
        if keep.since is not None:
            flags &= updated >= keep.since
        if keep.until is not None:
            flags &= updated <= keep.until
        return flags
