"""The pages of one account in memory: postings, order, folders, links and vectors.

Every page has a *position*, which stays the same when the page is edited and is reused after its deletion.
Therefore edits do not make an index larger or slower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from sixfold.core.memory.indexing.answer_kinds import KINDS
from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.core.memory.relation_extraction import dates
from sixfold.core.memory.search import time_expressions
from sixfold.store.search import folder_order
from sixfold.store.search.columns import (
    NO_PAGE,
    Flags,
    Floats,
    FreeList,
    PackedColumn,
    Positions,
    SharedBuffer,
)
from sixfold.store.search.disk_words import DiskWords
from sixfold.store.search.link_table import LinkTable
from sixfold.store.search.page_numbers import PageNumbers
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

    An unused position does not occur in postings, and its folder, neighbors and length are empty. The same is
    true of the position of a linked page that does not exist, which is not `alive`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create the index; the words of pages that do not fit in memory are stored in a file in `folder`."""
        self._folder_on_disk = folder
        self._disk: DiskWords | None = None
        self.on_disk = PackedColumn(np.bool_)
        self.words = Postings()
        self.spellings = Spellings(self.words)
        self.numbers = PageNumbers()
        self.labels = Postings()  # tags, names, and words of titles and folders; see `Label`
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
        self.folder_parts = PackedColumn(np.int64)  # number of pages that are parts of their folder
        self.matrix = np.zeros((0, DIMENSIONS), np.float32)
        self.row_page = PackedColumn(np.int64)
        self._folders: dict[str, int] = {}
        self._position = StringTable(self.page_ids)
        self._count = 0
        self._newest: int | None = 0  # None if the newest page has been removed
        self._links = LinkTable()
        self._passages = SharedBuffer()
        self._rows = SharedBuffer()
        self._positions = FreeList()
        self._numbers = FreeList()  # numbers of folders
        self._folder("")
        # All columns have the same length, including the positions of linked pages that do not exist.
        self._columns = (
            self.length, self.created, self.dated_from, self.dated_to, self.type, self.folder, self.part,
            *self.holds, self.states, self.title_words, self.several, self.on_disk,
        )  # fmt: skip

    # -- writing ---------------------------------------------------------------------------------

    def put(self, page_id: str, entry: IndexEntry, *, on_disk: bool = False) -> None:
        """Add or replace a page, with its words in memory or on disk."""
        self.put_many([(page_id, entry)], on_disk=on_disk)

    def put_many(self, pages: Sequence[tuple[str, IndexEntry]], *, on_disk: bool = False) -> None:
        """Add or replace distinct pages; the words of new pages are added together."""
        entries = {self._put(page_id, entry): entry for page_id, entry in pages}
        self._write_words(entries, on_disk=on_disk)

    def _put(self, page_id: str, entry: IndexEntry) -> int:
        """Write everything but the words of a page, and return its position."""
        position = self._settle(page_id)
        if (entry.slug, entry.created_at) != (self.slugs[position], self.created[position]):
            self._leave(position)
            self._enter(position, entry)
        self._measure(position, sum(entry.terms.values()))
        self._update(position, entry.updated_at)
        self.type[position] = self.types.setdefault(entry.type, len(self.types))
        self._set_part(position, not entry.article)
        self.states[position] = not entry.asks
        self.title_words[position] = len(entry.title)
        for column, count in zip(self.holds, entry.holds, strict=True):
            column[position] = count
        self._rows_of(position, 0)
        self._link(position, ())
        return position

    def position_of(self, page_id: str) -> int | None:
        """Return the position of a page, or None if it does not exist."""
        position = self._position.get(page_id)
        return position if position is not None and self.alive[position] else None

    def remove(self, page_id: str) -> None:
        """Remove a page, if it exists."""
        position = self.position_of(page_id)
        if position is None:
            return
        self.numbers.change(position)
        self._leave(position)
        self._write_words({position: None})
        self._rows_of(position, 0)
        self.alive[position] = False
        self._update(position, 0)
        self._count -= 1
        self._link(position, ())

    def link(self, page_id: str, targets: Collection[str]) -> None:
        self._link(self._claim(page_id), [self._claim(target) for target in targets])

    def linked_from(self, page_id: str, source: str) -> None:
        position = self._claim(source)
        self._links.replace(position, {*self._links.targets(position), self._claim(page_id)})

    def embed(self, page_id: str, vectors: bytes) -> None:
        """Set the vectors of a page's passages (concatenated 16-bit floats), if the page exists."""
        position = self.position_of(page_id)
        if position is None:
            return
        vectors_of = np.frombuffer(vectors, np.float16).reshape(-1, DIMENSIONS)
        rows = self._rows_of(position, len(vectors_of))
        if len(self.row_page) > len(self.matrix):
            grown = np.zeros((max(256, 2 * len(self.matrix), len(self.row_page)), DIMENSIONS), np.float32)
            grown[: len(self.matrix)] = self.matrix
            self.matrix = grown
        self.matrix[rows] = vectors_of

    def _link(self, position: int, targets: Collection[int]) -> None:
        before = self._links.targets(position)
        self._links.replace(position, targets)
        for other in {*before, position}:
            self._release(other)

    def _settle(self, page_id: str) -> int:
        position = self._claim(page_id)
        self.numbers.change(position)
        if not self.alive[position]:
            self.alive[position] = True
            self.length[position] = 0
            self.created[position] = 0
            self._count += 1
        return position

    def _claim(self, page_id: str) -> int:
        position = self._position.get(page_id)
        if position is not None:
            return position
        position = self._positions.take()
        if position == len(self.page_ids):
            self.slugs[position] = ""
            self._links.begin(position)
            self.alive[position] = False
            self.updated[position] = 0
            self.order.before[position] = self.order.after[position] = NO_PAGE
            for column in self._columns:
                column[position] = 0
        self.page_ids[position] = page_id
        self._position.add(page_id, position)
        return position

    def _release(self, position: int) -> None:
        """Release a position that has neither a page nor links."""
        if self.alive[position] or self._links.targets(position) or self._links.sources(position):
            return
        page_id = self.page_ids[position]
        if page_id:
            self._position.remove(page_id, position)
            self.page_ids[position] = ""
            self._positions.release(position)

    def _enter(self, position: int, entry: IndexEntry) -> None:
        self.slugs[position] = entry.slug
        self.created[position] = entry.created_at
        first, last = time_expressions.named(dates.of_slug(entry.slug)) or (MAX_MICROS, 0)
        self.dated_from[position], self.dated_to[position] = first, last
        folder = self.folder[position] = self._folder(folder_order.folder(entry.slug))
        self.folder_pages[folder] += 1
        self.order.add(position)

    def _leave(self, position: int) -> None:
        slug = self.slugs[position]
        if not slug:
            return
        self._measure(position, 0)
        self._set_part(position, False)
        self.order.remove(position)
        folder = int(self.folder[position])
        self.folder_pages[folder] -= 1
        if folder and not self.folder_pages[folder]:
            del self._folders[folder_order.folder(slug)]
            self._numbers.release(folder)
        self.folder[position] = 0
        self.slugs[position] = ""

    def _folder(self, name: str) -> int:
        number = self._folders.get(name)
        if number is None:
            number = self._folders[name] = self._numbers.take()
            self.folder_pages[number] = 0
            self.folder_words[number] = 0
            self.folder_parts[number] = 0
        return number

    def _measure(self, position: int, words: int) -> None:
        self.folder_words[self.folder[position]] += words - self.length[position]
        self.length[position] = words

    def _set_part(self, position: int, part: bool) -> None:
        self.folder_parts[self.folder[position]] += int(part) - int(self.part[position])
        self.part[position] = part

    def _update(self, position: int, moment: int) -> None:
        if self._newest is not None and moment >= self._newest:
            self._newest = moment
        elif self.updated[position] == self._newest:
            self._newest = None
        self.updated[position] = moment

    def _write_words(self, entries: Mapping[int, IndexEntry | None], *, on_disk: bool = False) -> None:
        """Replace the words of pages by position; None removes them."""
        in_memory = {position: None if on_disk else entry for position, entry in entries.items()}
        self.words.put_many({at: entry.terms if entry else {} for at, entry in in_memory.items()})
        self.labels.put_many({at: _labels(entry) if entry else {} for at, entry in in_memory.items()})
        passages: dict[int, Mapping[str, int]] = {}
        for position, entry in in_memory.items():
            passages.update(self._passages_of(position, entry.passages if entry else ()))
        self.passage_words.put_many(passages)
        for position, entry in entries.items():
            if self.on_disk[position] and self._disk is not None:
                self._disk.remove(position)
            self.on_disk[position] = on_disk
            if on_disk and entry is not None:
                if self._disk is None:
                    self._disk = DiskWords(self._folder_on_disk)
                self._disk.put(position, (*entry.terms, *_labels(entry)))

    def _passages_of(
        self, position: int, passages: Sequence[Mapping[str, int]]
    ) -> Iterator[tuple[int, Mapping[str, int]]]:
        """Assign the passages of a page, and yield their numbers and words, as well as those released."""
        mine, spare = self._passages.fit(position, len(passages))
        self.several[position] = bool(passages)
        for passage in spare:
            yield self._passage(passage, NO_PAGE, {})
        for passage, words in zip(mine, passages, strict=True):
            yield self._passage(passage, position, words)

    def _passage(
        self, passage: int, position: int, words: Mapping[str, int]
    ) -> tuple[int, Mapping[str, int]]:
        self.passage_page[passage] = position
        self.passage_length[passage] = sum(words.values())
        return passage, words

    def _rows_of(self, position: int, count: int) -> Sequence[int]:
        mine, spare = self._rows.fit(position, count)
        for row in spare:
            self.row_page[row] = NO_PAGE
        for row in mine:
            self.row_page[row] = position
        return mine

    # -- reading ---------------------------------------------------------------------------------

    def hits(self, word: str) -> tuple[Positions, Floats] | None:
        """Return the positions of the pages with a word, and its counts, which are always 1 on disk."""
        hits = self.words.get(word)
        positions = self._on_disk(word)
        if not len(positions):
            return hits
        if hits is None:
            return positions, np.ones(len(positions), np.float32)
        both = np.concatenate((hits[0], positions))
        times = np.concatenate((hits[1], np.ones(len(positions), np.float32)))
        order = np.argsort(both, kind="stable")
        return both[order], times[order]

    def labelled(self, kind: Label, name: str) -> Positions:
        label = f"{kind} {name}"
        positions, on_disk = self.labels.positions(label), self._on_disk(label)
        return np.union1d(positions, on_disk) if len(on_disk) else positions

    def _on_disk(self, word: str) -> Positions:
        return np.zeros(0, np.int64) if self._disk is None else self._disk.positions(word)

    def having(self, kind: Label, names: Iterable[str]) -> Flags:
        """Return a flag for each position: whether its page has at least one of the labels."""
        flags = np.zeros(len(self.alive), np.bool_)
        for name in names:
            flags[self.labelled(kind, name)] = True
        return flags

    def passages(self, position: int) -> Sequence[int]:
        """Return the passages of a page in order; empty if the page has only one passage."""
        return self._passages.of(position)

    @property
    def newest(self) -> int:
        """The time of the last change of a page; 0 without pages."""
        if self._newest is None:
            self._newest = int(self.updated.values.max())
        return self._newest

    def neighbors(self, position: int) -> Sequence[int]:
        others = {*self._links.targets(position), *self._links.sources(position)} - {position}
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
            self._position, self._links,
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
