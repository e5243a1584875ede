"""A view with vectors of only those pages that a query of rare words can find.

In a large memory, a vector of all pages takes longer to compute than all other steps of such a search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sixfold.store.search.columns import NO_PAGE, Floats, Positions
from sixfold.store.search.page_numbers import Rows
from sixfold.store.search.page_store import IndexedPages
from sixfold.store.search.query_view import PageView, Side
from sixfold.store.search.vectors import distinct
from sixfold.store.search.visible_pages import VisiblePages

T = TypeVar("T")
MIN_PAGES = 10_000  # memories with fewer pages are ranked completely
MAX_SHARE = 1 / 32  # of all pages: the postings of a query above which all pages are ranked
_NEIGHBORS = 2  # pages before and after a page that its words affect
# The numbers of mixed folders, and of pages whose links are followed, above which all pages are ranked.
_MAX_FOLDERS, _MAX_TITLED = 64, 200


class NarrowView(PageView):
    """A view of the pages at some ascending positions; scores of all other pages are not computed."""

    def __init__(self, pages: VisiblePages, positions: Positions) -> None:
        super().__init__(pages)
        self._at = positions

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        return make()

    def _column(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.take(self._at)

    def _rows(self, positions: Positions) -> tuple[Positions, Positions | slice]:
        rows = np.searchsorted(self._at, positions)
        has_row = self._at.take(rows, mode="clip") == positions if len(self._at) else rows < 0
        kept = np.flatnonzero(has_row)
        return rows[kept], kept

    def _row(self, position: int) -> int:
        return int(np.searchsorted(self._at, position))

    def _positions(self, rows: Positions) -> Positions:
        return self._at[rows]

    def _derived(self, key: Hashable, compute: Callable[[Rows], Floats], version: int = 0) -> Floats:
        return compute(self._at)

    def _beside(self, vector: Any, side: Side) -> Floats:
        if vector is self._zero:
            return vector
        rows, kept = self._neighbors[side]
        buffer = self._zero.copy()
        buffer[kept] = vector[rows]
        return buffer

    def titled(self, words: Collection[str]) -> Positions:
        """Return the positions of the pages of whose title all words are in `words`."""
        return self._positions(np.flatnonzero(self.title_shares(words)))

    @cached_property
    def _neighbors(self) -> dict[Side, tuple[Positions, Positions | slice]]:
        order = self._of.order
        columns: dict[Side, NDArray[Any]] = {"before": order.before.values, "after": order.after.values}
        return {side: self._rows(self._column(column)) for side, column in columns.items()}


class FullView(PageView):
    """A view of all pages of an index."""

    def narrowed(self, words: Collection[str], page_ids: Collection[str], *, linked: bool) -> PageView:
        """Return a view of the pages that affect the results, or this view if they may be many."""
        pages, index = self._pages, self._of
        if len(index) < MIN_PAGES or sum(map(pages.having, words)) > len(index) * MAX_SHARE:
            return self
        found = [hits[0] for word in words if (hits := pages.hits(word)) is not None]
        found += [pages.labelled(kind, word) for word in words for kind in ("folder", "title")]
        if sum(map(len, found)) > len(index) * MAX_SHARE:
            return self
        others = [position for page_id in page_ids if (position := index.position_of(page_id)) is not None]
        having = distinct([*found, pages.of(np.array(others, np.int64))])
        mixed = _mixed_folders(index, having)
        if len(mixed) > _MAX_FOLDERS:
            return self
        around = [having, *(_first_part(pages, position) for position in mixed.tolist())]
        for column in (index.order.before.values, index.order.after.values):
            beside = having
            for _ in range(_NEIGHBORS):
                beside = column.take(beside).astype(np.int64)
                beside = beside[beside != NO_PAGE]
                around.append(beside)
        view = NarrowView(pages, distinct(around))
        if not linked:
            return view
        titled = view.titled(words)
        if len(titled) > _MAX_TITLED:
            return self
        neighbors = [other for position in titled.tolist() for other in index.neighbors(position)]
        return NarrowView(pages, distinct([*around, np.array(neighbors, np.int64)]))


def _mixed_folders(index: IndexedPages, having: Positions) -> Positions:
    """Return a page of each folder in which only articles have words, but other pages are parts.

    The folder's words count more for a part than for an article, so one of these parts may have the greatest
    score of a text, by which all scores are scaled.
    """
    folders, part = index.folder.values[having], index.part.values[having]
    numbers, first = np.unique(folders, return_index=True)
    mixed = (numbers > 0) & (index.folder_parts.values[numbers] > 0) & ~np.isin(numbers, folders[part])
    return having[first[mixed]]


def _first_part(pages: VisiblePages, position: int) -> Positions:
    """Return the first visible part of a page's folder, if there is one."""
    index = pages.index
    beside = pages.of(index.order.beside(position))
    in_folder = index.folder.values[beside] == index.folder[position]
    return beside[in_folder & index.part.values[beside]][:1]
