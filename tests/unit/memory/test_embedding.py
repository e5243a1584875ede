"""Embedding in the background: resumed after a stop, repeated for another model, never stale."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.core.database import Database, many
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest, SearchResult
from sixfold.core.memory.search.embedding import Embedder
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from tests.harness import databases, processes
from tests.unit.memory.fake_embedder import Meanings
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with open_memory(backend) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str) -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body), FREELY)


async def finder(database: Database, model: Meanings) -> SearchService:
    result = SearchService(database, IndexCache(database, PageIndex), lambda: model)
    assert await result.look()
    return result


async def embed(database: Database, model: Meanings) -> int:
    """Embed all pending pages; return their number."""
    embedder, total = Embedder(database, model), 0
    await embedder.begin()
    while count := await embedder.step():
        total += count
    return total


async def ask(finder: SearchService, memory: MemoryFixture, query: str, mode: str = "auto") -> SearchResult:
    return await finder.search(memory.ann, SearchRequest(query, mode=mode))  # pyright: ignore[reportArgumentType] # a name


async def test_page_is_found_by_words_then_by_meaning_once_embedded(memory: MemoryFixture) -> None:
    model = Meanings()
    result = await finder(memory.service.database, model)
    await put(memory, "garage", "The automobile needs a wheel.")
    first = await ask(result, memory, "automobile")
    assert ([hit.slug for hit in first.hits], first.mode) == (["garage"], "lexical")
    assert (await ask(result, memory, "vehicle")).hits == ()
    assert await embed(memory.service.database, model) == 1
    later = await ask(result, memory, "vehicle")
    assert ([hit.slug for hit in later.hits], later.mode) == (["garage"], "hybrid")


async def test_each_search_mode_uses_its_own_signals(memory: MemoryFixture) -> None:
    model = Meanings()
    result = await finder(memory.service.database, model)
    await put(memory, "words", "A car.")
    await put(memory, "meaning", "An automobile.")
    await embed(memory.service.database, model)
    assert [hit.slug for hit in (await ask(result, memory, "car", "lexical")).hits] == ["words"]
    assert {hit.slug for hit in (await ask(result, memory, "car", "semantic")).hits} == {"words", "meaning"}
    hybrid = await result.search(memory.ann, SearchRequest("car", mode="hybrid", explain=True))
    assert [hit.slug for hit in hybrid.hits] == ["words", "meaning"]
    for hit in hybrid.hits:
        parts = [value for value in (hit.explain or {}).values() if isinstance(value, float)]
        assert sum(parts) == pytest.approx(hit.score, abs=1e-5)


async def test_text_changed_meanwhile_keeps_no_old_vector(memory: MemoryFixture) -> None:
    database = memory.service.database
    await put(memory, "page", "A cat.")
    waiting = await database.read(many("memory_waiting", limit=10))

    class Slow(Meanings):
        """A model that responds only after the page was changed."""

    model = Slow()
    result = await finder(database, model)
    await put(memory, "page", "A doctor.")
    stale = {"page_id": waiting[0]["page_id"], "of_change": waiting[0]["change"], "model": model.name}
    assert not await database.write(many("memory_embedded", **stale))
    await embed(database, model)
    assert (await ask(result, memory, "feline", "semantic")).hits == ()
    assert len((await ask(result, memory, "physician", "semantic")).hits) == 1


async def test_another_model_version_embeds_all_pages_again(memory: MemoryFixture) -> None:
    database = memory.service.database
    for number in range(20):
        await put(memory, f"p{number}", "A happy kitten.")
    assert await embed(database, Meanings("1")) == 20
    assert await embed(database, Meanings("1")) == 0
    assert await embed(database, Meanings("2")) == 20
    result = await finder(database, Meanings("2"))
    assert len((await ask(result, memory, "glad", "semantic")).hits) == 10


async def test_deleted_page_is_not_embedded(memory: MemoryFixture) -> None:
    database = memory.service.database
    await put(memory, "gone", "A cat.")
    await memory.service.delete(memory.ann, "gone", WriteTerms())
    assert await embed(database, Meanings()) == 0


async def test_embedder_runs_beside_searches_until_stopped(memory: MemoryFixture) -> None:
    model = Meanings()
    result = await finder(memory.service.database, model)
    await put(memory, "page", "A cat.")
    task = asyncio.create_task(result.run())
    async with asyncio.timeout(60):
        while not (answer := await ask(result, memory, "feline")).hits:  # noqa: ASYNC110  # it waits for the work
            await asyncio.sleep(0)
    task.cancel()
    assert answer.mode == "hybrid"


async def test_reloaded_index_has_the_same_vectors(memory: MemoryFixture) -> None:
    database, model = memory.service.database, Meanings()
    result = await finder(database, model)
    for number in range(8):
        await put(memory, f"log/{number}", f"A cat and a doctor, day {number}.")
    await embed(database, model)
    await put(memory, "log/3", "A vehicle.")
    await embed(database, model)
    second_search = await finder(database, model)
    for query in ("kitten", "physician on day 4", "car"):
        explained = await result.search(memory.ann, SearchRequest(query, explain=True))
        other = await second_search.search(memory.ann, SearchRequest(query, explain=True))
        assert explained.hits == other.hits != ()


CHILD = """
import asyncio, sys
from pathlib import Path
from sixfold.core.memory.search.embedding import Embedder
from tests.harness import databases
from tests.unit.memory.fake_embedder import Meanings

class Stuck(Meanings):
    def embed(self, texts):
        print("embedding", flush=True)
        sys.stdin.read()
        return super().embed(texts)

async def main():
    async with databases.OPENERS[sys.argv[2]](Path(sys.argv[1]), None) as database:
        await Embedder(database, Stuck()).step()

asyncio.run(main())
"""


async def test_kill_between_write_and_embedding_loses_no_vector(backend: str, tmp_path: Path) -> None:
    async with open_memory(backend, folder=tmp_path) as memory:
        await put(memory, "page", "A cat.")
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD, str(tmp_path), backend),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=settings.worker_environment(),
            cwd=Path(__file__).parents[3],
        )
        assert child.stdout is not None
        try:
            async with asyncio.timeout(processes.PATIENCE_SECONDS):
                assert await child.stdout.readline() == b"embedding\n"
        finally:
            await processes.kill_and_wait(child)
        model = Meanings()
        assert await embed(memory.service.database, model) == 1
        result = await finder(memory.service.database, model)
        assert len((await ask(result, memory, "kitten", "semantic")).hits) == 1


async def test_query_is_embedded_again_for_another_account(memory: MemoryFixture) -> None:
    """The time of a search would otherwise show that another account has searched for the same words."""
    model = Meanings()
    searches = await finder(memory.service.database, model)
    for caller in (memory.ann, memory.ben, memory.ann):
        await searches.search(caller, SearchRequest("a takeover", mode="hybrid"))
    assert model.texts == 2
