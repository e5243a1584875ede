"""Signals of the ranking on every database, and the parts of a score that `explain` shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import Hit, SearchRequest
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory


@pytest.fixture(params=databases.BACKENDS)
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[MemoryFixture]:
    async with open_memory(request.param) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str, title: str | None = None) -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body, title=title), FREELY)


async def find(memory: MemoryFixture, query: str) -> list[Hit]:
    """Return the results of a search with the parts of their scores, best first."""
    request = SearchRequest(query, explain=True)
    return list((await memory.service.search(memory.ann, request)).hits)


async def test_parts_of_a_score_sum_to_it(memory: MemoryFixture) -> None:
    await put(memory, "days/1", "Ann met Ben at the harbour.", title="Ann")
    await put(memory, "days/2", "They sailed out of the harbour to [[days/1]].")
    await put(memory, "days/3", "The wind was strong.")
    hits = await find(memory, "When did Ann sail out of the harbour?")
    assert len(hits) == 3
    for hit in hits:
        assert hit.explain is not None
        parts = {name: value for name, value in hit.explain.items() if isinstance(value, float)}
        assert sum(parts.values()) == pytest.approx(hit.score, abs=1e-5)
        assert {"text", "previous", "next", "folder", "path", "entities", "links", "recency"} <= set(parts)
    explained = hits[0].explain
    assert explained is not None
    assert set(explained["words"]) == {"ann", "sail", "harbour"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_a_long_page_is_found_by_one_of_its_passages(memory: MemoryFixture) -> None:
    filler = "Nothing of note happened on this day, and nobody wrote about it. " * 40
    await put(memory, "long", f"{filler}\n\n## Heating\n\nThe boiler is serviced in October.\n\n{filler}")
    await put(memory, "short", "October was cold.")
    hit = (await find(memory, "When is the boiler serviced?"))[0]
    assert hit.slug == "long"
    assert "«boiler» is «serviced»" in hit.snippet


async def test_page_after_a_match_is_found_for_questions_only(memory: MemoryFixture) -> None:
    await put(memory, "talk/1", "Ann: Which colour did you paint the boat?")
    await put(memory, "talk/2", "Ben: Blue!")
    assert "talk/2" in [hit.slug for hit in await find(memory, "What colour did they paint the boat?")]
    assert [hit.slug for hit in await find(memory, "boat")] == ["talk/1"]


async def test_a_question_follows_a_link_of_the_page_it_names(memory: MemoryFixture) -> None:
    await put(memory, "ships/grey-joss", "Launched by [[people/ann-lee|her builder]].", title="Grey Joss")
    await put(memory, "people/ann-lee", "A shipwright of Oban.", title="Ann Lee")
    for number in range(20):
        await put(memory, f"notes/{number}", f"The builder of house {number} lives next door.")
    hits = await find(memory, "Where does the builder of the Grey Joss live?")
    assert [hit.slug for hit in hits][:2] == ["ships/grey-joss", "people/ann-lee"]
    assert hits[0].explain is not None
    assert hits[1].explain is not None
    assert hits[0].explain["title"] > 0
    assert hits[1].explain["hop"] > hits[1].explain["text"] == 0


async def test_answer_after_a_question_with_the_expected_kind_ranks(memory: MemoryFixture) -> None:
    await put(memory, "talk/1", "Ann: When was the regatta of the sailing club held?")
    await put(memory, "talk/2", "Ben: It was last Sunday, in the rain.")
    await put(memory, "talk/3", "Ann: The regatta is a fine thing.")
    hits = await find(memory, "When was the regatta of the sailing club held?")
    reply = next(hit for hit in hits if hit.slug == "talk/2")
    assert reply.explain is not None
    assert reply.explain["reply"] > 0
    assert reply.explain["answer"] > 0
    assert hits[0].slug == "talk/2"
