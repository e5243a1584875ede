"""One caller's sight of a page index, and the sums that ranking asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sixfold.core.memory.search.ports import Saturation, SearchFilter
from sixfold.store.search.columns import Flags, Floats, Places
from sixfold.store.search.page_store import IndexedPages

T = TypeVar("T")
_EVERYTHING = SearchFilter()
_LENDS = 0.4  # of the best page's number: who has less lends nothing
_MOST_HELD = 1 << 20  # postings of words asked for lately, 12 bytes each
_BLOCK = 128  # places of which the best one stands for all, when the best of all are sought
_SCATTERED = 0.25  # of the pages: so many neighbours elsewhere are all read one by one
Hits = tuple[Places, Floats]


class PageView:
    """`signals.View` on numpy; good until the index changes. A vector is an array."""

    def __init__(self, index: IndexedPages, visible: Flags, *, whole: bool) -> None:
        """`visible` are the pages that the caller sees; `whole` where these are all that there are."""
        self._of = index
        self._visible = visible
        self._pages = int(np.count_nonzero(visible))
        self._whole = whole
        self._known: dict[Hashable, Hits | None] = {}
        self._held = 0
        self._made: dict[Hashable, Any] = {}
        self._zero = np.zeros(len(visible), np.float32)
        self._zero.flags.writeable = False

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, remembered under `key` until the pages change."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def nothing(self) -> Floats:
        """0 for each page: always the same vector, which a signal gives that has nothing to say."""
        return self._zero

    # -- words -----------------------------------------------------------------------------------

    def text(self, words: Mapping[str, float], saturation: Saturation) -> Floats:
        """BM25 of each page for the weighted words."""
        score = self._zero.copy()
        norm = self._norm(saturation)
        for word, weight in words.items():
            hits = self._kept((word, saturation), lambda word=word: _saturated(self._hits(word), norm))
            if hits is not None:
                places, part = hits
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                np.add.at(score, places, np.float32(gain) * part)
        return score

    def passages(self, words: Mapping[str, float], saturation: Saturation, text: Any) -> Floats:
        """BM25 of each page's best passage; `text`, which is the page's, where the page is one passage."""
        index = self._of
        if not len(index.passage_page):
            return text
        score = np.zeros(len(index.passage_page), np.float32)
        touched: list[Places] = []
        for word, weight in words.items():
            hits = index.passage_words.get(word)
            if hits is not None:
                places, times = hits
                norm = _norm(index.passage_length.values[places], self._mean_length, saturation)
                gain = weight * self.rarity(word) * (saturation.k1 + 1)
                score[places] += np.float32(gain) * times / (times + norm)
                touched.append(places)
        if not touched:
            return text
        best = text.copy()
        best[index.several.values] = 0
        places = np.unique(np.concatenate(touched))
        np.maximum.at(best, index.passage_page.values[places], score[places])
        return best if self._whole else best * self._visible

    def folders(self, words: Mapping[str, float], saturation: Saturation, crowd: int) -> Floats:
        """BM25 of each page's folder read as one document, less where more than `crowd` pages share it."""
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
                places, times = hits
                gain = weight * _rarity(len(places), count) * (saturation.k1 + 1)
                score[places] += np.float32(gain) * times / (times + norm.take(places))
        score *= share
        found: Floats = score.take(of)
        return found if self._whole else found * self._visible

    def rarity(self, word: str) -> float:
        """BM25's weight of a word: how much a page says by having it; 0 when nowhere is one."""
        hits = self._hits(word)
        if hits is not None:
            return _rarity(len(hits[0]), self._pages)
        having = len(self._along(word))
        return _rarity(having, self._pages) if having else 0.0

    def near(self, word: str, edits: int, most: int) -> Sequence[str]:
        """Words of pages that so many edits make of one, `most` at most, the most frequent first."""
        found = self._of.spellings.near(word, edits)
        having = {other: len(hits[0]) for other in found if (hits := self._hits(other)) is not None}
        alike = [other for other in having if other[0] == word[0]] or having
        return sorted(alike, key=lambda other: (-having[other], other))[:most]

    def named(self, names: Collection[str]) -> Floats:
        """What share of the names each page is about, 0 to 1."""
        known = [places for name in names if len(places := self._seen(self._of.labelled("name", name)))]
        if not known:
            return self._zero
        share = self._zero.copy()
        for places in known:
            share[places] += np.float32(1 / len(known))
        return share

    def folder_words(self, words: Mapping[str, float]) -> Floats:
        """What the names of each page's folders say: the weight of each word in them by its rarity."""
        said = self._zero
        for word, weight in words.items():
            places = self._along(word)
            if len(places):
                said = self._zero.copy() if said is self._zero else said
                said[places] += np.float32(weight * _rarity(len(places), self._pages))
        return said

    def parts(self) -> Floats:
        """1 for a page that is a part of its folder, 0 for an article that is read by itself."""
        return self._of.part.values.astype(np.float32)

    def statements(self) -> Floats:
        """1 for a page that states something, 0 for a short one that asks."""
        return self._of.states.values.astype(np.float32)

    def substance(self, half: int) -> Floats:
        """How much a page has to say: 0.5 at `half` words that count, towards 1."""
        length: Floats = self._of.length.values
        return np.divide(length, length + np.float32(half))

    # -- where pages stand -----------------------------------------------------------------------

    def previous(self, vector: Any) -> Floats:
        """For each page the number of the one before it in its folder."""
        return self._beside(vector, "before")

    def next(self, vector: Any) -> Floats:
        """For each page the number of the one behind it in its folder."""
        return self._beside(vector, "after")

    def _beside(self, vector: Any, side: Literal["before", "after"]) -> Floats:
        """Each page's neighbour's number; 0 at the ends of folders."""
        if vector is self._zero:
            return vector
        step = -1 if side == "before" else 1
        odd, there, ends = self.once(side, lambda: _steps(getattr(self._of.order, side).values, step))
        lent = np.empty_like(vector)
        if step < 0:  # most pages stand in the index as they stand in their folders
            lent[1:] = vector[:-1]
        else:
            lent[:-1] = vector[1:]
        lent[odd] = vector.take(there)
        lent[ends] = 0
        return lent

    def linked(self, vector: Any, lenders: int) -> Floats:
        """The best number among those of a page's neighbours by link, of the `lenders` best pages alone."""
        best = _greatest(vector, lenders)
        found = [self._of.neighbours(place) for place in best.tolist()]
        others = [place for places in found for place in places]
        if not others:
            return self._zero
        lent = self._zero.copy()
        np.maximum.at(lent, others, np.repeat(vector[best], [len(places) for places in found]))
        return lent if self._whole else lent * self._visible

    def from_scores(self, numbers: Mapping[str, float]) -> Floats:
        """The numbers that some pages were given, by their ids; unknown pages and unseen ones have none."""
        said = self._zero.copy()
        for page_id, number in numbers.items():
            place = self._of.place(page_id)
            if place is not None and self._visible[place]:
                said[place] = number
        return said

    def recency(self, half_life_us: int) -> Floats:
        """1 for the account's newest page, half of it for each half-life before."""
        updated = self._of.updated.values
        if not self._pages:
            return self._zero.copy()
        age = (self._shown(updated).max() - updated) / half_life_us
        return np.exp2(-np.maximum(age, 0)).astype(np.float32)

    def when(self, since: int, until: int) -> Floats:
        """1 for a page of that time: by the date in its slug, else by when it was made or last changed."""
        of = self._of
        dated = (of.dated_from.values <= until) & (of.dated_to.values >= since)
        for moment in (of.created.values, of.updated.values):
            dated |= (of.dated_to.values == 0) & (moment >= since) & (moment <= until)
        return (dated & self._visible).astype(np.float32)

    def meaning(self, question: bytes) -> Floats:
        """Cosine of the question's vector (32-bit floats) and each page's nearest passage, at least 0."""
        of = self._of.row_page.values
        nearest = self._zero.copy()
        if len(of):
            cosine = self._of.matrix[: len(of)] @ np.frombuffer(question, np.float32)
            there = of >= 0
            np.maximum.at(nearest, of[there], cosine[there])
        return nearest * self._visible

    def greatest(self, vector: Any) -> float:
        """The greatest number of a vector, at least 0; 0 where there are no pages."""
        return float(np.max(vector, initial=0.0))

    def at_least(self, vector: Any, least: float) -> Floats:
        """1 for each page whose number is at least `least`."""
        return (vector >= least).astype(np.float32)

    # -- results ---------------------------------------------------------------------------------

    def best(self, score: Any, among: Any, keep: SearchFilter, limit: int) -> Sequence[int]:
        """Places of the `limit` best pages that pass `keep` and are above 0 in `among`; ties by slug."""
        allowed = (among > 0) & self._visible
        if keep != _EVERYTHING:
            allowed &= self._passing(keep)
        places = np.flatnonzero((score >= _reached(score * allowed, limit)) & allowed)
        values = score[places]
        if len(places) > limit:
            least = np.partition(values, -limit)[-limit]
            places = places[values >= least]
        slugs = self._of.slugs
        return sorted(places.tolist(), key=lambda place: (-float(score[place]), slugs[place]))[:limit]

    def score_at(self, vector: Any, place: int) -> float:
        """One page's number."""
        return float(vector[place])

    def page_id(self, place: int) -> str:
        """Whose place it is."""
        return self._of.page_ids[place]

    def best_passage(self, place: int, words: Mapping[str, float]) -> int:
        """Which of a page's passages has most of the words."""
        passages = np.array(self._of.passages(place), np.int64)
        if not len(passages):
            return 0
        found = np.zeros(len(passages))
        for word, weight in words.items():
            found[self._of.passage_words.among(passages, word)] += weight * self.rarity(word)
        return int(found.argmax())

    # -- inside ----------------------------------------------------------------------------------

    def _hits(self, word: str) -> Hits | None:
        """The visible places that have a word, and how often."""
        return self._kept((word, ""), lambda: self._seen_hits(self._of.words.get(word)))

    def _kept(self, key: Hashable, make: Callable[[], Hits | None]) -> Hits | None:
        """What `make` gives, None where it is empty; remembered while words asked for since leave it room."""
        if key not in self._known:
            hits = make()
            self._known[key] = hits if hits is not None and len(hits[0]) else None
            self._held += len(hits[0]) + 1 if hits is not None else 1
            while self._held > _MOST_HELD and len(self._known) > 1:  # the view outlives its questions
                oldest = self._known.pop(next(iter(self._known)))
                self._held -= len(oldest[0]) + 1 if oldest is not None else 1
        return self._known[key]

    def _seen_hits(self, hits: Hits | None) -> Hits | None:
        if hits is None or self._whole:
            return hits
        seen = self._visible[hits[0]]
        return (hits[0][seen], hits[1][seen]) if seen.any() else None

    def _in_folders(self, hits: Hits | None) -> Hits | None:
        """Which folders have the pages that were hit, and how often all of them together."""
        if hits is None:
            return None
        times = np.zeros(len(self._of.folder_pages), np.float32)
        np.add.at(times, self._of.folder.values.take(hits[0]), hits[1])
        times[0] = 0
        places = np.flatnonzero(times > 0)
        return places, times[places]

    def _along(self, word: str) -> Places:
        """The visible pages that have a word in the names of their folders."""
        return self._seen(self._of.labelled("folder", word))

    def _shown(self, column: NDArray[Any]) -> NDArray[Any]:
        """What a column has of the visible places."""
        return column if self._whole else column[self._visible]

    def _seen(self, places: Places) -> Places:
        return places if self._whole else places[self._visible[places]]

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

    def _norm(self, saturation: Saturation) -> Floats:
        return self.once(
            ("norm", saturation), lambda: _norm(self._of.length.values, self._mean_length, saturation)
        )

    @cached_property
    def _mean_length(self) -> float:
        total = float(self._shown(self._of.length.values).sum(dtype=np.float64))
        return max(total / max(self._pages, 1), 1.0)

    @cached_property
    def _folder_sizes(self) -> tuple[Places, Floats]:
        """How many visible pages and words each folder has; number 0, which is no folder, has none."""
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


def _norm(length: Floats, mean: float, saturation: Saturation) -> Floats:
    """BM25's denominator beside the count."""
    k1, b = saturation.k1, saturation.b
    length = np.maximum(length, 1)  # of nothing at all: what has no word is divided by no zero
    return np.float32(k1 * (1 - b)) + np.float32(k1 * b / mean) * length


def _saturated(hits: Hits | None, norm: Floats) -> Hits | None:
    """Where a word stands, with the part of BM25 that no question changes."""
    if hits is None:
        return None
    places, times = hits
    return places, np.divide(times, times + norm.take(places), dtype=np.float32)


def _steps(places: Places, step: int) -> tuple[Places | slice, Places, Places]:
    """Which places have a neighbour elsewhere than one `step` on, where that is, and which have none."""
    ends = np.flatnonzero(places < 0)
    odd = np.flatnonzero(places != np.arange(step, len(places) + step))
    odd = odd[places[odd] >= 0]
    if len(odd) > len(places) * _SCATTERED:
        return slice(None), np.maximum(places, 0), ends
    return odd, places[odd], ends


def _rarity(having: int, of: int) -> float:
    return math.log(1 + (of - having + 0.5) / (having + 0.5))


def _greatest(vector: Floats, count: int) -> Places:
    """Places of the greatest numbers, at most `count`, none far below the best."""
    best = float(np.max(vector, initial=0.0))
    least = max(_LENDS * best, _reached(vector, count))
    places = np.flatnonzero(vector >= least) if best > 0 else np.zeros(0, np.int64)
    if len(places) > count:
        places = places[np.argsort(-vector[places], kind="stable")[:count]]
    return places


def _reached(vector: Floats, count: int) -> float:
    """A number near the `count`-th greatest which as many places reach; 0 where there is none."""
    tops = np.maximum.reduceat(vector, np.arange(0, len(vector), _BLOCK)) if len(vector) else vector
    return float(np.partition(tops, -count)[-count]) if len(tops) > count else 0.0
