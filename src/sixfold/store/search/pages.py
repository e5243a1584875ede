"""The pages of one account in memory: postings, order, folders, links and vectors.

Every page has a *place*. One that is written anew takes a fresh place and leaves the old one dead, so nothing
is ever searched for in the lists; when more places are dead than alive, the index is worn, and its owner
reads it anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from sixfold.core.memory.indexing.entries import Entry
from sixfold.core.memory.inference import dates
from sixfold.core.memory.search import moments
from sixfold.store.search import order
from sixfold.store.search.columns import MOST_PLACES, Column, Flags, Lists, Postings
from sixfold.store.search.spelling import Spellings

DIMENSIONS = 384
MOST_MICROS = 2**62
_PAGE_BYTES = 920  # what the Python side of one page takes, measured
_WORN = 1_000  # dead places that are worth no thought


class Pages:
    """What is known of every page, written page by page and read by `PageView` column by column."""

    def __init__(self) -> None:
        self.words = Postings()
        self.spellings = Spellings(self.words)
        self.names = Lists()
        self.tags = Lists()
        self.collections = Lists()
        self.types: dict[str, int] = {}
        self.order = order.Order()
        self.alive = Column(np.bool_)
        self.length = Column(np.float32)
        self.created = Column(np.int64)
        self.updated = Column(np.int64)
        self.dated_from = Column(np.int64)  # what its slug tells of its time;
        self.dated_to = Column(np.int64)  # 0 where that is nothing
        self.type = Column(np.int32)
        self.folder = Column(np.int64)
        self.part = Column(np.bool_)
        self.states = Column(np.bool_)
        self.path = Lists()
        self.passage_words = Postings()
        self.passage_page = Column(np.int64)
        self.passage_length = Column(np.float32)
        self.page_ids: list[str] = []
        self.slugs: list[str] = []
        self.folder_pages = Column(np.int64)
        self.folder_words = Column(np.float64)
        self._folders: dict[str, int] = {}
        self._folder("")
        self._place: dict[str, int] = {}
        self._targets: dict[str, tuple[str, ...]] = {}
        self._sources: dict[str, set[str]] = {}
        self.matrix = np.zeros((0, DIMENSIONS), np.float32)
        self.row_page = Column(np.int64)
        self._embedded: set[int] = set()

    # -- writing ---------------------------------------------------------------------------------

    def put(self, page_id: str, entry: Entry) -> None:
        """A page as it now stands, in place of what was there of it."""
        self.remove(page_id)
        place = self.alive.append(True)
        if place >= MOST_PLACES or len(self.passage_page) + len(entry.passages) >= MOST_PLACES:
            raise OverflowError("an account's index has no room for more pages")
        self._place[page_id] = place
        self.page_ids.append(page_id)
        self.slugs.append(entry.slug)
        self.created.append(entry.created_at)
        self.words.add(place, entry.terms)
        self.length.append(sum(entry.terms.values()))
        self.updated.append(entry.updated_at)
        first, last = moments.named(dates.of_slug(entry.slug)) or (MOST_MICROS, 0)
        self.dated_from.append(first)
        self.dated_to.append(last)
        self.type.append(self.types.setdefault(entry.type, len(self.types)))
        folder = self._folder(order.folder(entry.slug))
        self.folder.append(folder)
        self.folder_pages[folder] += 1
        self.folder_words[folder] += self.length[place]
        self.order.add(place, entry.slug, entry.created_at)
        self.part.append(not entry.article)
        self.states.append(not entry.asks)
        self.names.add(place, entry.names)
        self.path.add(place, entry.path)
        self.tags.add(place, entry.tags)
        self.collections.add(place, entry.collections)
        for words in entry.passages:
            passage = self.passage_page.append(place)
            self.passage_length.append(sum(words.values()))
            self.passage_words.add(passage, words)

    def place(self, page_id: str) -> int | None:
        """Where a page is; None for one that is not there."""
        return self._place.get(page_id)

    def remove(self, page_id: str) -> None:
        """Forget a page; one that is not there is no error."""
        place = self._place.pop(page_id, None)
        if place is None:
            return
        self.alive[place] = False
        folder = self.folder[place]
        self.folder_pages[folder] -= 1
        self.folder_words[folder] -= self.length[place]
        self.order.remove(place, self.slugs[place], int(self.created[place]))
        self.link(page_id, ())

    def link(self, page_id: str, targets: Collection[str]) -> None:
        """The pages to which a page leads, in place of those that were there."""
        for target in self._targets.pop(page_id, ()):
            self._sources.get(target, set()).discard(page_id)
        if targets:
            self._targets[page_id] = tuple(sorted(set(targets)))
            for target in targets:
                self._sources.setdefault(target, set()).add(page_id)

    def linked_from(self, page_id: str, source: str) -> None:
        """One more page that leads to a page."""
        self.link(source, {*self._targets.get(source, ()), page_id})

    def embed(self, page_id: str, vectors: bytes) -> None:
        """The vectors of a page's passages, 16-bit floats one after the other; none for an unknown page."""
        place = self._place.get(page_id)
        if place is None:
            return
        if place in self._embedded:
            self.row_page.values[self.row_page.values == place] = -1
        self._embedded.add(place)
        rows = np.frombuffer(vectors, np.float16).reshape(-1, DIMENSIONS)
        start = len(self.row_page)
        for _ in rows:
            self.row_page.append(place)
        if len(self.row_page) > len(self.matrix):
            grown = np.zeros((max(256, 2 * len(self.matrix), len(self.row_page)), DIMENSIONS), np.float32)
            grown[:start] = self.matrix[:start]
            self.matrix = grown
        self.matrix[start : len(self.row_page)] = rows

    def _folder(self, name: str) -> int:
        """The number of a folder; a new one has nothing yet."""
        if name not in self._folders:
            self._folders[name] = self.folder_pages.append(0)
            self.folder_words.append(0)
        return self._folders[name]

    # -- reading ---------------------------------------------------------------------------------

    def having(self, lists: Lists, names: Iterable[str]) -> Flags:
        """Which places stand in any of the named lists."""
        flags = np.zeros(len(self.alive), np.bool_)
        for name in names:
            flags[lists.get(name)] = True
        return flags

    def neighbours(self, place: int) -> Sequence[int]:
        """The places to which a place leads, and those that lead to it."""
        page_id = self.page_ids[place]
        targets, sources = self._targets.get(page_id), self._sources.get(page_id)
        if not targets and not sources:
            return ()
        ids = {*(targets or ()), *(sources or ())} - {page_id}
        return [self._place[other] for other in ids if other in self._place]

    @property
    def folders(self) -> int:
        """How many folders there are; number 0 is none."""
        return len(self._folders)

    def __len__(self) -> int:
        """How many pages there are."""
        return len(self._place)

    @property
    def vectors(self) -> int:
        """How many passages have a vector."""
        of = self.row_page.values
        return int(np.count_nonzero(self.alive.values[of[of >= 0]]))

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        places = len(self.alive) * _PAGE_BYTES
        words = self.words.size + self.spellings.size + self.passage_words.size
        return words + places + self.matrix.nbytes

    @property
    def worn(self) -> bool:
        """Whether more of it is of the past than of the present: reading it anew would make it smaller."""
        return len(self.alive) - len(self._place) > len(self._place) + _WORN
