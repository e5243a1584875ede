"""Limits of reads that grow with the memory: backlinks of a page, and phrase searches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from sixfold.core.database import Query, Rows, Transaction
from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.links import LinkPath
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

MAX_LINKS = 10_000


@pytest.fixture(params=databases.BACKS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[MemoryFixture]:
    async with open_memory(request.param) as result:
        yield result


async def put(place: MemoryFixture, slug: str, body: str) -> str:
    """Write a page, and return its id."""
    saved = await place.memory.write(place.ann, PageWrite(slug, body), FREELY)
    return saved.page.id


async def test_ten_thousand_links_to_a_page_are_read(place: MemoryFixture) -> None:
    hub, source = await put(place, "hub", "x"), await put(place, "source", "y")
    link = {"id": source, "target": "hub", "maker": "api", "target_id": hub, "by_name": 0}
    rows = [
        {**link, "type": f"kind{at}", "origin": "explicit", "context": ""} for at in range(MAX_LINKS + 50)
    ]

    def insert() -> Transaction[Rows]:
        account_id = place.ann.account_id
        return (yield Query("links_put", {"account_id": account_id, "rows": json.dumps(rows), "at": 1}))

    await place.memory.database.write(insert())
    found, _ = await place.memory.backlinks(place.ann, "hub", limit=2 * MAX_LINKS)
    assert len(found) == MAX_LINKS
    walk = await place.memory.traverse(place.ann, "hub", LinkPath(depth=1, direction="in", nodes=40))
    assert [node[0] for node in walk.nodes] == ["hub", "source"]


async def test_a_phrase_is_searched_in_four_million_characters(place: MemoryFixture) -> None:
    await put(place, "a/oldest", "to be or not to be")
    await place.memory.write(place.ann, PageWrite("b/titled", "z", title="To be or not to be"), FREELY)
    request = SearchRequest("to be or not to be")
    assert {hit.slug for hit in (await place.memory.search(place.ann, request)).hits} == {
        "a/oldest",
        "b/titled",
    }
    for number in range(250):
        await put(place, f"c/{number}", "it. " * 4_090)
    assert {hit.slug for hit in (await place.memory.search(place.ann, request)).hits} == {"b/titled"}
