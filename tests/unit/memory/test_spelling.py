"""Spelling correction of query words, on every database, and its effect on scores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.models import Caller
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest, SearchResult
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with open_memory(backend) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str, *collections: str) -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body, collections=collections), FREELY)


async def ask(memory: MemoryFixture, query: str, caller: Caller | None = None) -> SearchResult:
    """Search with score explanations."""
    return await memory.service.search(caller or memory.ann, SearchRequest(query, explain=True))


async def slugs(memory: MemoryFixture, query: str, caller: Caller | None = None) -> list[str]:
    """The slugs that a search finds, best first."""
    return [hit.slug for hit in (await ask(memory, query, caller)).hits]


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("heliogrpah", "heliograph"),  # two letters that change places
        ("dentst", "dentist"),
        ("favourite", "favorite"),
        ("marmalede", "marmalade"),
        ("helliogrpah", "heliograph"),  # two edits of a long word
        ("eliograph", "heliograph"),
        ("мармелал", "мармелад"),
        ("organizatoin", "organization"),  # an ending unknown to stemmers
        ("meetign", "meeting"),
        ("informaton", "information"),
        ("developmentt", "developments"),
        ("quicklz", "quickly"),
        ("recieving", "receiving"),  # the ending is right
        ("writtten", "written"),
        ("конференцияи", "конференция"),
        ("seperate", "separate"),  # stems too short to compare
        ("Reykjavic", "Reykjavik"),
        ("definately", "definitely"),
        ("heliog", "heliograph"),  # the beginning
        ("диван", "диванах"),  # its own stem is another
    ],
)
async def test_unknown_word_is_corrected_to_the_nearest(
    memory: MemoryFixture, query: str, meant: str
) -> None:
    await put(memory, "a", f"One {meant} here.")
    await put(memory, "b", "Nothing of the kind.")
    (hit,) = (await ask(memory, query)).hits
    assert hit.slug == "a"
    assert f"«{meant}»" in hit.snippet
    assert hit.explain is not None
    assert [list(near) for near in hit.explain["spelling"].values()] == [list(hit.explain["words"])]


@pytest.mark.parametrize(
    "query",
    [
        "note",  # four letters
        "tests",  # another letter in a short word
        "ritual",  # another first letter
        "marmeledi",  # three edits
        "Marmeledes",  # two edits of a name
        "20267",  # a number
        "marmalade" * 3,
        "whicj",  # of a stop word
        "marmot",  # the last letters are not a suffix
        "textile",
        "virtue",
    ],
)
async def test_query_far_from_every_word_finds_nothing(memory: MemoryFixture, query: str) -> None:
    await put(memory, "a", "Nota, texts: virtual marmalade in 2026, 20268 of it, which is much.")
    assert await slugs(memory, query) == []


async def test_known_word_is_not_corrected(memory: MemoryFixture) -> None:
    await put(memory, "a", "A desert of sand.")
    await put(memory, "b", "A dessert of apples.")
    (hit,) = (await ask(memory, "desert")).hits
    assert hit.slug == "a"
    assert hit.explain is not None
    assert "spelling" not in hit.explain


async def test_word_of_the_query_is_not_a_correction_of_another(memory: MemoryFixture) -> None:
    await put(memory, "a", "The heliograph blinked.")
    (hit,) = (await ask(memory, "heliograph heliogrpah")).hits
    assert hit.explain is not None
    assert "spelling" not in hit.explain


async def test_exact_matches_rank_above_corrected_ones(memory: MemoryFixture) -> None:
    for number in range(5):
        await put(memory, f"shop/{number}", "We bought some lantern oil.")
    await put(memory, "sea", "The heliograph blinked, heliograph and heliograph again.")
    result = await slugs(memory, "lantern heliogrpah")
    assert (len(result), result[-1]) == (6, "sea")


async def test_parts_of_a_corrected_score_sum_to_it(memory: MemoryFixture) -> None:
    await put(memory, "log/1", "The heliograph blinked.")
    await put(memory, "log/2", "A lantern answered.")
    for hit in (await ask(memory, "which lantern answered the heliogrpah")).hits:
        assert hit.explain is not None
        parts = [value for value in hit.explain.values() if isinstance(value, float)]
        assert sum(parts) == pytest.approx(hit.score, abs=1e-5)
        assert hit.explain["spelling"] == {"heliogrpah": ["heliograph"]}


async def test_the_most_frequent_of_three_candidates_come_first(memory: MemoryFixture) -> None:
    for times, word in enumerate(("planner", "planter", "planker", "pander"), 1):
        for number in range(times):
            await put(memory, f"{word}/{number}", f"{word} of today")
    (hit, *_) = (await ask(memory, "plander")).hits
    assert hit.explain is not None
    assert hit.explain["spelling"] == {"plander": ["pander", "planker", "planter"]}


async def test_correction_uses_no_word_of_hidden_pages(memory: MemoryFixture) -> None:
    await put(memory, "a", "The heliograph blinked.", "private")
    await put(memory, "b", "A lantern answered.", "public")
    limited = replace(memory.ann, collections=("public",))
    assert await slugs(memory, "heliogrpah", limited) == []
    assert await slugs(memory, "heliogrpah") == ["a"]
    assert await slugs(memory, "blinkign", limited) == []
    assert await slugs(memory, "blinkign") == ["a"]
    await put(memory, "c", "A lantren fell.", "private")
    assert await slugs(memory, "lantren", limited) == ["b"]
    assert await slugs(memory, "lantren") == ["c"]


async def test_corrections_follow_added_and_removed_words(memory: MemoryFixture) -> None:
    assert await slugs(memory, "heliogrpah") == []
    await put(memory, "a", "The heliograph blinked.")
    assert await slugs(memory, "heliogrpah") == ["a"]
    await put(memory, "b", "Marmalade on toast.")
    assert await slugs(memory, "marmelade") == ["b"]
    await memory.service.write(memory.ann, PageWrite("b", "Marmelade on toast."), WriteTerms(overwrite=True))
    await put(memory, "c", "More marmalade.")
    assert await slugs(memory, "marmelade") == ["b"]
    await memory.service.write(memory.ann, PageWrite("b", "Honey on toast."), WriteTerms(overwrite=True))
    assert await slugs(memory, "marmelade") == ["c"]
    await memory.service.delete(memory.ann, "a", WriteTerms())
    assert await slugs(memory, "heliogrpah") == []


async def test_only_a_few_unknown_words_are_corrected(memory: MemoryFixture) -> None:
    await put(memory, "a", "The heliograph blinked.")
    query = " ".join(f"heliograph{each}{other}" for each in "bcfghkmpqvwxz" for other in "bcfghkmpqvwxz")
    (hit,) = (await ask(memory, query)).hits
    assert hit.explain is not None
    assert len(hit.explain["spelling"]) == 4
