"""A thread pool that limits the threads of each account."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from sixfold.core.concurrency import fair_threads
from sixfold.core.concurrency.fair_threads import FairThreadPool, owner


def submit(pool: FairThreadPool, name: str, function: Callable[[], str]) -> Future[str]:
    context = contextvars.copy_context()
    context.run(owner.set, name)
    return context.run(pool.submit, function)


class BlockingCall:
    """A function that blocks its thread, and the number of its calls in progress."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.active = self.peak = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.active += 1
            self.peak = max(self.peak, self.active)
        self.released.wait(60)
        with self._lock:
            self.active -= 1
        return "held"


@pytest.mark.parametrize("threads", [2, 5, 8])
def test_one_owner_has_at_most_half_of_the_threads(threads: int) -> None:
    held = BlockingCall()
    with FairThreadPool(threads, "test") as pool:
        long = [submit(pool, "ann", held) for _ in range(3 * threads)]
        short = [submit(pool, name, lambda: "short") for name in ("ben", "cat", "") for _ in range(threads)]
        assert {future.result(60) for future in short} == {"short"}
        assert not any(future.done() for future in long)
        held.released.set()
        assert {future.result(60) for future in long} == {"held"}
    assert held.peak <= (threads + 1) // 2


def test_canceled_calls_do_not_keep_later_ones_waiting() -> None:
    held = BlockingCall()
    with FairThreadPool(2, "test") as pool:
        first = submit(pool, "ann", held)
        later = [submit(pool, "ann", lambda: "later") for _ in range(20)]
        assert all(future.cancel() for future in later[::2])
        held.released.set()
        assert [future.result(60) for future in (first, *later[1::2])] == ["held"] + ["later"] * 10


def test_error_of_a_call_is_raised_by_its_future() -> None:
    def fail() -> str:
        raise ValueError("no")

    with FairThreadPool(2, "test") as pool, pytest.raises(ValueError, match="no"):
        submit(pool, "ann", fail).result(60)


async def test_threads_of_the_loop_are_fair() -> None:
    held = BlockingCall()
    fair_threads.use_for_loop()
    owner.set("ann")
    calls = [asyncio.create_task(asyncio.to_thread(held)) for _ in range(100)]
    await asyncio.sleep(0)
    owner.set("ben")
    assert await asyncio.to_thread(lambda: "short") == "short"
    held.released.set()
    assert set(await asyncio.gather(*calls)) == {"held"}
