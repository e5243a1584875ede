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


async def put(memory: MemoryFixture, slug: str, body: str = "") -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body), FREELY)


async def test_the_pages_of_an_account_are_limited(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(account_pages=3)) as memory:
        for number in range(3):
            await put(memory, f"n{number}")
        with pytest.raises(errors.TooLarge, match=r"limited to 3 pages \(this change needs 4\)"):
            await put(memory, "one-more")
        await memory.service.edit(memory.ann, "n1", PageEdit("append", "x"), WriteTerms())
        await memory.service.delete(memory.ann, "n1", WriteTerms())
        await put(memory, "one-more")
        with pytest.raises(errors.TooLarge):
            await memory.service.restore(memory.ann, "n1", 1, WriteTerms())
        operator = await memory.service.database.write(accounts.create("root@example.com", operator=True))
        for number in range(4):
            await memory.service.write(
                Caller(operator.id, "root"), PageWrite(f"n{number}", "x"), WriteTerms()
            )


async def test_the_bytes_of_an_account_are_limited_with_all_versions(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(account_bytes=20_000)) as memory:
        await put(memory, "a", "x" * 9_000)
        with pytest.raises(errors.TooLarge, match="limited to 20,000 bytes of pages and their versions"):
            await put(memory, "b", "é" * 5_000)
        await memory.service.edit(memory.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.TooLarge):
            await memory.service.edit(memory.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.TooLarge):
            await memory.service.note(
                memory.ann, "a", TimelineEntry("2026-11-22", "s", "d" * 9_000, ""), WriteTerms()
            )
        await memory.service.delete(memory.ann, "a", WriteTerms())
