"""Search on every database: immediate results, access rights and score explanations."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from unittest.mock import AsyncMock

import msgspec
import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.database import many
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.models import Caller
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest, SearchResult
from sixfold.core.memory.search import index_cache, ranking, reindex, snippets
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.ports import Index, IndexView
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from tests import loop_time
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")

START = {"change": 0, "page_id": ""}
QUERIES = (
    '"',
    "a OR b AND NOT (c",
    "'; DROP TABLE page; --",
    "* ? + - ^ ~ : / \\ { } [ ]",
    "%s %d {0}",
    "東京タワー",
    "Привет мир",
    "مرحبا بالعالم",
    "हिन्दी",
    "🎉",
    "\u200b\ufeff",
    "a\x00b",
    "the and of",
    "ab " * 3_333,
    "x" * 10_000,
)


# CPU time for which the event loop may be blocked.
MAX_SECONDS = 0.1


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with open_memory(backend) as result:
        yield result


async def put(
    memory: MemoryFixture, slug: str, body: str, caller: Caller | None = None, **fields: object
) -> None:
    expected = PageWrite(slug, body, **fields)  # pyright: ignore[reportArgumentType] # fields by name
    await memory.service.write(caller or memory.ann, expected, FREELY)


async def ask(
    memory: MemoryFixture, query: str, caller: Caller | None = None, **fields: object
) -> SearchResult:
    expected = SearchRequest(query, **fields)  # pyright: ignore[reportArgumentType] # fields by name
    return await memory.service.search(caller or memory.ann, expected)


async def slugs(
    memory: MemoryFixture, query: str, caller: Caller | None = None, **fields: object
) -> list[str]:
    """The slugs that a search finds, best first."""
    return [hit.slug for hit in (await ask(memory, query, caller, **fields)).hits]


async def test_page_is_found_from_its_write_until_its_deletion(memory: MemoryFixture) -> None:
    assert await slugs(memory, "marmalade") == []
    await put(memory, "kitchen/toast", "Marmalade on toast.")
    assert await slugs(memory, "marmalade") == ["kitchen/toast"]
    await put(memory, "kitchen/toast", "Honey on toast.")
    assert await slugs(memory, "marmalade") == []
    assert await slugs(memory, "honey") == ["kitchen/toast"]
    await memory.service.delete(memory.ann, "kitchen/toast", WriteTerms())
    assert await slugs(memory, "honey") == []
    await memory.service.restore(memory.ann, "kitchen/toast", 1, WriteTerms())
    assert await slugs(memory, "marmalade") == ["kitchen/toast"]


async def test_a_renamed_page_is_found_under_its_new_slug(memory: MemoryFixture) -> None:
    await put(memory, "drafts/plan", "Launch the balloon.")
    await memory.service.rename(memory.ann, "drafts/plan", "plans/balloon", WriteTerms())
    assert await slugs(memory, "balloon") == ["plans/balloon"]


async def test_pages_written_by_another_server_are_found(memory: MemoryFixture) -> None:
    database = memory.service.database
    other = SearchService(database, IndexCache(database, PageIndex))
    assert (await other.search(memory.ann, SearchRequest("lighthouse"))).hits == ()
    await put(memory, "trip", "We climbed the lighthouse.")
    assert [hit.slug for hit in (await other.search(memory.ann, SearchRequest("lighthouse"))).hits] == [
        "trip"
    ]


async def test_accounts_find_their_own_pages_only(memory: MemoryFixture) -> None:
    await put(memory, "secret", "The password of the safe is swordfish.")
    assert await slugs(memory, "swordfish", memory.ben) == []
    before = (await ask(memory, "swordfish", explain=True)).hits[0]
    for number in range(20):
        await put(memory, f"mine/{number}", "swordfish swordfish", memory.ben)
    after = (await ask(memory, "swordfish", explain=True)).hits[0]
    assert (after.score, after.explain) == (before.score, before.explain)


async def test_collection_key_gets_no_information_on_other_pages(memory: MemoryFixture) -> None:
    await put(memory, "log/1", "The keel was laid.", collections=("public",))
    limited = replace(memory.ann, collections=("public",))
    alone = (await ask(memory, "where was the keel laid", limited, explain=True)).hits
    for number in range(2, 9):
        await put(memory, f"log/{number}", "keel keel laid where [[log/1]]", collections=("private",))
    assert (await ask(memory, "where was the keel laid", limited, explain=True)).hits == alone
    assert len(await slugs(memory, "where was the keel laid")) == 8


async def test_filters_keep_what_matches_any_of_each(memory: MemoryFixture) -> None:
    await put(memory, "a", "apple", type="fruit", tags=("red",), collections=("x",))
    await put(memory, "b", "apple", type="tree", tags=("green", "old"), collections=("y",))
    await put(memory, "c", "apple", type="firm", tags=("old",))
    assert set(await slugs(memory, "apple")) == {"a", "b", "c"}
    assert set(await slugs(memory, "apple", types=("fruit", "tree"))) == {"a", "b"}
    assert set(await slugs(memory, "apple", tags=("red", "green"))) == {"a", "b"}
    assert set(await slugs(memory, "apple", collections=("y", "z"))) == {"b"}
    assert await slugs(memory, "apple", tags=("old",), types=("firm",)) == ["c"]
    assert await slugs(memory, "apple", tags=("new",)) == []
    first = (await ask(memory, "apple", tags=("red",))).hits[0].updated_at
    assert "a" in await slugs(memory, "apple", since=first, until=first)
    assert await slugs(memory, "apple", until=first - 1) == []


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
async def test_any_text_is_a_query(memory: MemoryFixture, query: str) -> None:
    await put(memory, "all", "ab 東京タワー Привет мир مرحبا بالعالم हिन्दी 🎉 and more of the same")
    answer = await ask(memory, query)
    assert answer.mode == "lexical"
    assert len(answer.hits) <= 1


@pytest.mark.parametrize("query", ["東京", "мир", "العالم", "हिन्दी", "🎉"])
async def test_every_script_is_found(memory: MemoryFixture, query: str) -> None:
    await put(memory, "all", "ab 東京タワー Привет мир مرحبا بالعالم हिन्दी 🎉")
    await put(memory, "none", "nothing of it")
    assert await slugs(memory, query) == ["all"]


async def test_unindexed_words_are_found_as_a_phrase(memory: MemoryFixture) -> None:
    await put(memory, "plays/hamlet", "To be, or not\nto be? That is the question.", title="Hamlet")
    await put(memory, "music/live", "Live at Leeds.", title="The Who: live")
    await put(memory, "other/whole", "He is the whole crew.", title="Crew", collections=("c",))
    await put(memory, "other/secret", "%%or not%% a secret", title="Secret")
    assert await slugs(memory, "not to be") == ["plays/hamlet"]
    assert await slugs(memory, "to be or not to be") == ["plays/hamlet"]
    assert await slugs(memory, "or not") == ["plays/hamlet"]
    assert (await slugs(memory, "the who"))[0] == "music/live"
    assert await slugs(memory, "who") == ["music/live"]
    request = SearchRequest("is the", explain=True)
    result = await memory.service.search(replace(memory.ann, collections=("c",)), request)
    assert [hit.slug for hit in result.hits] == ["other/whole"]
    assert result.hits[0].explain is not None
    assert result.hits[0].explain["stop_words"] == 0.5
    assert await slugs(memory, "?!") == []


async def test_title_of_stop_words_is_found(memory: MemoryFixture) -> None:
    await put(memory, "bands/the-who", "A band of four.", title="The Who")
    await put(memory, "other", "Nobody knows.")
    assert await slugs(memory, "the who") == ["bands/the-who"]


async def test_invalid_search_is_refused_in_a_sentence(memory: MemoryFixture) -> None:
    for expected, text in (
        (SearchRequest("  "), "query must not be empty"),
        (SearchRequest("x" * 10_001), "query must be 1 to 10,000 characters"),
        (SearchRequest("x", limit=0), "limit must be 1 to 100"),
        (SearchRequest("x", limit=101), "limit must be 1 to 100"),
        (SearchRequest("x", offset=-1), "offset must be 0 to 10,000"),
        (SearchRequest("x", snippet_chars=5_000), "snippet_chars must be 0 to 2,000"),
    ):
        with pytest.raises(errors.BadRequest, match=text):
            await memory.service.search(memory.ann, expected)


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
async def test_semantic_search_without_a_model_names_its_remedy(memory: MemoryFixture, mode: str) -> None:
    with pytest.raises(errors.EngineUnavailable, match="sixfold engines add embeddings"):
        await ask(memory, "anything", mode=mode)


async def test_pages_of_results_follow_each_other(memory: MemoryFixture) -> None:
    for number in range(25):
        await put(memory, f"n{number:02d}", "same words here")
    all_slugs = await slugs(memory, "words", limit=25)
    parts = [await slugs(memory, "words", limit=10, offset=offset) for offset in (0, 10, 20)]
    assert [slug for part in parts for slug in part] == all_slugs
    assert len(set(all_slugs)) == 25


async def test_concurrent_searches_and_writes_are_consistent(memory: MemoryFixture) -> None:
    async def write(number: int) -> None:
        await put(memory, f"p{number}", f"common word{number}")

    work = [write(number) for number in range(30)] + [slugs(memory, "common") for _ in range(30)]
    await asyncio.gather(*work)
    assert len(await slugs(memory, "common", limit=100)) == 30


async def test_evicted_index_is_read_again(memory: MemoryFixture) -> None:
    database = memory.service.database
    indexes: list[PageIndex] = []

    def new_index() -> PageIndex:
        indexes.append(PageIndex())
        return indexes[-1]

    narrow = SearchService(database, IndexCache(database, new_index, most_bytes=3_000))
    await put(memory, "mine", "an anchor")
    await put(memory, "his", "an anchor", memory.ben)
    for _ in range(3):
        for caller, slug in ((memory.ann, "mine"), (memory.ben, "his")):
            assert [hit.slug for hit in (await narrow.search(caller, SearchRequest("anchor"))).hits] == [slug]
    assert len(indexes) == 6, [index.size for index in indexes]


async def test_index_stores_no_words_above_its_limit(
    memory: MemoryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    indexes: list[PageIndex] = []

    def new_index() -> PageIndex:
        indexes.append(PageIndex())
        return indexes[-1]

    most_bytes = 3_000_000
    bounded = SearchService(
        memory.service.database, IndexCache(memory.service.database, new_index, most_bytes)
    )
    await put(memory, "first", "an anchor")
    for number in range(6):
        await put(memory, f"p{number}", " ".join(f"w{number}x{at}" for at in range(5_000)))
        assert len((await bounded.search(memory.ann, SearchRequest("anchor"))).hits) == 1
    # Without the limit, 30,000 words take 9 MB.
    assert most_bytes < indexes[-1].size < 2 * most_bytes
    assert "increase SIXFOLD_MEMORY_INDEX_BYTES" in caplog.text

    async def find(query: str, tags: Collection[str] = ()) -> list[tuple[str, bool]]:
        request = SearchRequest(query, tags=tuple(tags), explain=True)
        hits = (await bounded.search(memory.ann, request)).hits
        return [(hit.slug, (hit.explain or {}).get("on_disk", False)) for hit in hits]

    assert await find("w0x7") == [("p0", False)]
    assert await find("w5x4999") == [("p5", True)]
    await put(memory, "p5", "Ben: pears #fruit", title="Orchard")
    await put(memory, "p4", "nothing of note")
    assert await find("w5x4999 w4x1") == []
    assert await find("pears orchard", tags=("fruit",)) == [("p5", True)]
    await memory.service.delete(memory.ann, "p5", WriteTerms())
    assert await find("pears") == []


async def test_cached_signals_are_computed_in_a_thread(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await put(memory, f"p{number}", "common words")
    on_loop: list[bool] = []
    static_parts = ranking.static_score_parts

    def record(view: IndexView, weights: ranking.Weights) -> object:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return static_parts(view, weights)

    monkeypatch.setattr(ranking, "static_score_parts", record)
    fresh = SearchService(memory.service.database, IndexCache(memory.service.database, PageIndex))
    for _ in range(2):
        assert len((await fresh.search(memory.ann, SearchRequest("common"))).hits) == 3
    assert on_loop == [False]


async def test_many_changes_are_found_by_the_next_search(memory: MemoryFixture) -> None:
    await put(memory, "first", "needle")
    assert await slugs(memory, "needle") == ["first"]
    for number in range(130):
        await put(memory, f"hay/{number}", "hay")
    await put(memory, "last", "needle")
    assert set(await slugs(memory, "needle")) == {"first", "last"}


@pytest.mark.parametrize("pages", [1, 12])
async def test_large_changes_are_read_in_a_thread(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    await put(memory, "first", "needle")
    assert await slugs(memory, "needle") == ["first"]
    applied: list[tuple[bool, int]] = []
    apply = index_cache.apply_changes

    def record(index: Index, batch: index_cache._IndexBatch, most_bytes: int) -> None:
        applied.append((threading.current_thread() is threading.main_thread(), len(batch.pages)))
        apply(index, batch, most_bytes)

    monkeypatch.setattr(index_cache, "apply_changes", record)
    body = "needle " + " ".join(f"w{number}" for number in range(30_000))
    for number in range(pages):
        await put(memory, f"large/{number}", body)
    async with loop_time.watched() as seen:
        result = await slugs(memory, "needle", limit=100)
    assert set(result) == {"first", *(f"large/{number}" for number in range(pages))}
    assert not any(on_loop for on_loop, _ in applied)
    assert sum(count for _, count in applied) == pages
    assert max(count for _, count in applied) <= 2**20 // len(body)
    assert seen.longest < MAX_SECONDS


async def test_list_of_large_pages_blocks_no_loop_and_loads_no_texts(memory: MemoryFixture) -> None:
    body = "needle " + "a line of a long page\n" * 40_000
    for number in range(20):
        await put(memory, f"p{number}", body)
    await slugs(memory, "needle", limit=100)
    tracemalloc.start()
    async with loop_time.watched() as seen:
        result = await slugs(memory, "needle", limit=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(result), seen.longest < MAX_SECONDS) == (20, True)
    assert peak < 10 * len(body)


@pytest.mark.parametrize(("words", "on_loop"), [(20, True), (20_000, False)])
async def test_snippets_of_large_pages_are_cut_in_a_thread(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch, words: int, on_loop: bool
) -> None:
    for number in range(4):
        await put(memory, f"p{number}", "needle " + " ".join(f"w{word}" for word in range(words)))
    threads: list[bool] = []
    of_body = snippets.of_body

    def record(body: str, passage: int, words: Collection[str], chars: int, *, marked: bool) -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        return of_body(body, passage, words, chars, marked=marked)

    monkeypatch.setattr(snippets, "of_body", record)
    assert len(await slugs(memory, "needle")) == 4
    assert threads == [on_loop] * 4


async def test_few_changes_are_indexed_by_the_search(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(memory, "first", "needle")
    await slugs(memory, "needle")
    threads: list[bool] = []
    apply = index_cache.apply_changes

    def record(index: Index, batch: index_cache._IndexBatch, most_bytes: int) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        apply(index, batch, most_bytes)

    monkeypatch.setattr(index_cache, "apply_changes", record)
    await put(memory, "second", "needle")
    assert len(await slugs(memory, "needle")) == 2
    assert threads == [True]


async def test_reloaded_index_ranks_equally(backend: str, tmp_path: Path) -> None:
    async with open_memory(backend, folder=tmp_path) as memory:
        for number in range(12):
            await put(memory, f"log/{number}", f"tea and honey, day {number} [[log/{number - 1}]]")
        await memory.service.delete(memory.ann, "log/3", WriteTerms())
        await put(memory, "log/5", "honey alone")
        before = (await ask(memory, "tea honey on day 7", explain=True)).hits
        database = memory.service.database
        second_search = SearchService(database, IndexCache(database, PageIndex))
        assert (
            await second_search.search(memory.ann, SearchRequest("tea honey on day 7", explain=True))
        ).hits == before


async def test_index_entries_of_an_older_version_are_rewritten(memory: MemoryFixture) -> None:
    database = memory.service.database
    await put(memory, "old", "A windmill, see [[other]].")
    await put(memory, "other", "A barn.")
    remaining = (
        await database.read(many("memory_index_changed", **START, limit=10, account_id=memory.ann.account_id))
    )[0]
    old = msgspec.json.encode([[remaining["page_id"], '[1,"an older form"]']]).decode()
    change = {"account_id": memory.ann.account_id, "change": 9}
    await database.write(many("memory_index_put", **change, rows=old))
    second_search = SearchService(database, IndexCache(database, PageIndex))
    assert (await second_search.search(memory.ann, SearchRequest("windmill"))).hits == ()
    assert await reindex.rewrite_outdated(database) == 1
    assert await reindex.rewrite_outdated(database) == 0
    fresh = SearchService(database, IndexCache(database, PageIndex))
    assert [hit.slug for hit in (await fresh.search(memory.ann, SearchRequest("windmill"))).hits] == ["old"]


async def test_outdated_entries_are_rewritten_in_short_transactions(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, account_id = memory.service.database, memory.ann.account_id
    for number in range(25):
        await put(memory, f"page-{number}", "A windmill.")
    rows = await database.read(many("memory_index_changed", **START, limit=100, account_id=account_id))
    old = msgspec.json.encode([[row["page_id"], '[1,"an older form"]'] for row in rows]).decode()
    await database.write(many("memory_index_put", account_id=account_id, change=99, rows=old))
    write = AsyncMock(wraps=database.write)
    monkeypatch.setattr(database, "write", write)
    assert await reindex.rewrite_outdated(database) == 25
    assert write.await_count == 3
    assert await reindex.rewrite_outdated(database) == 0


async def test_used_index_loads_in_background_and_unused_is_evicted(memory: MemoryFixture) -> None:
    results: list[bool] = []
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def new_index() -> PageIndex:
        results.append(threading.current_thread() is threading.main_thread())
        return PageIndex()

    # The model is requested after everything else is ready.
    def find_model() -> None:
        loop.call_soon_threadsafe(looked.set)

    for expected in ([], [False]):
        looked.clear()
        running = asyncio.create_task(
            SearchService(
                memory.service.database, IndexCache(memory.service.database, new_index), find_model
            ).run()
        )
        await looked.wait()
        running.cancel()
        assert results == expected
        await put(memory, "a", "The first page.")
