"""Limits of pages and of an account's memory, and the credits that pages use."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.core.memory import operations
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


async def put(memory: MemoryFixture, slug: str, body: str = "") -> None:
    await memory.service.write(memory.ann, PageWrite(slug, body), FREELY)


async def test_credits_are_counted_and_enforced_where_that_is_set(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(plans_enforced=True)) as memory:
        for number in range(100):
            await put(memory, f"n{number}")
        with pytest.raises(errors.InsufficientCredits, match="8 USD per month"):
            await put(memory, "one-more")
        with pytest.raises(errors.InsufficientCredits):
            await memory.service.edit(memory.ann, "n1", PageEdit("append", "x"), WriteTerms())
        await memory.service.delete(memory.ann, "n1", WriteTerms())
        usage = await memory.service.usage(memory.ann)
        assert (usage.used, usage.left) == (100, 0)
        assert (await memory.service.usage(memory.ben)).left == 100


async def test_page_above_a_limit_is_refused(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(page_bytes=100)) as memory:
        await put(memory, "a", "x" * 100)
        with pytest.raises(errors.TooLarge, match=r"at most 100 bytes \(got 102\)"):
            await memory.service.edit(memory.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.BadRequest, match="got 101"):
            await operations.operations(memory.service)["write"](
                memory.ann, {"slug": "b", "body": "", "tags": [f"tag{n}" for n in range(101)]}
            )
