"""Names of a page besides its slug: aliases and former slugs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sixfold.core.memory.commands import FREELY, PageWriter, WriteTerms
from sixfold.core.memory.import_export import files
from sixfold.core.memory.import_export.archives import ArchiveMember
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, ticking

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with ticking(backend) as result:
        yield result


async def put(memory: MemoryFixture, slug: str, body: str, *, whole: bool = False) -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body, whole=whole), FREELY)


async def out(memory: MemoryFixture, slug: str) -> set[str]:
    """Return the pages that a page links to."""
    return {link.target for link in await memory.service.links(memory.ann, slug) if link.resolved}


async def test_old_slugs_of_a_file_do_not_replace_those_of_others(memory: MemoryFixture) -> None:
    await put(memory, "early", "[[ann-s]] [[taken]]")
    await put(memory, "taken", "mine")
    await put(memory, "ann", "---\nold_slugs: [Ann S, taken, ann]\nx: 1\n---\ntext", whole=True)
    await put(memory, "late", "[[ann-s]]")
    assert await out(memory, "early") == {"ann", "taken"}
    assert await out(memory, "late") == {"ann"}
    view = await memory.service.read(memory.ann, "ann-s")
    assert (view.moved, view.page.slug, view.page.head) == (True, "ann", "---\nx: 1\n---\n")
    assert (await memory.service.read(memory.ann, "taken")).page.body == "mine"


async def test_link_resolves_to_the_page_with_that_alias(memory: MemoryFixture) -> None:
    await put(memory, "early", "[[Annie]] [[A. Smith]]")
    await put(memory, "people/ann", "---\naliases: [Annie, A. Smith]\n---\ntext")
    await put(memory, "work/acme", "alias:: ACME Inc, Annie\n- text")
    await put(memory, "late", "[[annie]] [[acme inc]]")
    assert await out(memory, "early") == {"people/ann"}
    assert await out(memory, "late") == {"people/ann", "work/acme"}
    await put(memory, "annie", "a page of that very name")
    assert await out(memory, "late") == {"annie", "work/acme"}


async def import_files(memory: MemoryFixture, **texts: str) -> None:
    """Import files in one batch, as an archive does; `__` in a name separates folders and `_` words."""
    members = [
        ArchiveMember(f"{name.replace('__', '/').replace('_', ' ')}.md", text) for name, text in texts.items()
    ]
    writer = PageWriter(memory.ann, MemoryLimits())
    report = await memory.service.database.write(files.put(writer, members, files.FileNaming()))
    assert report.errors == []


async def test_files_of_one_import_link_by_alias(memory: MemoryFixture) -> None:
    await import_files(
        memory,
        Log="[[Annie]], [[The Big Airship|airship]], [[Smith, Ann]] and [[飛行船]]",
        People__Ann='---\naliases: [Annie, "Smith, Ann"]\n---\nI am [[Annie]].',
        Zeppelin="---\r\naliases:\r\n  - Zep\r\n  - The Big Airship\r\n  - 飛行船\r\n---\r\ntext\r\n",
    )
    assert await out(memory, "log") == {"people/ann", "zeppelin"}
    assert await out(memory, "people/ann") == {"people/ann"}


async def test_file_without_a_main_heading_has_its_name(memory: MemoryFixture) -> None:
    await import_files(
        memory,
        People__Ann_Smith="## Career\ntext",
        People__ben="text",
        Named="---\ntitle: In the front matter\n---\n# Heading",
        Headed="# Heading",
    )
    rows = (await memory.service.list(memory.ann, PageFilter(), 10)).rows
    assert {row["slug"]: row["title"] for row in rows} == {
        "people/ann-smith": "Ann Smith",
        "people/ben": "ben",
        "named": "In the front matter",
        "headed": "Heading",
    }


@pytest.mark.parametrize("title", ["New", "ann"])
async def test_new_title_is_exported_in_the_front_matter(memory: MemoryFixture, title: str) -> None:
    await import_files(memory, Ann="---\ntitle: Old\n---\n# New\ntext")
    await memory.service.edit(
        memory.ann, "ann", PageEdit("set_fields", fields={"title": title}), WriteTerms()
    )
    page = (await memory.service.read(memory.ann, "ann")).page
    exported = await memory.service.database.read(files.text(page))
    assert exported == f"---\ntitle: {title}\n---\n# New\ntext"


async def test_title_from_a_file_name_follows_its_rename(memory: MemoryFixture) -> None:
    await import_files(memory, Ann_Smith="text", Gas_Bag="# Gas Bag\ntext")
    await memory.service.rename(memory.ann, "ann-smith", "ann-jones", WriteTerms(), "Ann Jones.md")
    await memory.service.rename(memory.ann, "gas-bag", "hull", WriteTerms(), "Hull.md")
    for slug, title, text in (("ann-jones", "Ann Jones", "text"), ("hull", "Gas Bag", "# Gas Bag\ntext")):
        page = (await memory.service.read(memory.ann, slug)).page
        assert page.title == title
        assert await memory.service.database.read(files.text(page)) == text


async def test_page_in_another_folder_keeps_its_file_name(memory: MemoryFixture) -> None:
    await import_files(memory, People__Ann_Smith="text")
    moved = await memory.service.rename(memory.ann, "people/ann-smith", "staff/ann-smith", WriteTerms())
    assert (moved.page.path, moved.page.title) == ("staff/Ann Smith.md", "Ann Smith")
    renamed = await memory.service.rename(memory.ann, "staff/ann-smith", "staff/ann-jones", WriteTerms())
    assert (renamed.page.path, renamed.page.title) == ("staff/ann-jones.md", "ann-jones")
