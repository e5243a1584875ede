"""Indexes in a server's memory, which are loaded at first use and updated with each change.

The least recently used indexes are evicted when the total is too large. An index always contains a prefix of
an account's changes, so that concurrent requests only ever advance it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.database import Database, Query, Rows, Transaction, one
from sixfold.core.memory.indexing import entries
from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.core.memory.search import ranking
from sixfold.core.memory.search.index_snapshots import IndexSnapshots
from sixfold.core.memory.search.ports import Index
from sixfold.core.memory.search.ranking import RankedQuery

_LOG = logging.getLogger("sixfold.memory")
_UNREAD = -1
_NOTHING = (0, "")  # the position of a new index
_SAVE_SECONDS = 60
_ANY_QUERY = RankedQuery({"any": 1.0})


class _Limit(msgspec.Struct, frozen=True):
    """A limit on one read: the number of changes, and the characters of their pages."""

    changes: int
    chars: int
    # The number of changes that are read regardless of their characters.
    least: int = 0


# The limit while an index is built in a thread.
_BATCH = _Limit(1_000, 2**20, least=1)
# The limit for a search on the event loop, about 10 ms; more is read in a thread.
_IN_SEARCH = _Limit(100, 2**15)


# Bytes of vectors that are read per character of a limit.
_VECTOR_BYTES = 16


class IndexStale(Exception):
    """Too many pages have changed: the index must be updated before it can serve a search."""


class _CacheSlot(msgspec.Struct):
    index: Index
    # The account's last change that the index contains.
    change: int = _UNREAD
    # The size of the index when it was last added to the total.
    size: int = 0
    # The number of changed pages that were read since the last snapshot.
    unsaved: int = 0
    reading: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class _IndexBatch(msgspec.Struct, frozen=True):
    """Some changes of an account, as read from the database."""

    since: tuple[int, str]
    pages: Rows
    links: Rows
    vectors: Rows
    # Whether there may be more changes.
    full: bool


class IndexCache:
    """The indexes of recently used accounts."""

    def __init__(
        self,
        database: Database,
        new_index: Callable[[], Index],
        most_bytes: int = 2**29,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        self._database = database
        self._new_index = new_index
        self._snapshots = snapshots
        self._model = ""
        self._most_bytes = most_bytes
        self._slots: OrderedDict[str, _CacheSlot] = OrderedDict()
        self._total = 0

    def use(self, model: str) -> None:
        """Add the vectors of this model to the indexes."""
        self._model = model
        self._slots.clear()
        self._total = 0

    def warm(self) -> None:
        """Import the modules that an index needs."""
        self._new_index()

    async def index(self, account_id: str) -> Index:
        """Return an account's index, recent enough that a search can apply the remaining changes."""
        return (await self._loaded(account_id)).index

    @contextlib.asynccontextmanager
    async def locked(self, account_id: str) -> AsyncGenerator[Index, None]:
        """Lock an account's index with all changes up to now, so that a thread can read it."""
        slot = await self._loaded(account_id)
        async with slot.reading:
            row = await self._database.read(one("memory_change_last", account_id=account_id))
            if row is not None and row["change"] > slot.change:
                await self._read(account_id, slot)
            yield slot.index

    async def keep_snapshots(self) -> None:
        """Save large indexes that have changed, and delete obsolete snapshots, until canceled."""
        while self._snapshots is not None:
            # The next round tries again.
            with contextlib.suppress(errors.StoreFailed):
                await self._snapshots.sweep()
                await self.save()
            await asyncio.sleep(_SAVE_SECONDS)

    async def save(self) -> None:
        """Save the indexes of which many pages have changed since the last snapshot."""
        if self._snapshots is None:
            return
        for account_id, slot in list(self._slots.items()):
            if slot.change != _UNREAD and self._snapshots.due(len(slot.index), slot.unsaved):
                async with slot.reading:
                    await self._snapshots.save(account_id, slot.index, slot.change)
                    slot.unsaved = 0

    def catch_up(self, account_id: str) -> Transaction[Index]:
        """Return the index with all changes of this transaction's snapshot; raises `IndexStale`."""
        row = yield from one("memory_change_last", account_id=account_id)
        slot = self._slots.get(account_id)
        if slot is None or slot.reading.locked():
            raise IndexStale
        last = row["change"] if row is not None else 0
        if last > slot.change:
            batch = yield from self._changed(account_id, slot.index, _IN_SEARCH)
            if batch.full:
                slot.change = _UNREAD
                raise IndexStale
            # Another request locked the index while this transaction waited for its rows.
            if slot.reading.locked():
                raise IndexStale
            apply_changes(slot.index, batch, self._most_bytes)
            slot.unsaved += len(batch.pages)
            self._measure(account_id, slot)
            slot.change = max(slot.change, last)
        return slot.index

    async def _loaded(self, account_id: str) -> _CacheSlot:
        slot = self._slots.get(account_id)
        if slot is None:
            # The first index imports a library, so it is created in a thread.
            created = _CacheSlot(await asyncio.to_thread(self._new_index))
            slot = self._slots.setdefault(account_id, created)
            if slot is created:
                self._measure(account_id, slot)
        self._slots.move_to_end(account_id)
        if slot.change == _UNREAD or slot.reading.locked():
            async with slot.reading:
                if slot.change == _UNREAD:
                    await self._restore(account_id, slot)
                    await self._read(account_id, slot)
                    await asyncio.to_thread(_prepare, slot.index)
        # Searches cache data in an index.
        self._measure(account_id, slot)
        self._evict(account_id)
        return slot

    async def _restore(self, account_id: str, slot: _CacheSlot) -> None:
        """Replace a new index with its snapshot, if there is one."""
        if self._snapshots is not None and slot.index.position == _NOTHING:
            index = await self._snapshots.load(account_id)
            if index is not None and index.size < self._most_bytes:
                slot.index = index

    async def _read(self, account_id: str, slot: _CacheSlot) -> None:
        """Read outstanding changes in batches, in a thread."""
        full = True
        while full:
            row = await self._database.read(one("memory_change_last", account_id=account_id))
            batch = await self._database.read(self._changed(account_id, slot.index, _BATCH))
            await asyncio.to_thread(apply_changes, slot.index, batch, self._most_bytes)
            slot.unsaved += len(batch.pages)
            full = batch.full
            if not full:
                slot.change = row["change"] if row is not None else 0
        self._measure(account_id, slot)
        self._evict(account_id)
        if slot.index.size >= self._most_bytes:
            _LOG.warning(
                "The search index of account %s has reached its limit of %d bytes, and the words of other"
                " pages are on disk, which is slower; increase SIXFOLD_MEMORY_INDEX_BYTES",
                account_id,
                self._most_bytes,
            )

    def _changed(self, account_id: str, index: Index, limit: _Limit) -> Transaction[_IndexBatch]:
        """Return the next changes within the limit, and vectors once all their pages have been read."""
        since = index.position
        params = {"account_id": account_id, "change": since[0], "page_id": since[1]}
        sizes = yield Query("memory_index_sizes", {**params, "limit": limit.changes})
        fitting = _fitting(sizes, limit)
        pages: Rows = ()
        if fitting:
            pages = yield Query("memory_index_changed", {**params, "limit": fitting})
        links: Rows = ()
        if pages:
            last = {"last_change": pages[-1]["change"], "last_page_id": pages[-1]["page_id"]}
            links = yield Query("memory_links_changed", {**params, **last})
        vectors: Rows = ()
        more = fitting < len(sizes) or len(sizes) == limit.changes
        if self._model and not more:
            vectors, more = yield from self._vectors(account_id, index, limit)
        return _IndexBatch(since, pages, links, vectors, full=more)

    def _vectors(self, account_id: str, index: Index, limit: _Limit) -> Transaction[tuple[Rows, bool]]:
        """Return the next vectors within the limit, and whether more may follow."""
        change, page_id = index.vectors_position
        params = {"account_id": account_id, "model": self._model, "change": change, "page_id": page_id}
        sizes = yield Query("memory_vectors_sizes", {**params, "limit": limit.changes})
        fitting = _fitting(sizes, replace(limit, chars=limit.chars * _VECTOR_BYTES))
        vectors: Rows = ()
        if fitting:
            vectors = yield Query("memory_vectors_changed", {**params, "limit": fitting})
        return vectors, fitting < len(sizes) or len(sizes) == limit.changes

    def _measure(self, account_id: str, slot: _CacheSlot) -> None:
        """Update the total incrementally, because there may be many accounts."""
        # The index may have been evicted while it was read.
        if self._slots.get(account_id) is slot:
            size = slot.index.size + slot.index.cache_size
            self._total += size - slot.size
            slot.size = size

    def _evict(self, account_id: str) -> None:
        """Evict the least recently used indexes, except the current one."""
        while self._total > self._most_bytes:
            oldest = next(iter(self._slots))
            if oldest == account_id:
                return
            self._total -= self._slots.pop(oldest).size


def _prepare(index: Index) -> None:
    """Compute the data that searches share, so that the first search does not block the event loop."""
    index.settle()
    ranking.rank(index.view(()), _ANY_QUERY)


def _fitting(sizes: Rows, limit: _Limit) -> int:
    """Return the number of changes that fit into a batch."""
    totals = itertools.accumulate(int(row["chars"]) for row in sizes)
    fitting = sum(total <= limit.chars for total in totals)
    return min(len(sizes), max(limit.least, fitting))


def apply_changes(index: Index, batch: _IndexBatch, most_bytes: int) -> None:
    """Apply a batch, unless another request has applied it.

    The words of pages that do not fit in memory are stored on disk.
    """
    if index.position != batch.since:
        return
    read = {row["page_id"]: entries.decode(row["entry"]) for row in batch.pages}
    for page_id, entry in read.items():
        if entry is None:
            index.remove(page_id)
    written = [(page_id, entry) for page_id, entry in read.items() if entry is not None]
    # In this order, neighbors are adjacent.
    written.sort(key=_slug)
    index.put_many(written, on_disk=index.size >= most_bytes)
    _apply_links(index, batch.links)
    if batch.pages:
        last = batch.pages[-1]
        index.position = (last["change"], last["page_id"])
    for row in batch.vectors:
        position = (row["change"], row["page_id"])
        if position > index.vectors_position:
            if index.size < most_bytes:
                index.embed(row["page_id"], row["vectors"])
            index.vectors_position = position


def _slug(page: tuple[str, IndexEntry]) -> str:
    return page[1].slug


def _apply_links(index: Index, rows: Rows) -> None:
    """Replace the links of changed pages, and add the links of other pages."""
    leaving: dict[str, set[str]] = {}
    for row in rows:
        if row["page_id"] == row["changed"]:
            leaving.setdefault(row["page_id"], set()).add(row["target_id"])
    for page_id, targets in leaving.items():
        index.link(page_id, targets)
    for row in rows:
        if row["page_id"] != row["changed"]:
            index.linked_from(row["target_id"], row["page_id"])
