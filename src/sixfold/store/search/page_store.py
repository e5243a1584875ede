"""The pages of one account in memory: postings, order, folders, links and vectors.

Every page has a *place*, which stays the same when the page is edited and is reused after its deletion.
Therefore edits do not make an index larger or slower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from sixfold.core.memory.indexing.answer_kinds import KINDS
from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.core.memory.relation_extraction import dates
from sixfold.core.memory.search import time_expressions
from sixfold.store.search import folder_order
from sixfold.store.search.columns import NOBODY, Flags, Floats, FreeList, PackedColumn, Places, SharedBuffer
from sixfold.store.search.disk_words import DiskWords
from sixfold.store.search.link_table import LinkTable
from sixfold.store.search.postings import Postings
from sixfold.store.search.spelling import Spellings
from sixfold.store.search.strings import StringColumn, StringTable

DIMENSIONS = 384
MAX_MICROS = 2**62
Label = Literal["name", "title", "folder", "tag", "collection"]
_PAGE_BYTES = 150  # the numbers of a page in all columns, with the overhead of their allocation
_INDEX_BYTES = 16_384  # an index without pages


class IndexedPages:
    """Indexed data of all pages, written page by page and read by `PageView` column by column.

    An unused place does not occur in postings and has no folder, neighbor or length. The same is true of the
    place of a linked page that does not exist, which is not `alive`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create the index; the words of pages that do not fit in memory are stored in a file in `folder`."""
        self._folder_on_disk = folder
        self._disk: DiskWords | None = None
        self.on_disk = PackedColumn(np.bool_)
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
        self.several = PackedColumn(np.bool_)  # whether a page has more than one passage
        self.passage_words = Postings()
        self.passage_page = PackedColumn(np.int64)
        self.passage_length = PackedColumn(np.float32)
        self.page_ids = StringColumn()
        self.slugs = StringColumn()
        self.order = folder_order.FolderOrder(self.slugs, self.created)
        self.folder_pages = PackedColumn(np.int64)
        self.folder_words = PackedColumn(np.float64)
        self.matrix = np.zeros((0, DIMENSIONS), np.float32)
        self.row_page = PackedColumn(np.int64)
        self._folders: dict[str, int] = {}
        self._place = StringTable(self.page_ids)
        self._count = 0
        self._links = LinkTable()
        self._passages = SharedBuffer()
        self._rows = SharedBuffer()
        self._places = FreeList()
        self._numbers = FreeList()  # numbers of folders
        self._folder("")
        # All columns have the same length, including the places of linked pages that do not exist.
        self._columns = (
            self.length, self.created, self.dated_from, self.dated_to, self.type, self.folder, self.part,
            *self.holds, self.states, self.title_words, self.several, self.on_disk,
        )  # fmt: skip

    # -- writing ---------------------------------------------------------------------------------

    def put(self, page_id: str, entry: IndexEntry, *, on_disk: bool = False) -> None:
        """Add or replace a page, with its words in memory or on disk."""
        place = self._settle(page_id)
        if (entry.slug, entry.created_at) != (self.slugs[place], self.created[place]):
            self._leave(place)
            self._enter(place, entry)
        self._write_words(place, entry, on_disk=on_disk)
        self._measure(place, sum(entry.terms.values()))
        self.updated[place] = entry.updated_at
        self.type[place] = self.types.setdefault(entry.type, len(self.types))
        self.part[place] = not entry.article
        self.states[place] = not entry.asks
        self.title_words[place] = len(entry.title)
        for column, count in zip(self.holds, entry.holds, strict=True):
            column[place] = count
        self._rows_of(place, 0)
        self._link(place, ())

    def place(self, page_id: str) -> int | None:
        """Return the place of a page, or None if it does not exist."""
        place = self._place.get(page_id)
        return place if place is not None and self.alive[place] else None

    def remove(self, page_id: str) -> None:
        """Remove a page, if it exists."""
        place = self.place(page_id)
        if place is None:
            return
        self._leave(place)
        self._write_words(place, None)
        self._rows_of(place, 0)
        self.alive[place] = False
        self.updated[place] = 0
        self._count -= 1
        self._link(place, ())

    def link(self, page_id: str, targets: Collection[str]) -> None:
        self._link(self._claim(page_id), [self._claim(target) for target in targets])

    def linked_from(self, page_id: str, source: str) -> None:
        place = self._claim(source)
        self._links.replace(place, {*self._links.targets(place), self._claim(page_id)})

    def embed(self, page_id: str, vectors: bytes) -> None:
        """Set the vectors of a page's passages (concatenated 16-bit floats), if the page exists."""
        place = self.place(page_id)
        if place is None:
            return
        vectors_of = np.frombuffer(vectors, np.float16).reshape(-1, DIMENSIONS)
        rows = self._rows_of(place, len(vectors_of))
        if len(self.row_page) > len(self.matrix):
            grown = np.zeros((max(256, 2 * len(self.matrix), len(self.row_page)), DIMENSIONS), np.float32)
            grown[: len(self.matrix)] = self.matrix
            self.matrix = grown
        self.matrix[rows] = vectors_of

    def _link(self, place: int, targets: Collection[int]) -> None:
        before = self._links.targets(place)
        self._links.replace(place, targets)
        for other in {*before, place}:
            self._release(other)

    def _settle(self, page_id: str) -> int:
        place = self._claim(page_id)
        if not self.alive[place]:
            self.alive[place] = True
            self.length[place] = 0
            self.created[place] = 0
            self._count += 1
        return place

    def _claim(self, page_id: str) -> int:
        place = self._place.get(page_id)
        if place is not None:
            return place
        place = self._places.take()
        if place == len(self.page_ids):
            self.slugs[place] = ""
            self._links.begin(place)
            self.alive[place] = False
            self.updated[place] = 0
            self.order.before[place] = self.order.after[place] = NOBODY
            for column in self._columns:
                column[place] = 0
        self.page_ids[place] = page_id
        self._place.add(page_id, place)
        return place

    def _release(self, place: int) -> None:
        """Release a place that has neither a page nor links."""
        if self.alive[place] or self._links.targets(place) or self._links.sources(place):
            return
        page_id = self.page_ids[place]
        if page_id:
            self._place.remove(page_id, place)
            self.page_ids[place] = ""
            self._places.release(place)

    def _enter(self, place: int, entry: IndexEntry) -> None:
        self.slugs[place] = entry.slug
        self.created[place] = entry.created_at
        first, last = time_expressions.named(dates.of_slug(entry.slug)) or (MAX_MICROS, 0)
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
            self._numbers.release(folder)
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

    def _write_words(self, place: int, entry: IndexEntry | None, *, on_disk: bool = False) -> None:
        in_memory = None if on_disk else entry
        self.words.put(place, in_memory.terms if in_memory else {})
        self.labels.put(place, _labels(in_memory) if in_memory else {})
        self._write_passages(place, in_memory.passages if in_memory else ())
        if self.on_disk[place] and self._disk is not None:
            self._disk.remove(place)
        self.on_disk[place] = on_disk
        if on_disk and entry is not None:
            if self._disk is None:
                self._disk = DiskWords(self._folder_on_disk)
            self._disk.put(place, (*entry.terms, *_labels(entry)))

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

    def hits(self, word: str) -> tuple[Places, Floats] | None:
        """Return the places that contain a word, with its count in each; the count is always 1 on disk."""
        hits = self.words.get(word)
        places = self._on_disk(word)
        if not len(places):
            return hits
        if hits is None:
            return places, np.ones(len(places), np.float32)
        both = np.concatenate((hits[0], places))
        times = np.concatenate((hits[1], np.ones(len(places), np.float32)))
        order = np.argsort(both, kind="stable")
        return both[order], times[order]

    def labelled(self, kind: Label, name: str) -> Places:
        label = f"{kind} {name}"
        places, on_disk = self.labels.places(label), self._on_disk(label)
        return np.union1d(places, on_disk) if len(on_disk) else places

    def _on_disk(self, word: str) -> Places:
        return np.zeros(0, np.int64) if self._disk is None else self._disk.places(word)

    def having(self, kind: Label, names: Iterable[str]) -> Flags:
        """Return a flag for each place: whether its page has at least one of the labels."""
        flags = np.zeros(len(self.alive), np.bool_)
        for name in names:
            flags[self.labelled(kind, name)] = True
        return flags

    def passages(self, place: int) -> Sequence[int]:
        """Return the passages of a page in order; empty if the page has only one passage."""
        return self._passages.of(place)

    def neighbours(self, place: int) -> Sequence[int]:
        others = {*self._links.targets(place), *self._links.sources(place)} - {place}
        return [other for other in others if self.alive[other]]

    def __len__(self) -> int:
        return self._count

    @property
    def vectors(self) -> int:
        """The number of passages with a vector."""
        return self._rows.count

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        parts = (
            self.words, self.spellings, self.labels, self.passage_words, self.page_ids, self.slugs,
            self._place, self._links,
        )  # fmt: skip
        numbers = _INDEX_BYTES + len(self.alive) * _PAGE_BYTES + self.matrix.nbytes
        return sum(part.size for part in parts) + numbers


def _labels(entry: IndexEntry) -> Mapping[str, int]:
    of: Mapping[Label, Iterable[str]] = {
        "name": entry.names,
        "title": entry.title,
        "folder": entry.path,
        "tag": entry.tags,
        "collection": entry.collections,
    }
    return {f"{kind} {name}": 1 for kind, names in of.items() for name in names}
