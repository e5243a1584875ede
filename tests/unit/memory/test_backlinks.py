"""Paginated backlinks of a page, current and at an earlier time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sixfold.core.memory.commands import WriteTerms
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture
from tests.unit.memory.test_pages import memory, put

__all__ = ["memory"]
pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


async def test_backlinks_page_is_full_despite_repeated_links(memory: MemoryFixture) -> None:
    service, ann = memory.service, memory.ann
    await put(memory, "now", "x")
    old = [f"old{number}" for number in range(6)]
    for slug in old:
        await service.rename(ann, "now", slug, WriteTerms())
        await service.rename(ann, slug, "now", WriteTerms())
    for number in range(4):
        await put(memory, f"from{number}", " ".join(f"[[{slug}]]" for slug in (*old, "now")))
    for moment in (None, 2**61):
        cursor, result = "", []
        for _ in range(2):
            page, following = await service.backlinks(ann, "now", 2, cursor, as_of=moment)
            cursor = following or "end"
            result.append([link.source for link in page])
        assert result == [["from0", "from1"], ["from2", "from3"]], moment


async def test_backlinks_of_the_past_are_filtered_before_their_limit(memory: MemoryFixture) -> None:
    service, ann = memory.service, memory.ann
    await put(memory, "goal", "x", collections=("mine",))
    for number in range(20):
        collections = ("mine",) if number >= 18 else ("theirs",)
        await put(memory, f"from{number:02}", "[[goal]]", collections=collections)
    limited = replace(ann, collections=("mine",))
    for moment in (None, 2**61):
        result, _ = await service.backlinks(limited, "goal", 2, as_of=moment)
        assert [link.source for link in result] == ["from18", "from19"], moment
