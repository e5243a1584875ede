"""Connections hold small objects in place of uvicorn's events and queue, with the same behavior."""

from __future__ import annotations

import asyncio
import sys

import pytest

from sixfold.web.connections.compact import CompactEvent, CompactQueue


async def _waiting(event: CompactEvent, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(event.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_setting_an_event_wakes_up_all_waiters() -> None:
    event = CompactEvent()
    tasks = await _waiting(event, 3)
    assert not any(task.done() for task in tasks)
    event.set()
    await asyncio.gather(*tasks)
    assert event.is_set()


async def test_waiter_is_woken_up_by_an_event_that_is_cleared_at_once() -> None:
    event = CompactEvent()
    [task] = await _waiting(event, 1)
    event.set()
    event.clear()
    await task
    assert not event.is_set()


async def test_event_that_is_set_does_not_wait() -> None:
    event = CompactEvent(is_set=True)
    waiting = event.wait()
    with pytest.raises(StopIteration):
        waiting.send(None)


@pytest.mark.parametrize("is_set_first", [False, True])
async def test_canceled_waiter_does_not_disturb_the_others(is_set_first: bool) -> None:
    event = CompactEvent()
    [canceled, other] = await _waiting(event, 2)
    if is_set_first:
        event.set()
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    event.set()
    await other


def test_queue_returns_the_oldest_item_first() -> None:
    queue = CompactQueue[int]()
    for number in range(3):
        queue.appendleft(number)
    assert [queue.pop() for _ in range(3)] == [0, 1, 2]
    assert not queue


def test_objects_of_an_idle_connection_are_small() -> None:
    assert sys.getsizeof(CompactEvent()) + sys.getsizeof(CompactQueue[int]()) < 200
