"""Searches in large memories rank in a thread, with the same results as on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.indexing.entries import FORM, IndexEntry
from sixfold.core.memory.models import Caller
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search import ranking, service
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from tests import loop_time
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")

SECONDS = 30.0
PAGES, WORDS = 250_000, 400


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with open_memory(backend) as result:
        yield result


async def put(memory: MemoryFixture, caller: Caller, slug: str, body: str, *collections: str) -> None:
    await memory.service.write(caller, PageWrite(slug, body, collections=collections), FREELY)


async def find(memory: MemoryFixture, caller: Caller, query: str) -> list[str]:
    return [hit.slug for hit in (await memory.service.search(caller, SearchRequest(query))).hits]


class Gate:
    """Rankings of queries with the word `slow`, which wait in their threads until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = asyncio.Event()
        self.count = 0
        self._released = threading.Event()
        self._rank = ranking.rank
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(service, "LOOP_WORK", 0)
        monkeypatch.setattr(ranking, "rank", self._ranked)

    def release(self) -> None:
        self._released.set()

    def _ranked(self, view: Any, question: Any, *arguments: Any) -> Any:
        if "slow" in question.words:
            self.count += 1
            self._loop.call_soon_threadsafe(self.entered.set)
            assert self._released.wait(SECONDS)
        return self._rank(view, question, *arguments)


async def test_ranking_in_a_thread_equals_that_on_the_loop(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = replace(memory.ann, collections=("tea",))
    for number in range(30):
        await put(
            memory, memory.ann, f"log/{number}", f"Honey and tea, day {number}.", *("tea",) * (number % 2)
        )
    requests = [
        SearchRequest("honey tea", explain=True),
        SearchRequest("tea on day 7", offset=3, limit=5),
        SearchRequest("what happened today?"),
        SearchRequest("hony tee"),
        SearchRequest("the and of"),
    ]
    threads = set[bool]()
    rank = ranking.rank

    def record(*arguments: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return rank(*arguments)

    monkeypatch.setattr(ranking, "rank", record)
    results: list[list[object]] = []
    for limit, on_loop in ((service.LOOP_WORK, True), (0, False)):
        monkeypatch.setattr(service, "LOOP_WORK", limit)
        await find(memory, memory.ann, "first")
        threads.clear()
        answers = [
            await memory.service.search(caller, request)
            for caller in (memory.ann, limited)
            for request in requests
        ]
        assert threads == {on_loop}
        results.append([(answer.hits, answer.mode) for answer in answers])
    assert results[0] == results[1]
    await put(memory, memory.ann, "new", "A new needle.")
    assert await find(memory, memory.ann, "needle") == ["new"]


async def test_a_page_that_leaves_the_collection_is_omitted(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("one", "two", "three"):
        await put(memory, memory.ann, slug, "A slow boat.", "shared")
    gate = Gate(monkeypatch)
    searching = asyncio.create_task(find(memory, replace(memory.ann, collections=("shared",)), "slow"))
    await asyncio.wait_for(gate.entered.wait(), SECONDS)
    await put(memory, memory.ann, "one", "A slow boat.", "private")
    gate.release()
    assert set(await searching) == {"two", "three"}


async def test_searches_of_one_account_delay_no_other(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(memory, memory.ann, "boat", "A slow boat.")
    await put(memory, memory.ben, "train", "A fast train.")
    gate = Gate(monkeypatch)
    searching = [asyncio.create_task(find(memory, memory.ann, "slow")) for _ in range(12)]
    await asyncio.wait_for(gate.entered.wait(), SECONDS)
    assert await asyncio.wait_for(find(memory, memory.ben, "train"), SECONDS) == ["train"]
    assert gate.count == 1
    gate.release()
    assert await asyncio.gather(*searching) == [["boat"]] * 12


async def test_a_cancelled_search_keeps_its_index_unchanged(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(memory, memory.ann, "boat", "A slow boat.")
    gate = Gate(monkeypatch)
    cancelled = asyncio.create_task(find(memory, memory.ann, "slow"))
    await asyncio.wait_for(gate.entered.wait(), SECONDS)
    cancelled.cancel()
    await put(memory, memory.ann, "train", "A fast train.")
    after = asyncio.create_task(find(memory, memory.ann, "train"))
    done_tasks, _ = await asyncio.wait({cancelled, after}, timeout=0.05)
    assert not done_tasks
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await after == ["train"]


@pytest.mark.nightly
async def test_search_in_many_pages_leaves_the_loop_free(
    backend: str, memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend != "sqlite":
        pytest.skip("the index is the same with every database")
    database = memory.service.database
    large = SearchService(database, IndexCache(database, _large_index, 2**32))
    query = SearchRequest(" ".join(f"word{number}" for number in range(0, WORDS, 20)))
    await large.search(memory.ann, query)
    seconds: list[float] = []
    for limit in (service.LOOP_WORK, 2**60):
        monkeypatch.setattr(service, "LOOP_WORK", limit)
        async with loop_time.watched() as seen:
            await large.search(memory.ann, query)
        seconds.append(seen.longest)
    in_thread, on_loop = seconds
    assert in_thread < min(0.02, on_loop / 2), seconds


def _large_index() -> PageIndex:
    index = PageIndex()
    for number in range(PAGES):
        words = {f"word{number * step % WORDS}": 1 for step in (1, 7, 11)}
        slug, empty = f"log/{number // 50}/{number}", ()
        entry = IndexEntry(
            FORM, slug, "note", empty, empty, number, number, words, empty, empty, empty,
            article=False, asks=False, holds=(0, 0, 0), title=empty,
        )  # fmt: skip
        index.put(str(number), entry)
    return index
