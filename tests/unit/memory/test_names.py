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
async def place(backend: str) -> AsyncIterator[MemoryFixture]:
    async with ticking(backend) as result:
        yield result


async def put(place: MemoryFixture, slug: str, body: str, *, whole: bool = False) -> None:
    await place.memory.write(place.ann, PageWrite(slug, body, whole=whole), FREELY)


async def out(place: MemoryFixture, slug: str) -> set[str]:
    """Return the pages that a page links to."""
    return {link.target for link in await place.memory.links(place.ann, slug) if link.resolved}


async def test_old_slugs_of_a_file_do_not_replace_those_of_others(place: MemoryFixture) -> None:
    await put(place, "early", "[[ann-s]] [[taken]]")
    await put(place, "taken", "mine")
    await put(place, "ann", "---\nold_slugs: [Ann S, taken, ann]\nx: 1\n---\ntext", whole=True)
    await put(place, "late", "[[ann-s]]")
    assert await out(place, "early") == {"ann", "taken"}
    assert await out(place, "late") == {"ann"}
    view = await place.memory.read(place.ann, "ann-s")
    assert (view.moved, view.page.slug, view.page.head) == (True, "ann", "---\nx: 1\n---\n")
    assert (await place.memory.read(place.ann, "taken")).page.body == "mine"


async def test_link_resolves_to_the_page_with_that_alias(place: MemoryFixture) -> None:
    await put(place, "early", "[[Annie]] [[A. Smith]]")
    await put(place, "people/ann", "---\naliases: [Annie, A. Smith]\n---\ntext")
    await put(place, "work/acme", "alias:: ACME Inc, Annie\n- text")
    await put(place, "late", "[[annie]] [[acme inc]]")
    assert await out(place, "early") == {"people/ann"}
    assert await out(place, "late") == {"people/ann", "work/acme"}
    await put(place, "annie", "a page of that very name")
    assert await out(place, "late") == {"annie", "work/acme"}
