"""`signals.Index` on numpy: an account's pages with the views that callers have of them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.store.search.page_store import IndexedPages
from sixfold.store.search.query_view import PageView

_LET_GO = 2**24  # bytes of the vectors that a search lets go, and more


class PageIndex(IndexedPages):
    """All pages of one account, as of the last change that was read."""

    def __init__(self) -> None:
        super().__init__()
        self.position: tuple[int, str] = (0, "")
        self.vectors_position: tuple[int, str] = (0, "")
        self._views: dict[frozenset[str], PageView] = {}
        # glibc gives back to the system what is free beyond twice the largest block that it has seen go, and
        # the system clears it each time anew: with vectors alone to judge by, a third of what a search costs.
        np.empty(_LET_GO, np.uint8)

    def put(self, page_id: str, entry: IndexEntry) -> None:
        """A page as it now stands, in place of what was there of it."""
        self._views.clear()
        super().put(page_id, entry)

    def remove(self, page_id: str) -> None:
        """Forget a page; one that is not there is no error."""
        self._views.clear()
        super().remove(page_id)

    def view(self, collections: Collection[str]) -> PageView:
        """What a caller limited to `collections` sees; all of it when they are empty."""
        key = frozenset(collections)
        found = self._views.get(key)
        if found is None:
            visible = self.having("collection", key) if key else self.alive.values.copy()
            if len(self._views) >= 16:  # keys of one account that differ in what they see
                self._views.clear()
            found = self._views[key] = PageView(self, visible, whole=not key)
        return found
