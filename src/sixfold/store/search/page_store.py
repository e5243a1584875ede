"""The pages of one account in memory: postings, order, folders, links and vectors.

Every page has a *place*, which stays the same when the page is edited and is reused after its deletion.
So edits do not make an index larger or slower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from sixfold.core.memory.indexing.answer_kinds import KINDS
from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.core.memory.relation_extraction import dates
from sixfold.core.memory.search import time_expressions
from sixfold.store.search import folder_order
from sixfold.store.search.columns import NOBODY, Flags, FreeList, PackedColumn, Places, Postings, SharedBuffer
from sixfold.store.search.spelling import Spellings

DIMENSIONS = 384
MOST_MICROS = 2**62
Label = Literal["name", "title", "folder", "tag", "collection"]
_PAGE_BYTES = 920  # measured size of the Python objects of one page


class IndexedPages:
    """Indexed data of all pages, written page by page and read by `PageView` column by column.

    An unused place occurs in no posting and has no folder, neighbour or length.
    """

    def __init__(self) -> None:
        self.words = Postings()
        self.spellings = Spellings(self.words)
        self.labels = Postings()  # tags, types and other properties for filters
        self.types: dict[str, int] = {}
        self.alive = PackedColumn(np.bool_)
        self.length = PackedColumn(np.float32)
        self.created = PackedColumn(np.int64)
        self.updated = PackedColumn(np.int64)
        self.dated_from = PackedColumn(np.int64)  # first moment of the date in the slug;
        self.dated_to = PackedColumn(np.int64)  # 0 without a date
        self.type = PackedColumn(np.int32)
        self.folder = PackedColumn(np.int64)
        self.part = PackedColumn(np.bool_)
        self.states = PackedColumn(np.bool_)
        # counts of times, numbers and names
        self.holds = tuple(PackedColumn(np.int8) for _ in KINDS)
        self.title_words = PackedColumn(np.int8)
        self.several = PackedColumn(np.bool_)  # whether a page has several passages
        self.passage_words = Postings()
        self.passage_page = PackedColumn(np.int64)
        self.passage_length = PackedColumn(np.float32)
        self.page_ids: list[str] = []
        self.slugs: list[str] = []
        self.order = folder_order.FolderOrder(self.slugs, self.created)
        self.folder_pages = PackedColumn(np.int64)
        self.folder_words = PackedColumn(np.float64)
        self.matrix = np.zeros((0, DIMENSIONS), np.float32)
        self.row_page = PackedColumn(np.int64)
        self._folders: dict[str, int] = {}
        self._place: dict[str, int] = {}
        self._passages = SharedBuffer()
        self._rows = SharedBuffer()
        self._targets: dict[str, tuple[str, ...]] = {}
        self._sources: dict[str, set[str]] = {}
        self._places = FreeList()
        self._numbers = FreeList()  # numbers of folders
        self._folder("")

    # -- writing ---------------------------------------------------------------------------------

    def put(self, page_id: str, entry: IndexEntry) -> None:
        place = self._place.get(page_id)
        if place is None:
            place = self._settle(page_id)
        if (entry.slug, entry.created_at) != (self.slugs[place], self.created[place]):
            self._leave(place)
            self._enter(place, entry)
        self.words.put(place, entry.terms)
        self.labels.put(place, _labels(entry))
        self._write_passages(place, entry.passages)
        self._measure(place, sum(entry.terms.values()))
        self.updated[place] = entry.updated_at
        self.type[place] = self.types.setdefault(entry.type, len(self.types))
        self.part[place] = not entry.article
        self.states[place] = not entry.asks
        self.title_words[place] = len(entry.title)
        for column, count in zip(self.holds, entry.holds, strict=True):
            column[place] = count
        self._rows_of(place, 0)
        self.link(page_id, ())

    def place(self, page_id: str) -> int | None:
        return self._place.get(page_id)

    def remove(self, page_id: str) -> None:
        """Remove a page, if it exists."""
        place = self._place.pop(page_id, None)
        if place is None:
            return
        self._leave(place)
        self.words.put(place, {})
        self.labels.put(place, {})
        self._write_passages(place, ())
        self._rows_of(place, 0)
        self.link(page_id, ())
        self.alive[place] = False
        self.updated[place] = 0
        self.page_ids[place] = ""
        self._places.give_back(place)

    def link(self, page_id: str, targets: Collection[str]) -> None:
        """Replace the outgoing links of a page."""
        for target in self._targets.pop(page_id, ()):
            self._sources.get(target, set()).discard(page_id)
        if targets:
            self._targets[page_id] = tuple(sorted(set(targets)))
            for target in targets:
                self._sources.setdefault(target, set()).add(page_id)

    def linked_from(self, page_id: str, source: str) -> None:
        """Add an incoming link of a page."""
        self.link(source, {*self._targets.get(source, ()), page_id})

    def embed(self, page_id: str, vectors: bytes) -> None:
        """Set the vectors of a page's passages (concatenated 16-bit floats), if the page exists."""
        place = self._place.get(page_id)
        if place is None:
            return
        vectors_of = np.frombuffer(vectors, np.float16).reshape(-1, DIMENSIONS)
        rows = self._rows_of(place, len(vectors_of))
        if len(self.row_page) > len(self.matrix):
            grown = np.zeros((max(256, 2 * len(self.matrix), len(self.row_page)), DIMENSIONS), np.float32)
            grown[: len(self.matrix)] = self.matrix
            self.matrix = grown
        self.matrix[rows] = vectors_of

    def _settle(self, page_id: str) -> int:
        place = self._place[page_id] = self._places.take()
        if place == len(self.page_ids):
            self.page_ids.append("")
            self.slugs.append("")
        self.page_ids[place] = page_id
        self.alive[place] = True
        self.length[place] = 0
        self.created[place] = 0
        return place

    def _enter(self, place: int, entry: IndexEntry) -> None:
        self.slugs[place] = entry.slug
        self.created[place] = entry.created_at
        first, last = time_expressions.named(dates.of_slug(entry.slug)) or (MOST_MICROS, 0)
        self.dated_from[place], self.dated_to[place] = first, last
        folder = self.folder[place] = self._folder(folder_order.folder(entry.slug))
        self.folder_pages[folder] += 1
        self.order.add(place)

    def _leave(self, place: int) -> None:
        slug = self.slugs[place]
        if not slug:
            return
        self._measure(place, 0)
        self.order.remove(place)
        folder = int(self.folder[place])
        self.folder_pages[folder] -= 1
        if folder and not self.folder_pages[folder]:
            del self._folders[folder_order.folder(slug)]
            self._numbers.give_back(folder)
        self.folder[place] = 0
        self.slugs[place] = ""

    def _folder(self, name: str) -> int:
        number = self._folders.get(name)
        if number is None:
            number = self._folders[name] = self._numbers.take()
            self.folder_pages[number] = 0
            self.folder_words[number] = 0
        return number

    def _measure(self, place: int, words: int) -> None:
        self.folder_words[self.folder[place]] += words - self.length[place]
        self.length[place] = words

    def _write_passages(self, place: int, passages: Sequence[Mapping[str, int]]) -> None:
        mine, spare = self._passages.fit(place, len(passages))
        for passage in spare:
            self._write_passage(passage, NOBODY, {})
        for passage, words in zip(mine, passages, strict=True):
            self._write_passage(passage, place, words)
        self.several[place] = bool(passages)

    def _write_passage(self, passage: int, place: int, words: Mapping[str, int]) -> None:
        self.passage_words.put(passage, words)
        self.passage_page[passage] = place
        self.passage_length[passage] = sum(words.values())

    def _rows_of(self, place: int, count: int) -> Sequence[int]:
        mine, spare = self._rows.fit(place, count)
        for row in spare:
            self.row_page[row] = NOBODY
        for row in mine:
            self.row_page[row] = place
        return mine

    # -- reading ---------------------------------------------------------------------------------

    def labelled(self, kind: Label, name: str) -> Places:
        return self.labels.places(f"{kind} {name}")

    def having(self, kind: Label, names: Iterable[str]) -> Flags:
        """Return a flag for each place: whether its page has any of the labels."""
        flags = np.zeros(len(self.alive), np.bool_)
        for name in names:
            flags[self.labelled(kind, name)] = True
        return flags

    def passages(self, place: int) -> Sequence[int]:
        """Return the passages of a page in order; empty for a page of one passage."""
        return self._passages.of(place)

    def neighbours(self, place: int) -> Sequence[int]:
        page_id = self.page_ids[place]
        targets, sources = self._targets.get(page_id), self._sources.get(page_id)
        if not targets and not sources:
            return ()
        ids = {*(targets or ()), *(sources or ())} - {page_id}
        return [self._place[other] for other in ids if other in self._place]

    def __len__(self) -> int:
        return len(self._place)

    @property
    def vectors(self) -> int:
        """Number of passages with a vector."""
        return self._rows.count

    @property
    def size(self) -> int:
        """Estimated bytes of memory."""
        words = self.words.size + self.spellings.size + self.labels.size + self.passage_words.size
        return words + len(self.alive) * _PAGE_BYTES + self.matrix.nbytes


def _labels(entry: IndexEntry) -> Mapping[str, int]:
    of: Mapping[Label, Iterable[str]] = {
        "name": entry.names,
        "title": entry.title,
        "folder": entry.path,
        "tag": entry.tags,
        "collection": entry.collections,
    }
    return {f"{kind} {name}": 1 for kind, names in of.items() for name in names}
