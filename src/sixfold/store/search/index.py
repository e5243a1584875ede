"""The search port's `Index` on numpy: pages of an account, with a view for each set of collections."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.store.search.narrow_view import FullView
from sixfold.store.search.page_store import IndexedPages
from sixfold.store.search.visible_pages import VisiblePages

LARGE_PAGES = 2**18  # number of pages from which the vectors of a search take more memory than glibc keeps
_LET_GO = 2**24  # bytes, more than the vectors that a search frees


class PageIndex(IndexedPages):
    """All pages of one account as of the last applied change."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.position: tuple[int, str] = (0, "")
        self.vectors_position: tuple[int, str] = (0, "")
        self._views: dict[frozenset[str], FullView] = {}
        self._outdated: dict[frozenset[str], FullView] = {}
        # glibc returns free memory above twice the largest freed block to the system, which then clears it on
        # each reuse. Without this block, that takes a third of the time of a search.
        np.empty(_LET_GO, np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without vectors, which are read from the database again."""
        new = PageIndex()
        cleared = (
            "vectors_position", "matrix", "row_page", "_rows", "_views", "_outdated", "numbers",
            "_folder_on_disk",
        )  # fmt: skip
        return self.__dict__ | {name: getattr(new, name) for name in cleared}

    def put_many(self, pages: Sequence[tuple[str, IndexEntry]], *, on_disk: bool = False) -> None:
        self._end_views()
        super().put_many(pages, on_disk=on_disk)

    def remove(self, page_id: str) -> None:
        """Remove a page, if it exists."""
        self._end_views()
        super().remove(page_id)

    @property
    def in_memory(self) -> bool:
        """Whether no words of pages are on disk."""
        return self._disk is None

    @property
    def cache_size(self) -> int:
        """The estimated number of bytes that searches have cached."""
        views = (*self._views.values(), *self._outdated.values())
        return self.numbers.size + sum(view.size for view in views)

    def _end_views(self) -> None:
        # If the vectors of a large index were freed before those of the next view exist, glibc would return
        # their memory to the system, which then clears it for the next search.
        if self._views and len(self.alive) >= LARGE_PAGES:
            self._outdated, self._views = self._views, {}
        self._views.clear()

    def settle(self) -> None:
        """Prepare the added words for searches."""
        self.spellings.catch_up()
        if self._disk is not None:
            self._disk.settle()

    def view(self, collections: Collection[str]) -> FullView:
        """Return a view of the pages in `collections`, or of all pages if it is empty.

        Each call begins a search, with a new limit on the spellings that are compared.
        """
        self.spellings.begin()
        key = frozenset(collections)
        view = self._views.get(key)
        if view is None:
            self.numbers.catch_up(len(self.alive))
            visible = self.having("collection", key) if key else self.alive.values
            if len(self._views) >= 16:  # sets of collections to which keys of one account are limited
                self._views.clear()
            view = self._views[key] = FullView(VisiblePages(self, visible, whole=not key))
        return view
