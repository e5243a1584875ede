"""The memory of an index: what searches cache in it is bounded, and counts towards the limit."""

from __future__ import annotations

import gc
import tracemalloc

from sixfold.core.accounts import accounts
from sixfold.core.memory import commands
from sixfold.core.memory.commands import FREELY, PageWriter
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from sixfold.store.sqlite.database import SqliteDatabase

WORDS = [f"{first}{second}ration" for first in ("car", "del", "mod", "sep") for second in ("bo", "lu", "mi")]


def traced_bytes() -> int:
    """Return the bytes that the code of the search holds; other threads of the process may hold more."""
    gc.collect()
    filters = [tracemalloc.Filter(True, f"*/sixfold/{part}/search/*") for part in ("store", "core/memory")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)


async def remember(database: SqliteDatabase, name: str) -> Caller:
    account = await database.write(accounts.create(f"{name}@example.com"))
    caller = Caller(account.id, name)
    page = PageWrite("page", " ".join(WORDS))
    await database.write(commands.write(PageWriter(caller, MemoryLimits()), page, FREELY))
    return caller


async def test_misspelled_words_are_not_stored_in_the_index() -> None:
    database = SqliteDatabase(":memory:")
    queries = [f"q{word}x" for word in WORDS]
    try:
        callers = [await remember(database, name) for name in ("ann", "ben")]
        finder = SearchService(database, IndexCache(database, PageIndex))
        await finder.search(callers[1], SearchRequest(queries[0]))
        tracemalloc.start()
        # The first account fills the caches that all accounts share.
        for query in queries:
            await finder.search(callers[0], SearchRequest(query))
        before = traced_bytes()
        for query in queries:
            await finder.search(callers[1], SearchRequest(query))
        assert traced_bytes() - before < 300_000
    finally:
        tracemalloc.stop()
        await database.close()


async def test_cached_words_count_towards_the_limit() -> None:
    database = SqliteDatabase(":memory:")
    try:
        callers = [await remember(database, name) for name in ("ann", "ben")]
        sizes = IndexCache(database, PageIndex)
        for caller in callers:
            await sizes.index(caller.account_id)
        loaded = [await sizes.index(caller.account_id) for caller in callers]
        page_indexes: list[PageIndex] = []

        def new_index() -> PageIndex:
            page_indexes.append(PageIndex())
            return page_indexes[-1]

        indexes = IndexCache(
            database, new_index, sum(index.size + index.cache_size for index in loaded) + 1_000
        )
        finder = SearchService(database, indexes)
        for caller in callers:
            await indexes.index(caller.account_id)
        assert len(page_indexes) == 2
        for _ in range(2):
            await finder.search(callers[1], SearchRequest(" ".join(WORDS)))
        assert page_indexes[1].cache_size > page_indexes[0].cache_size + 1_000
        await indexes.index(callers[0].account_id)
        assert len(page_indexes) == 3
    finally:
        await database.close()
