"""Phrase search for short queries, in titles and texts, on every database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search import phrases
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory


@pytest.fixture(params=databases.BACKENDS)
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[MemoryFixture]:
    async with open_memory(request.param) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, title: str, body: str) -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body, title=title), FREELY)


async def slugs(memory: MemoryFixture, query: str, limit: int = 10, offset: int = 0) -> list[str]:
    request = SearchRequest(query, limit=limit, offset=offset)
    return [hit.slug for hit in (await memory.service.search(memory.ann, request)).hits]


async def test_a_title_with_the_query_precedes_pages_that_mention_it(memory: MemoryFixture) -> None:
    await put(memory, "plan", "Kafka migration plan", "We will move brokers.")
    await put(memory, "companies/acme", "Acme Corporation", "It makes rockets.")
    for day in range(12):
        await put(memory, f"log/{day}", f"Log {day}", "Talked about the kafka migration with acme, again.")
    assert [(await slugs(memory, query))[0] for query in ("kafka migration", "ACME")] == [
        "plan",
        "companies/acme",
    ]


async def test_phrase_ranks_above_the_same_words_apart(memory: MemoryFixture) -> None:
    await put(memory, "a", "A", "The red fox jumped over the Lazy, dog near the river.")
    await put(memory, "b", "B", "A lazy river, a dog and a red fox: the fox jumped near the dog.")
    await put(memory, "c", "C", "A red dog.")
    for query in ("red fox jumped", '"lazy dog"', "lazy dog near the river"):
        assert (await slugs(memory, query))[:2] == ["a", "b"], query
    pages = [await slugs(memory, "lazy dog", 1, offset) for offset in range(4)]
    assert pages == [["a"], ["b"], ["c"], []]


def test_a_phrase_is_a_short_query_of_several_words() -> None:
    assert phrases.phrase_of('"Lazy  Dog"') == " lazy dog "
    assert [phrases.phrase_of(text) for text in ("dog", "", "a b " * 5, "dog " * 9000)] == [""] * 4
    assert phrases.has_phrase("The lazy-dog.", " lazy dog ")
    assert not phrases.has_phrase("lazy dogs", " lazy dog ")
