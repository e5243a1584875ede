"""Pages on every database: reads, writes, history, and no lost updates."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.database import now as clock
from sixfold.core.memory import operations as memory_operations
from sixfold.core.memory import queries
from sixfold.core.memory.commands import FREELY, TagChange, WriteTerms
from sixfold.core.memory.links import LinkPath
from sixfold.core.memory.models import Caller, Link, TimelineEntry
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.service import MemoryService
from sixfold.store import sql
from tests.harness import backends as storage_backends
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory, ticking

# The schema version without page counts of folders.
BEFORE_FOLDERS = 19
pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with ticking(backend) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str = "", **fields: object) -> int:
    """Write a page; return its version."""
    expected = PageWrite(slug, body, **fields)  # pyright: ignore[reportArgumentType] # fields by name
    return (await memory.service.write(memory.ann, expected, FREELY)).page.version


async def body(memory: MemoryFixture, slug: str, as_of: int | None = None) -> str:
    return (await memory.service.read(memory.ann, slug, as_of)).page.body


async def out(memory: MemoryService, caller: Caller, slug: str) -> set[tuple[str, str, bool]]:
    """Return a page's links: target, type, and whether the page exists."""
    return {(link.target, link.type, link.resolved) for link in await memory.links(caller, slug)}


async def test_written_page_is_read_unchanged(memory: MemoryFixture) -> None:
    text = "---\ntitle: Ann Smith\ntags: [team, no]\ntype: person\n---\n# Other\r\ntext"
    await put(memory, "people/ann", text)
    view = await memory.service.read(memory.ann, "People/Ann")
    page = view.page
    assert (page.title, page.type, page.tags, page.version) == ("Ann Smith", "person", ("team", "no"), 1)
    assert (page.head + page.body, page.body) == (text, "# Other\r\ntext")
    assert (page.created_by, page.account_id) == ("ann", memory.ann.account_id)


@pytest.mark.parametrize(
    ("sent", "text", "title"),
    [
        ("Sent", "---\ntitle: Said\n---\n# Head", "Sent"),
        (None, "---\ntitle: Said\n---\n# Head", "Said"),
        (None, "text\n## Head ##\n", "Head"),
        (None, "```\n# no\n```\n", "a/b"),
        (None, "---\ntitle: [x\n---\n# Head", "[x"),
        (None, "---\nno mapping\n---\n# Head", "Head"),
    ],
)
async def test_title_comes_from_request_front_matter_heading_or_slug(
    memory: MemoryFixture, sent: str | None, text: str, title: str
) -> None:
    await put(memory, "a/b", text, title=sent)
    assert (await memory.service.read(memory.ann, "a/b")).page.title == title


async def test_taken_slug_needs_overwrite_or_the_current_version(memory: MemoryFixture) -> None:
    await put(memory, "a", "one")
    with pytest.raises(errors.Conflict, match="overwrite"):
        await memory.service.write(memory.ann, PageWrite("a", "two"), WriteTerms())
    with pytest.raises(errors.PreconditionFailed, match="version 1, not 2"):
        await memory.service.write(memory.ann, PageWrite("a", "two"), WriteTerms(if_version=2))
    with pytest.raises(errors.PreconditionFailed, match="already"):
        await memory.service.write(
            memory.ann, PageWrite("a", "two"), WriteTerms(overwrite=True, only_new=True)
        )
    with pytest.raises(errors.PreconditionFailed, match="b does not exist"):
        await memory.service.write(
            memory.ann, PageWrite("b", "two"), WriteTerms(overwrite=True, must_exist=True)
        )
    saved = await memory.service.write(memory.ann, PageWrite("a", "two"), WriteTerms(if_version=1))
    assert (saved.page.version, saved.created, await body(memory, "a")) == (2, False, "two")


async def test_omitted_fields_stay_but_a_file_replaces_everything(memory: MemoryFixture) -> None:
    await put(memory, "a", "---\nodd: key\n---\nx", title="T", type="t", tags=("q",), collections=("c",))
    await put(memory, "a", "y")
    page = (await memory.service.read(memory.ann, "a")).page
    assert (page.head, page.title, page.type) == ("---\nodd: key\n---\n", "T", "t")
    assert (page.tags, page.collections) == (("q",), ("c",))
    await put(memory, "a", "z", whole=True)
    page = (await memory.service.read(memory.ann, "a")).page
    assert (page.head, page.title, page.type, page.tags, page.collections) == ("", "a", "note", (), ())


async def test_unchanged_write_creates_no_version(memory: MemoryFixture) -> None:
    await put(memory, "a", "x", tags=("q",))
    assert await put(memory, "a", "x") == 1
    assert (await memory.service.tag(memory.ann, "a", TagChange(["q"]), WriteTerms())).page.version == 1
    assert (await memory.service.usage(memory.ann)).used == 1


async def test_concurrent_appends_are_all_kept(memory: MemoryFixture) -> None:
    await put(memory, "log", "start")
    lines = [f"line {number}" for number in range(40)]
    edits = [
        memory.service.edit(memory.ann, "log", PageEdit("append", line), WriteTerms()) for line in lines[:20]
    ]
    edits += [
        memory.service.edit(memory.ann, "log", PageEdit("prepend", line), WriteTerms()) for line in lines[20:]
    ]
    saved = await asyncio.gather(*edits)
    assert sorted((await body(memory, "log")).split("\n")) == sorted(["start", *lines])
    assert sorted(result.page.version for result in saved) == list(range(2, 42))


async def test_one_of_two_edits_of_the_same_version_is_refused(memory: MemoryFixture) -> None:
    await put(memory, "a", "x")
    edits = [
        memory.service.edit(memory.ann, "a", PageEdit("append", str(n)), WriteTerms(if_version=1))
        for n in range(8)
    ]
    results = await asyncio.gather(*edits, return_exceptions=True)
    assert sum(isinstance(result, errors.PreconditionFailed) for result in results) == 7
    assert (await memory.service.read(memory.ann, "a")).page.version == 2


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (PageEdit("append", "c"), "# A\na\n\n## B\nb\n\n# C\nc\nc"),
        (PageEdit("prepend", "c"), "c\n# A\na\n\n## B\nb\n\n# C\nc"),
        (PageEdit("replace_text", "X", "## B\nb"), "# A\na\n\nX\n\n# C\nc"),
        (PageEdit("replace_section", "new", section="b"), "# A\na\n\n## B\nnew\n\n# C\nc"),
        (PageEdit("replace_section", "new", section="# A"), "# A\nnew\n\n# C\nc"),
        (PageEdit("replace_section", "new", section="C"), "# A\na\n\n## B\nb\n\n# C\nnew"),
    ],
)
async def test_edit_changes_only_its_part(memory: MemoryFixture, edit: PageEdit, after: str) -> None:
    await put(memory, "a", "# A\na\n\n## B\nb\n\n# C\nc")
    saved = await memory.service.edit(memory.ann, "a", edit, WriteTerms(if_version=1))
    assert saved.page.body == after


@pytest.mark.parametrize("section", ["`serve` and *more*", "serve and more", "## Serve and More"])
async def test_section_is_found_by_its_raw_or_rendered_heading(memory: MemoryFixture, section: str) -> None:
    await put(memory, "a", "Top\n===\n\n## `serve` and *more*\nold\n\nNext\n----\nkept\n")
    await memory.service.edit(
        memory.ann, "a", PageEdit("replace_section", "new", section=section), WriteTerms()
    )
    assert await body(memory, "a") == "Top\n===\n\n## `serve` and *more*\nnew\n\nNext\n----\nkept\n"


async def test_empty_lines_around_headings_are_kept(memory: MemoryFixture) -> None:
    await put(memory, "a", "# A\n\nfirst\n\n\n## B\n\n\nsecond\n\n# C\n")
    for section, content in (("B", "new"), ("A", "\nall of it\n\n## D\n\nd"), ("C", "end")):
        await memory.service.edit(
            memory.ann, "a", PageEdit("replace_section", content, section=section), WriteTerms()
        )
        if section == "B":
            assert await body(memory, "a") == "# A\n\nfirst\n\n\n## B\n\n\nnew\n\n# C\n"
    assert await body(memory, "a") == "# A\n\nall of it\n\n## D\n\nd\n\n# C\nend"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (PageEdit("replace_text", "x", "nowhere"), "not in the page"),
        (PageEdit("replace_text", "x", "a"), "2 times"),
        (PageEdit("replace_section", "x", section="Z"), "its sections are A"),
        (PageEdit("set_fields", fields={"title": None}), "title must be a string"),
        (PageEdit("set_fields", fields={"slug": "x"}), ": use title"),
        (PageEdit("set_fields", fields={"tags": [1]}), "list of strings"),
        (PageEdit("append", "x\0"), r"U\+0000"),
        (PageEdit("append", "x\ud800"), r"U\+D800"),
    ],
)
async def test_invalid_edit_is_refused_with_a_reason(memory: MemoryFixture, edit: PageEdit, why: str) -> None:
    await put(memory, "a", "# A\na a")
    with pytest.raises(errors.BadRequest, match=why):
        await memory.service.edit(memory.ann, "a", edit, WriteTerms())
    assert (await memory.service.read(memory.ann, "a")).page.version == 1


async def test_links_of_three_notations_are_parsed_once_each(memory: MemoryFixture) -> None:
    text = (
        "[[b|text]] [[b]]\n- works_at [[companies/Acme]]\n[[met::People/Ben#there]] ![[pic.png]]\n"
        "`[[no]]`\n```\n[[no]]\n```\n[file](../x/y.md) [web](https://e.org/z.md)\n- two words [[c]]\n"
    )
    await put(memory, "a/b", text)
    assert await out(memory.service, memory.ann, "a/b") == {
        ("a/b", "links_to", True),  # `[[b]]` is this page, by its last segment
        ("companies/acme", "works_at", False),
        ("people/ben", "met", False),
        ("x/y", "links_to", False),
        ("c", "links_to", False),
    }


async def test_link_is_pending_until_its_page_exists_and_follows_it(memory: MemoryFixture) -> None:
    await put(memory, "a", "[[later]] [[Far Away]]")
    await put(memory, "later")
    await put(memory, "deep/down/far-away")
    expected = {("later", "links_to", True), ("deep/down/far-away", "links_to", True)}
    assert await out(memory.service, memory.ann, "a") == expected
    await memory.service.rename(memory.ann, "later", "now", WriteTerms())
    await put(memory, "later", "another page")
    await put(memory, "a", "still [[later]] here")
    assert await out(memory.service, memory.ann, "a") == {("now", "links_to", True)}
    result, _ = await memory.service.backlinks(memory.ann, "now", 10)
    assert [(link.source, link.context) for link in result] == [("a", "still [[later]] here")]
    assert (await memory.service.backlinks(memory.ann, "later", 10))[0] == ()


async def test_old_slug_redirects_to_its_page_after_renames(memory: MemoryFixture) -> None:
    await put(memory, "a", "x")
    for old, new in itertools.pairwise("abcda"):
        await memory.service.rename(memory.ann, old, new, WriteTerms())
    for slug in "bcd":
        view = await memory.service.read(memory.ann, slug)
        assert (view.moved, view.page.slug) == (True, "a")
    assert not (await memory.service.read(memory.ann, "a")).moved
    await put(memory, "b", "new")
    assert await body(memory, "b") == "new"
    with pytest.raises(errors.Conflict):
        await memory.service.rename(memory.ann, "a", "b", WriteTerms())


async def test_deleted_page_is_restored_from_any_version(memory: MemoryFixture) -> None:
    await put(memory, "b", "[[a]]")
    await put(memory, "a", "one", tags=("q",))
    await put(memory, "a", "two")
    await memory.service.delete(memory.ann, "a", WriteTerms(if_version=2))
    for read in (memory.service.read(memory.ann, "a"), memory.service.delete(memory.ann, "a", WriteTerms())):
        with pytest.raises(errors.NotFound):
            await read
    assert (await memory.service.count_by(memory.ann, "tags", 10)).rows == ()
    assert await out(memory.service, memory.ann, "b") == {("a", "links_to", False)}
    assert len((await memory.service.history(memory.ann, "a", 10, 99))[1].rows) == 2
    saved = await memory.service.restore(memory.ann, "a", 1, WriteTerms())
    assert (saved.page.version, saved.page.body, saved.page.tags) == (3, "one", ("q",))
    assert await out(memory.service, memory.ann, "b") == {("a", "links_to", True)}
    await memory.service.delete(memory.ann, "a", WriteTerms())
    assert await put(memory, "a", "four") == 4


async def test_earlier_state_of_a_page_is_read(memory: MemoryFixture) -> None:
    moments: list[int] = []

    async def now() -> None:
        moments.append(await memory.service.database.read(clock()))

    await put(memory, "b", "")
    await now()
    await put(memory, "a", "[[b]]\n- **2026** | mail — One")
    await now()
    await put(memory, "a", "[[c]]")
    await memory.service.link(memory.ann, "a", Link("", "b", "met", "why"), WriteTerms())
    await memory.service.note(memory.ann, "a", TimelineEntry("2027-01", "Two"), WriteTerms())
    await now()
    await memory.service.rename(memory.ann, "a", "z", WriteTerms())
    await memory.service.delete(memory.ann, "z", WriteTerms())
    await now()
    await memory.service.restore(memory.ann, "z", 2, WriteTerms())
    read = memory.service.read
    for slug, moment in (("a", moments[0]), ("a", moments[3]), ("z", moments[3])):
        with pytest.raises(errors.NotFound):
            await read(memory.ann, slug, moment)
    first, second = await read(memory.ann, "a", moments[1]), await read(memory.ann, "z", moments[2])
    assert (first.page.body[:5], [link.target for link in first.links]) == ("[[b]]", ["b"])
    assert [entry.summary for entry in first.timeline] == ["One"]
    assert (second.page.slug, {(link.target, link.type) for link in second.links}) == (
        "a",
        {("c", "links_to"), ("b", "met")},
    )
    assert [entry.summary for entry in second.timeline] == ["Two"]
    backlinks, _ = await memory.service.backlinks(memory.ann, "b", 10, as_of=moments[1])
    assert [(link.source, link.type) for link in backlinks] == [("a", "links_to")]


async def test_timelines_are_newest_first_and_paged_by_cursor(memory: MemoryFixture) -> None:
    await put(memory, "a", "- **2026-01-02** | board — Started\n- **2024** plain")
    for day in range(1, 6):
        await memory.service.note(
            memory.ann, "a", TimelineEntry(f"2025-01-0{day}", f"day {day}"), WriteTerms()
        )
    texts: list[str] = []
    cursor: str | None = None
    while True:
        response = await memory.service.timeline(memory.ann, "a", 3, cursor)
        texts += [entry.summary for entry in response.entries]
        cursor = response.next_cursor
        if cursor is None:
            break
    assert texts == ["Started", "day 5", "day 4", "day 3", "day 2", "day 1", "plain"]


async def test_links_added_by_requests_are_separate_and_removable(memory: MemoryFixture) -> None:
    await put(memory, "a", "[[b]]")
    await put(memory, "b")
    for context in ("first", "second"):
        await memory.service.link(memory.ann, "a", Link("", "B", "Works At", context), WriteTerms())
    links = await memory.service.links(memory.ann, "a")
    assert [(link.type, link.context) for link in links] == [("links_to", "[[b]]"), ("works_at", "second")]
    with pytest.raises(errors.Conflict, match="is part of the text"):
        await memory.service.unlink(memory.ann, "a", Link("", "b", "links_to"), WriteTerms())
    await memory.service.unlink(memory.ann, "a", Link("", "b", "works_at"), WriteTerms())
    assert await out(memory.service, memory.ann, "a") == {("b", "links_to", True)}
    with pytest.raises(errors.NotFound):
        await memory.service.unlink(memory.ann, "a", Link("", "b", "works_at"), WriteTerms())


async def test_graph_walk_has_the_requested_depth_and_direction(memory: MemoryFixture) -> None:
    await put(memory, "a", "- to [[b]]")
    await put(memory, "b", "- to [[c]]\n- of [[d]]")
    await put(memory, "e", "- to [[a]]")
    for slug in "cd":
        await put(memory, slug)

    async def reach(route: LinkPath) -> str:
        walk = await memory.service.traverse(memory.ann, "a", route)
        return " ".join(f"{slug}{depth}" for slug, _, depth in sorted(walk.nodes))

    assert await reach(LinkPath(1, "", "out")) == "a0 b1"
    assert await reach(LinkPath(2, "", "out")) == "a0 b1 c2 d2"
    assert await reach(LinkPath(2, "to", "out")) == "a0 b1 c2"
    assert await reach(LinkPath(5, "", "in")) == "a0 e1"
    assert await reach(LinkPath(1, "", "both")) == "a0 b1 e1"
    edges = (await memory.service.traverse(memory.ann, "a", LinkPath(1, "", "both"))).edges
    assert set(edges) == {("a", "b", "to"), ("e", "a", "to")}


async def test_lists_are_filtered_and_paged_by_cursor(memory: MemoryFixture) -> None:
    for number in range(7):
        tags = ("odd",) if number % 2 else ()
        await put(memory, f"n/{number}", "x", tags=tags, type="t" if number < 3 else None)
    await put(memory, "o", "x", collections=("shelf",))

    async def slugs(expected: PageFilter) -> list[str]:
        page_slugs, cursor = [], ""
        while True:
            result = await memory.service.list(memory.ann, expected, 2, cursor)
            page_slugs += [row["slug"] for row in result.rows]
            if result.next_cursor is None:
                return page_slugs
            cursor = result.next_cursor

    assert await slugs(PageFilter()) == [*(f"n/{number}" for number in range(7)), "o"]
    assert await slugs(PageFilter(tag="odd")) == ["n/1", "n/3", "n/5"]
    assert await slugs(PageFilter(type="t", prefix="n/1")) == ["n/1"]
    assert await slugs(PageFilter(collection="shelf")) == ["o"]
    moment = (await memory.service.read(memory.ann, "n/5")).page.updated_at
    assert await slugs(PageFilter(updated_after=moment)) == ["n/6", "o"]


async def test_accounts_and_collections_are_isolated(memory: MemoryFixture) -> None:
    service = memory.service
    await put(memory, "mine", "[[shared]] [[hidden]]", collections=("a",), tags=("x",))
    await put(memory, "hidden", "[[mine]]", collections=("b",), tags=("y",))
    await service.write(memory.ben, PageWrite("mine", "of ben [[hidden]]", tags=("z",)), WriteTerms())
    limited = replace(memory.ann, collections=("a", "c"))
    for caller, slug in ((memory.ben, "hidden"), (limited, "hidden")):
        with pytest.raises(errors.NotFound) as excinfo:
            await service.read(caller, slug)
        assert excinfo.value.message == "Page hidden not found"
    assert await out(service, memory.ben, "mine") == {("hidden", "links_to", False)}
    assert await out(service, limited, "mine") == {
        ("shared", "links_to", False),
        ("hidden", "links_to", False),
    }
    assert (await service.backlinks(limited, "mine", 9))[0] == ()
    assert [node[0] for node in (await service.traverse(limited, "mine", LinkPath(3, "", "both"))).nodes] == [
        "mine"
    ]
    assert [row["slug"] for row in (await service.list(limited, PageFilter(), 9)).rows] == ["mine"]
    assert [row["name"] for row in (await service.count_by(limited, "tags", 9)).rows] == ["x"]
    assert [row["name"] for row in (await service.count_by(limited, "collections", 9)).rows] == ["a"]
    assert [row["name"] for row in (await service.count_by(memory.ben, "tags", 9)).rows] == ["z"]
    assert (await service.overview(limited, 5)).pages == 1
    page = (await service.read(memory.ann, "hidden")).page
    for caller in (memory.ben, limited):
        with pytest.raises((errors.NotFound, errors.BadRequest)):
            await service.fetch(caller, page.id)


@pytest.mark.parametrize(
    "query", ["\0", "who works at \0Acme\0?", "Where does A\0 live", "since \0 yesterday"]
)
async def test_question_with_unknown_words_is_answered(memory: MemoryFixture, query: str) -> None:
    await put(memory, "people/ann", "Ann works at Acme.")
    answer = await memory.service.search(memory.ann, SearchRequest(query))
    assert [hit.slug for hit in answer.hits] in ([], ["people/ann"])


async def test_person_in_question_ranks_before_mentions(memory: MemoryFixture) -> None:
    await put(memory, "companies/acme", "A company.", title="Acme", type="company")
    await put(memory, "people/ann-lee", "She likes tea.", title="Ann Lee", type="person")
    for day in range(12):
        await put(memory, f"log/day-{day:02}", f"Day {day}. Ann Lee works at Acme.")
    answer = await memory.service.search(memory.ann, SearchRequest("Who works at Acme?"))
    assert [hit.slug.partition("/")[0] for hit in answer.hits][:2] == ["people", "log"]


async def test_folder_counts_only_pages_visible_to_the_key(memory: MemoryFixture) -> None:
    for slug, name in (("a/b/one", "open"), ("a/b/two", "shut"), ("a/three", "open"), ("c/four", "shut")):
        await put(memory, slug, collections=[name])
    limited = replace(memory.ann, collections=("open",))
    for caller, root, inside in (
        (memory.ann, {"a": 3, "c": 1}, {"b": 2}),
        (limited, {"a": 2}, {"b": 1}),
        (memory.ben, {}, {}),
    ):
        for prefix, expected in (("", root), ("a/", inside)):
            folder = await memory.service.database.read(queries.folder(caller, prefix, 50))
            assert {row["name"]: row["count"] for row in folder.folders} == expected


async def test_page_history_hides_versions_outside_a_key_scope(memory: MemoryFixture) -> None:
    await put(memory, "plan", "secret", title="Takeover", collections=["shut"])
    await put(memory, "plan", "known", title="Plan", collections=["open"])
    limited = replace(memory.ann, collections=("open",))
    for caller, versions in ((memory.ann, [2, 1]), (limited, [2])):
        _, rows = await memory.service.database.read(queries.history(caller, "plan", 10, 2**31))
        assert [row["version"] for row in rows] == versions
    with pytest.raises(errors.NotFound):
        await memory.service.database.read(queries.version(limited, "plan", 1))


async def test_folders_of_an_older_memory_are_counted(backend: str) -> None:
    with tempfile.TemporaryDirectory() as result:
        folder = Path(result)
        async with open_memory(backend, folder=folder) as memory:
            for slug in ("a/b/one", "a/b/two", "a/three", "four", "会議/決定/五"):
                await put(memory, slug)
            caller = memory.ann
        keeper = databases.keeper(storage_backends.database_url(folder, backend), folder)
        keeper.migrate(BEFORE_FOLDERS)
        keeper.migrate(sql.latest(backend))
        async with databases.running_database(backend, folder) as database:
            for prefix, expected in (("", {"a": 3, "会議": 1}), ("a/", {"b": 2}), ("会議/", {"決定": 1})):
                contents = await database.read(queries.folder(caller, prefix, 50))
                assert {row["name"]: row["count"] for row in contents.folders} == expected


async def test_read_only_key_is_refused_by_every_write_operation(memory: MemoryFixture) -> None:
    await put(memory, "a", "x", collections=("c",))
    operations = memory_operations.operations(memory.service)
    calls = {
        "write": {"slug": "b", "body": "x", "collections": ["c"]},
        "edit": {"slug": "a", "operation": "append", "content": "x"},
        "tag": {"slug": "a", "tags": ["t"]},
        "link": {"slug": "a", "to": "b"},
        "timeline": {"slug": "a", "date": "2026", "summary": "x"},
        "delete": {"slug": "a"},
        "restore": {"slug": "a", "version": 1},
        "import_document": {"name": "a.txt", "content": "YQ=="},
    }
    assert calls.keys() == {name for name, result in operations.items() if result.writes}
    for caller in (
        replace(memory.ann, read_only=True),
        replace(memory.ann, collections=("c",), read_only=True),
    ):
        for name, inputs in calls.items():
            with pytest.raises(errors.Forbidden):
                await operations[name](caller, inputs)
        assert (await operations["read"](caller, {"slug": "a"}))["version"] == 1
        assert (await operations["tag"](caller, {"slug": "a"}))["tags"] == []
