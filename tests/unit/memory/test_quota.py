"""Memory quotas of an account: pages, and bytes of all versions."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller, TimelineEntry
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


async def put(place: MemoryFixture, slug: str, body: str = "") -> None:
    await place.memory.write(place.ann, PageWrite(slug, body), FREELY)


async def test_the_pages_of_an_account_are_limited(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(account_pages=3)) as place:
        for number in range(3):
            await put(place, f"n{number}")
        with pytest.raises(errors.TooLarge, match=r"limited to 3 pages \(this change needs 4\)"):
            await put(place, "one-more")
        await place.memory.edit(place.ann, "n1", PageEdit("append", "x"), WriteTerms())
        await place.memory.delete(place.ann, "n1", WriteTerms())
        await put(place, "one-more")
        with pytest.raises(errors.TooLarge):
            await place.memory.restore(place.ann, "n1", 1, WriteTerms())
        operator = await place.memory.database.write(accounts.create("root@example.com", operator=True))
        for number in range(4):
            await place.memory.write(Caller(operator.id, "root"), PageWrite(f"n{number}", "x"), WriteTerms())


async def test_the_bytes_of_an_account_are_limited_with_all_versions(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(account_bytes=20_000)) as place:
        await put(place, "a", "x" * 9_000)
        with pytest.raises(errors.TooLarge, match="limited to 20,000 bytes of pages and their versions"):
            await put(place, "b", "é" * 5_000)
        await place.memory.edit(place.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.TooLarge):
            await place.memory.edit(place.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.TooLarge):
            await place.memory.note(
                place.ann, "a", TimelineEntry("2026-11-22", "s", "d" * 9_000, ""), WriteTerms()
            )
        await place.memory.delete(place.ann, "a", WriteTerms())
