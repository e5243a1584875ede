"""Search in a vector store, using the index and ranking of the memory on its chunks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, Rows, Transaction, now, one
from sixfold.core.memory.indexing import entries
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.search import query_parser, ranking
from sixfold.core.memory.search import service as memory_search
from sixfold.core.memory.search.ports import Index, SearchFilter
from sixfold.core.vector_stores import stores
from sixfold.core.vector_stores.attributes import Attributes, Filter
from sixfold.core.vector_stores.stores import VectorStore, VectorStoreFile, VectorStoreFilePage

_BATCH = 200
# Files whose attributes are compared with a filter at a time, at most 5 MB.
_FILTERED_FILES = 200
_MAX_INDEXES, _MAX_BYTES = 16, 160 * 2**20
# Maximum size of one index in memory; the words of other chunks are on disk. 32 MiB of prose take about 100
# MB, and as many unusual words would take 2 GB.
MAX_INDEX_BYTES = 128 * 2**20
# Indexes that are built concurrently, in total and for one account.
_MAX_BUILDS, _MAX_ACCOUNT_BUILDS = 2, 1
_ACTIVE_US = 60 * SECOND_US


class ChunkHit(msgspec.Struct, frozen=True):
    """A result: a chunk of a file, with a score from 0 to 1."""

    file_id: str
    filename: str
    attributes: Attributes
    text: str
    score: float


class ChunkQuery(msgspec.Struct, frozen=True):
    """A query with its limit, the minimum score, and a filter of the files."""

    text: str
    limit: int = 10
    threshold: float = 0.0
    keep: Filter | None = None


class _StoreIndex(msgspec.Struct):
    version: int = -1
    index: Index | None = None
    building: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class VectorStoreSearch:
    """Searches the stores of one database; the latest indexes stay in memory, up to a limit."""

    def __init__(self, database: Database, new_index: Callable[[], Index]) -> None:
        self._database = database
        self._new_index = new_index
        self._indexes: OrderedDict[str, _StoreIndex] = OrderedDict()
        self._builds = asyncio.Semaphore(_MAX_BUILDS)
        self._account_builds: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def search(self, tenant: Tenant, store_id: str, query: ChunkQuery) -> Sequence[ChunkHit]:
        """Return the best chunks; raises `VectorStoreNotFound`, and `BadRequest` for an expired store."""
        store = await self._database.read(stores.usable(tenant, store_id))
        await self._touch(store)
        if not query.text.strip():
            return ()
        names = () if query.keep is None else await self._matching(store_id, query.keep)
        if query.keep is not None and not names:
            return ()
        places = await self._ranked(tenant.account_id, store, query, names)
        chunks = await self._database.read(_found(store_id, [name for name, _ in places]))
        return [
            ChunkHit(file.file_id, file.filename, file.attributes, text, score)
            for (_, score), (file, text) in zip(places, chunks, strict=True)
            if file is not None
            and text is not None
            and score >= query.threshold
            # The attributes may have changed meanwhile.
            and (query.keep is None or query.keep(file.attributes))
        ]

    async def _matching(self, store_id: str, keep: Filter) -> list[str]:
        """Return the ids of the files that a filter keeps, whose attributes are read in parts."""
        names: list[str] = []
        bound = ""
        while True:
            page = VectorStoreFilePage(_FILTERED_FILES, bound, status="completed")
            rows = await self._database.read(stores.page_rows(store_id, page))
            names += await PARSER.run(_matching_files, rows, keep)
            if len(rows) < page.limit:
                return names
            bound = str(rows[-1]["file_id"])

    async def _touch(self, store: VectorStore) -> None:
        current = await self._database.read(now())
        if current - store.last_active_at > _ACTIVE_US:
            await self._database.write(_active(store.id, current), durable=False)

    async def _ranked(
        self, account_id: str, store: VectorStore, query: ChunkQuery, names: Sequence[str]
    ) -> list[tuple[str, float]]:
        """Return the ids of the best chunks with their scores; one search of a store runs at a time."""
        slot = self._indexes.setdefault(store.id, _StoreIndex())
        self._indexes.move_to_end(store.id)
        async with slot.building:
            if slot.index is None or slot.version != store.version:
                slot.index = None
                account_builds = self._account_builds.setdefault(
                    account_id, asyncio.Semaphore(_MAX_ACCOUNT_BUILDS)
                )
                async with account_builds, self._builds:
                    slot.index = await self._build(store.id)
                slot.version = store.version
            self._evict(store.id)
            return await asyncio.to_thread(_rank, slot.index, query, names)

    async def _build(self, store_id: str) -> Index:
        index = self._new_index()
        after = ("", -1)
        while True:
            rows = await self._database.read(_chunks(store_id, after))
            if not rows:
                await asyncio.to_thread(index.settle)
                return index
            await asyncio.to_thread(_fill, index, rows, MAX_INDEX_BYTES)
            after = str(rows[-1]["file_id"]), int(rows[-1]["position"])

    def _evict(self, current: str) -> None:
        def size() -> int:
            return sum(slot.index.size for slot in self._indexes.values() if slot.index is not None)

        while len(self._indexes) > 1 and (len(self._indexes) > _MAX_INDEXES or size() > _MAX_BYTES):
            oldest = next(iter(self._indexes))
            if oldest == current:
                return
            del self._indexes[oldest]


def _matching_files(rows: Rows, keep: Filter) -> list[str]:
    return [str(row["file_id"]) for row in rows if keep(stores.file_of(row).attributes)]


def _active(store_id: str, moment: int) -> Transaction[None]:
    yield Query("vector_store_active", {"id": store_id, "at": moment})


def _chunks(store_id: str, after: tuple[str, int]) -> Transaction[Rows]:
    return (
        yield Query(
            "vector_store_chunks",
            {"id": store_id, "file_id": after[0], "position": after[1], "limit": _BATCH},
        )
    )


def _found(
    store_id: str, names: Sequence[str]
) -> Transaction[list[tuple[VectorStoreFile | None, str | None]]]:
    """Return the file and the text of each chunk, or None if they have been removed."""
    passages: list[tuple[VectorStoreFile | None, str | None]] = []
    for name in names:
        file_id, _, position = name.partition("/")
        file = yield from one("vector_store_file_by_id", id=store_id, file_id=file_id)
        chunk = yield from one(
            "vector_store_chunk_by_position", id=store_id, file_id=file_id, position=int(position)
        )
        is_completed = file is not None and file["status"] == "completed"
        passages.append(
            (
                stores.file_of(file) if file is not None and is_completed else None,
                None if chunk is None else chunk["text"],
            )
        )
    return passages


def _fill(index: Index, rows: Rows, max_bytes: int) -> None:
    """Add chunks; the words of chunks that do not fit in `max_bytes` of memory are stored on disk."""
    for row in rows:
        name = f"{row['file_id']}/{row['position']:06}"
        page = MemoryPage(
            id=name,
            account_id="",
            slug=name,
            title="",
            body=row["text"],
            # Types are in memory, so that a filter of files finds all chunks; tags may be on disk.
            type=row["file_id"],
            tags=(),
            collections=(),
            version=1,
            created_at=row["position"],
            updated_at=0,
            created_by="",
        )
        # One by one, so that the index exceeds its limit by at most one chunk.
        index.put_many([(name, entries.entry(page, ()))], on_disk=index.size >= max_bytes)


def _rank(index: Index, query: ChunkQuery, names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the ids of the best chunks with their scores from 0 to 1, best first."""
    view = index.view(())
    question = query_parser.parse_query(view, query.text.replace("\0", " ")[: memory_search.MAX_CHARS])
    view = ranking.narrowed(view, question)
    ranked = ranking.rank(view, question)
    best = view.best(ranked.score, ranked.candidates, SearchFilter(types=names), query.limit)
    scores = [max(0.0, view.score_at(ranked.score, place)) for place in best]
    return [
        (view.page_id(place), round(score / (1 + score), 6))
        for place, score in zip(best, scores, strict=True)
    ]
