"""Limits of reads that grow with the memory: backlinks of a page, phrase searches and lists with filters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.core.database import Query, Rows, Transaction
from sixfold.core.memory import pages, timeline
from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.links import LinkPath
from sixfold.core.memory.models import TimelineEntry
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import SearchRequest
from tests import loop_time
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

MAX_LINKS = 10_000


@pytest.fixture(params=databases.BACKENDS)
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[MemoryFixture]:
    async with open_memory(request.param) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str) -> str:
    saved = await memory.service.write(memory.ann, PageWrite(slug, body), FREELY)
    return saved.page.id


async def test_ten_thousand_links_to_a_page_are_read(memory: MemoryFixture) -> None:
    hub, source = await put(memory, "hub", "x"), await put(memory, "source", "y")
    link = {"id": source, "target": "hub", "maker": "api", "target_id": hub, "by_name": 0}
    rows = [
        {**link, "type": f"kind{at}", "origin": "explicit", "context": ""} for at in range(MAX_LINKS + 50)
    ]

    def insert() -> Transaction[Rows]:
        account_id = memory.ann.account_id
        return (yield Query("links_put", {"account_id": account_id, "rows": json.dumps(rows), "at": 1}))

    await memory.service.database.write(insert())
    results, _ = await memory.service.backlinks(memory.ann, "hub", limit=2 * MAX_LINKS)
    assert len(results) == MAX_LINKS
    walk = await memory.service.traverse(memory.ann, "hub", LinkPath(depth=1, direction="in", nodes=40))
    assert [node[0] for node in walk.nodes] == ["hub", "source"]


@pytest.mark.parametrize("memory", databases.POSTGRES_NIGHTLY, indirect=True)
async def test_a_phrase_is_searched_in_four_million_characters(memory: MemoryFixture) -> None:
    await put(memory, "a/oldest", "to be or not to be")
    await memory.service.write(memory.ann, PageWrite("b/titled", "z", title="To be or not to be"), FREELY)
    request = SearchRequest("to be or not to be")
    assert {hit.slug for hit in (await memory.service.search(memory.ann, request)).hits} == {
        "a/oldest",
        "b/titled",
    }
    for number in range(250):
        await put(memory, f"c/{number}", "it. " * 4_090)
    assert {hit.slug for hit in (await memory.service.search(memory.ann, request)).hits} == {"b/titled"}


async def fill(memory: MemoryFixture, count: int) -> None:
    """Insert pages directly: each hundredth has the tag `rare`."""
    account_id = memory.ann.account_id
    common = {"type": "note", "collections": "[]", "version": 1, "created_by": "ann", "deleted_at": None}
    rows = [
        {**common, "id": f"p{at}", "slug": f"log/{at:06}", "name": f"{at:06}", "title": f"Day {at}"}
        | {"tags": '["rare"]' if at % 100 == 0 else "[]", "created_at": at, "updated_at": at}
        for at in range(count)
    ]
    tags = [{"id": f"p{at}", "name": "rare"} for at in range(0, count, 100)]

    def insert() -> Transaction[Rows]:
        yield Query("pages_put", {"account_id": account_id, "rows": json.dumps(rows)})
        return (yield Query("page_tags_put", {"account_id": account_id, "rows": json.dumps(tags)}))

    await memory.service.database.write(insert())


@pytest.mark.parametrize("pages_of_a_slice", [1, 7, 4_000])
async def test_a_list_in_slices_is_that_of_one_query(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch, pages_of_a_slice: int
) -> None:
    monkeypatch.setattr(pages, "SLICE_PAGES", pages_of_a_slice)
    await fill(memory, 500)
    database, count = memory.service.database, 0
    for page_filter in (
        PageFilter("rare"),
        PageFilter(prefix="log/0001"),
        PageFilter("rare", prefix="log/0003"),
    ):
        for limit, after in ((2, ""), (2, "log/000200"), (100, "log/000100"), (1_000, "")):
            expected = await database.read(pages.list_rows(memory.ann, page_filter, limit, after))
            rows = await pages.list_in_slices(database, memory.ann, page_filter, limit, after)
            assert [row["slug"] for row in rows] == [row["slug"] for row in expected]
            count += len(rows)
    assert count > 100


@pytest.mark.parametrize("memory", databases.POSTGRES_NIGHTLY, indirect=True)
async def test_a_list_with_a_rare_tag_does_not_block_the_loop(memory: MemoryFixture) -> None:
    await fill(memory, 60_000)
    for page_filter in (PageFilter("none"), PageFilter("rare"), PageFilter(type="idea")):
        async with loop_time.watched() as seen:
            rows = (await memory.service.list(memory.ann, page_filter, 1_000)).rows
        assert len(rows) == (600 if page_filter.tag == "rare" else 0)
        assert seen.longest < 0.03


def result_of(transaction: Transaction[Any], rows: Any) -> Any:
    """Return the result of a transaction with one query."""
    next(transaction)
    with pytest.raises(StopIteration) as excinfo:
        transaction.send(rows)
    return excinfo.value.value


def test_many_entries_and_old_slugs_of_a_page_take_linear_time() -> None:
    page = cast("Any", SimpleNamespace(id="page_1", account_id="acct_1"))
    count = 30_000
    rows = [
        {"page_id": "page_1", "slug": "a", "date": "2026-01-01", "summary": "x", "detail": "", "source": ""}
    ] * count

    def read() -> None:
        assert len(result_of(timeline.all_of_calls([page]), rows)["page_1"]) == count
        assert len(result_of(pages.old_slugs([page]), rows)["page_1"]) == count

    assert loop_time.cpu_seconds(read, 0.2) < 0.4


async def test_entries_that_requests_add_to_a_page_are_limited(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MAX_ADDED", 2)
    monkeypatch.setattr(timeline, "MAX_ADDED_CHARS", 100)
    for slug in ("many", "long"):
        await put(memory, slug, "x")
    for _ in range(2):
        await memory.service.note(memory.ann, "many", TimelineEntry("2026-01-01", "a", "", ""), FREELY)
    for slug, detail in (("many", ""), ("long", "y" * 100)):
        with pytest.raises(errors.TooLarge, match="at most 2 timeline entries of 100 characters"):
            await memory.service.note(memory.ann, slug, TimelineEntry("2026-01-02", "a", detail, ""), FREELY)


async def test_exported_pages_are_counted_with_their_entries(
    memory: MemoryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export_files, "EXPORT_CHARS", 1_000)
    for slug in ("a", "b", "c"):
        await put(memory, slug, "x")
    await memory.service.note(memory.ann, "a", TimelineEntry("2026-01-01", "a", "y" * 2_000, ""), FREELY)
    sizes: list[int] = []
    after = ""
    while batch := await memory.service.database.read(import_export_files.exported(memory.ann, after)):
        sizes.append(len(batch))
        after = batch[-1].page.slug
    assert sizes == [1, 2]
