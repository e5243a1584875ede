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


async def put(place: MemoryFixture, slug: str, body: str = "") -> None:
    await place.memory.write(place.ann, PageWrite(slug, body), FREELY)


async def test_credits_are_counted_and_enforced_where_that_is_set(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(plans_enforced=True)) as place:
        for number in range(100):
            await put(place, f"n{number}")
        with pytest.raises(errors.InsufficientCredits, match="8 USD per month"):
            await put(place, "one-more")
        with pytest.raises(errors.InsufficientCredits):
            await place.memory.edit(place.ann, "n1", PageEdit("append", "x"), WriteTerms())
        await place.memory.delete(place.ann, "n1", WriteTerms())
        usage = await place.memory.usage(place.ann)
        assert (usage.used, usage.left) == (100, 0)
        assert (await place.memory.usage(place.ben)).left == 100


async def test_page_above_a_limit_is_refused(backend: str) -> None:
    async with open_memory(backend, limits=MemoryLimits(page_bytes=100)) as place:
        await put(place, "a", "x" * 100)
        with pytest.raises(errors.TooLarge, match=r"at most 100 bytes \(got 102\)"):
            await place.memory.edit(place.ann, "a", PageEdit("append", "x"), WriteTerms())
        with pytest.raises(errors.BadRequest, match="got 101"):
            await operations.operations(place.memory)["write"](
                place.ann, {"slug": "b", "body": "", "tags": [f"tag{n}" for n in range(101)]}
            )
