"""Stored objects that requests load share a limit: which request waits, and when memory is released."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sixfold.core.concurrency import fair_threads, loaded_objects, memory_limit
from sixfold.core.concurrency.memory_limit import MemoryScope
from sixfold.core.gateway.conversations.response_tasks import ResponseTasks
from sixfold.errors import TooManyRequests

MIB = 2**20


class Request:
    """A request of an account that loads files until it is ended."""

    def __init__(self, account: str, *sizes: int) -> None:
        self.loaded = 0
        self.end = asyncio.Event()
        # Called after `go_on`, before the request waits for its end.
        self.then: Callable[[], None] = lambda: None
        self.go_on = asyncio.Event()
        self.task = asyncio.create_task(self._run(account, sizes))

    async def _run(self, account: str, sizes: tuple[int, ...]) -> None:
        fair_threads.owner.set(account)
        scope = MemoryScope()
        memory_limit.scope.set(scope)
        try:
            for size in sizes:
                await loaded_objects.reserve(size, loaded_objects.DOCUMENT_COPIES)
                self.loaded += size
            await self.go_on.wait()
            self.then()
            await self.end.wait()
        finally:
            scope.close()

    async def finish(self) -> None:
        self.go_on.set()
        self.end.set()
        await self.task


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
        if condition():
            return
    raise AssertionError("The condition does not hold")


async def test_one_account_loads_at_most_half_of_the_limit() -> None:
    requests = [Request("ada", 60 * MIB) for _ in range(8)]
    await until(lambda: requests[0].loaded > 0)
    assert sum(request.loaded for request in requests) == 60 * MIB
    other = Request("bob", 60 * MIB)
    await until(lambda: other.loaded > 0)
    for request in requests:
        await until(lambda request=request: request.loaded > 0)
        assert sum(each.loaded for each in requests if not each.end.is_set()) == 60 * MIB
        await request.finish()
    await other.finish()


async def test_requests_with_several_files_do_not_block_each_other() -> None:
    requests = [Request("ada", 30 * MIB, 30 * MIB, 30 * MIB) for _ in range(3)]
    for request in requests:
        await until(lambda request=request: request.loaded == 90 * MIB)
        await request.finish()


async def test_further_requests_are_refused_at_once() -> None:
    requests = [Request("ada", 60 * MIB) for _ in range(1 + memory_limit.MAX_WAITING)]
    await until(lambda: requests[0].loaded > 0)
    refused = Request("ada", 60 * MIB)
    with pytest.raises(TooManyRequests, match="Too many large files and conversations"):
        await refused.task
    await asyncio.gather(*(request.finish() for request in requests))


async def test_an_object_that_is_loaded_again_is_reserved_once() -> None:
    async def load(*keys: str) -> None:
        fair_threads.owner.set("ada")
        scope = MemoryScope()
        memory_limit.scope.set(scope)
        for key in keys:
            await loaded_objects.reserve(20 * MIB, loaded_objects.DOCUMENT_COPIES, key)
        loaded.append(len(keys))
        await end.wait()
        scope.close()

    loaded: list[int] = []
    end = asyncio.Event()
    # One account uses 128 MiB.
    tasks = [asyncio.create_task(load(*keys)) for keys in (("a", "a", "b"), ("a",), ("a",))]
    await until(lambda: bool(loaded))
    for _ in range(10):
        await asyncio.sleep(0)
    assert loaded == [3, 1]
    end.set()
    await asyncio.gather(*tasks)


async def test_small_files_and_work_without_requests_are_free() -> None:
    requests = [Request("ada", 60_000) for _ in range(10_000)]
    await until(lambda: all(request.loaded for request in requests))
    for request in requests:
        await request.finish()
    for _ in range(100):
        await loaded_objects.reserve(60 * MIB, loaded_objects.DOCUMENT_COPIES)


@pytest.mark.parametrize(
    ("release", "others"), [(loaded_objects.release, (30, 30)), (loaded_objects.release_sent, (30,))]
)
async def test_a_request_in_progress_releases_what_it_no_longer_uses(
    release: Callable[[], None], others: tuple[int, ...]
) -> None:
    first = Request("ada", 60 * MIB)
    await until(lambda: first.loaded > 0)
    first.then = release
    waiting = [Request("ada", size * MIB) for size in (30, 30)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert [request.loaded for request in waiting] == [0, 0]
    first.go_on.set()
    await until(lambda: sum(request.loaded for request in waiting) == sum(others) * MIB)
    for request in (first, *waiting):
        await request.finish()


async def test_a_response_keeps_its_memory_after_its_request() -> None:
    tasks, end, first_loaded = ResponseTasks(), asyncio.Event(), asyncio.Event()

    class Response:
        def stop(self) -> None:
            end.set()

    async def work() -> None:
        await loaded_objects.reserve(60 * MIB, loaded_objects.DOCUMENT_COPIES)
        first_loaded.set()
        await end.wait()

    fair_threads.owner.set("ada")
    tasks.start("ada", "chat", Response(), work())
    await first_loaded.wait()
    request = Request("ada", 60 * MIB)
    for _ in range(10):
        await asyncio.sleep(0)
    assert request.loaded == 0
    await tasks.close()
    await until(lambda: request.loaded > 0)
    await request.finish()
