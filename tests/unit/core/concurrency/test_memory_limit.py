"""Memory that requests share: which requests wait, and when memory is released."""

from __future__ import annotations

import asyncio

import pytest

from sixfold.core.concurrency import memory_limit
from sixfold.core.concurrency.memory_limit import MemoryLimit, MemoryScope
from sixfold.errors import TooManyRequests


def limit(max_bytes: int = 100, wait_seconds: float = 30) -> MemoryLimit:
    return MemoryLimit(max_bytes, "Too much at once", wait_seconds)


async def test_a_lease_waits_until_another_one_ends() -> None:
    memory = limit()
    released = asyncio.Event()

    async def hold(owner: str) -> None:
        async with memory.lease(owner) as lease:
            await lease.resize(90)
            await released.wait()

    first = asyncio.create_task(hold("ada"))
    await asyncio.sleep(0)
    second = asyncio.create_task(hold("bob"))
    await asyncio.sleep(0)
    assert memory.total == 90
    released.set()
    await asyncio.gather(first, second)
    assert memory.total == 0


async def test_oldest_lease_can_exceed_the_limit() -> None:
    memory = limit(wait_seconds=0.01)
    async with memory.lease("ada") as first, memory.lease("bob") as second:
        await first.resize(60)
        await second.resize(40)
        with pytest.raises(TooManyRequests, match="Too much at once"):
            await second.resize(41)
        await first.resize(500)
        assert memory.total == 540


async def test_leases_of_one_owner_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "MAX_WAITING", 1)
    memory = limit()
    async with (
        memory.lease("ada") as first,
        memory.lease("bob") as second,
        memory.lease("bob") as third,
        memory.lease("eve") as other,
    ):
        await first.resize(100)
        pending_tasks = [asyncio.create_task(lease.resize(10)) for lease in (second, other)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await third.resize(10)
        first.release()
        await asyncio.gather(*pending_tasks)
        assert memory.total == 20


async def test_one_owner_has_at_most_half_unless_it_is_one_lease() -> None:
    memory = limit(wait_seconds=0.01)
    async with (
        memory.lease("ada") as first,
        memory.lease("bob") as second,
        memory.lease("bob") as third,
    ):
        await first.resize(10)
        await second.resize(60)
        with pytest.raises(TooManyRequests):
            await third.resize(10)
        await second.resize(30)
        await third.resize(20)
        assert memory.total == 60


async def test_a_lease_is_held_until_the_request_ends() -> None:
    memory, request = limit(), MemoryScope()
    token = memory_limit.scope.set(request)
    try:
        async with memory.lease("ada") as lease:
            await lease.resize(10)
        assert memory.total == 10

        async def fail() -> None:
            async with memory.lease("ada") as lease:
                await lease.resize(10)
                raise ValueError("failed")

        with pytest.raises(ValueError, match="failed"):
            await fail()
        assert memory.total == 10
        request.close()
        assert memory.total == 0
        async with memory.lease("ada") as lease:
            await lease.resize(10)
        assert memory.total == 0
    finally:
        memory_limit.scope.reset(token)
