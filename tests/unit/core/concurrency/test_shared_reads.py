"""Concurrent reads of one key are one read."""

from __future__ import annotations

import asyncio

import pytest

from sixfold.core.concurrency.shared_reads import SharedReads


class _Source:
    def __init__(self) -> None:
        self.reads = 0
        self.ready = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        await self.ready.wait()
        if number == 2:
            raise ValueError("unreadable")
        return number


async def test_reads_in_progress_are_shared_and_later_ones_are_new() -> None:
    source, shared = _Source(), SharedReads[int]()
    pending_tasks = [asyncio.create_task(shared.get("a", source.read)) for _ in range(3)]
    await asyncio.sleep(0)
    pending_tasks[0].cancel()
    source.ready.set()
    assert await asyncio.gather(*pending_tasks[1:]) == [1, 1]
    assert pending_tasks[0].cancelled()
    failing = [asyncio.create_task(shared.get("a", source.read)) for _ in range(2)]
    results = await asyncio.gather(*failing, return_exceptions=True)
    assert [str(error) for error in results] == ["unreadable", "unreadable"]
    assert await shared.get("a", source.read) == 3


async def test_keys_are_read_separately() -> None:
    source, shared = _Source(), SharedReads[int]()
    source.ready.set()
    assert await shared.get("a", source.read) == 1
    with pytest.raises(ValueError, match="unreadable"):
        await shared.get("b", source.read)
