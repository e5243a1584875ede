"""Names of a page besides its slug: aliases and former slugs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.page_edits import PageWrite
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
