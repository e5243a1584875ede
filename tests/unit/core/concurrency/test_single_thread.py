"""Functions that block all other threads run one at a time, in the context of their callers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from sixfold.core.concurrency import single_thread
from sixfold.core.concurrency.fair_threads import owner
from sixfold.core.concurrency.single_thread import SingleThread
from tests import loop_time

CALLER = contextvars.ContextVar("CALLER", default=0)


async def test_functions_run_one_at_a_time() -> None:
    thread, active, peak = SingleThread("test"), 0, 0

    def work(value: int, *, factor: int) -> tuple[int, int, str]:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        # Long enough for another thread to start.
        sum(range(200_000))
        active -= 1
        return value * factor, CALLER.get(), threading.current_thread().name

    async def call(value: int) -> tuple[int, int, str]:
        CALLER.set(value)
        return await thread.run(work, value, factor=2)

    result = await asyncio.gather(*map(call, range(20)))
    assert result == [(2 * value, value, "test_0") for value in range(20)]
    assert peak == 1


async def test_error_of_a_function_is_raised_in_its_caller() -> None:
    thread = SingleThread("test")
    with pytest.raises(ValueError, match="invalid literal"):
        await thread.run(int, "x")
    assert await thread.run(int, "7") == 7


async def test_arguments_of_a_failed_function_are_freed_at_once() -> None:
    class Document:
        """An argument that can be referred to weakly."""

    def fail(_document: Document) -> None:
        raise ValueError

    thread = SingleThread("test")
    document = Document()
    reference = weakref.ref(document)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await thread.run(fail, document)
        del document
        # When the next function runs, the thread has ended the first one.
        await thread.run(int, "7")
        assert reference() is None
    finally:
        gc.enable()


async def test_owners_take_turns() -> None:
    thread, order = SingleThread("test"), list[str]()
    started, released = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        released.wait(10)

    async def call(name: str, function: Callable[[], None]) -> None:
        owner.set(name)
        await thread.run(function)

    held_task = asyncio.create_task(call("ann", hold))
    assert await asyncio.to_thread(started.wait, 10)
    names = ["ann"] * 20 + ["ben", "ben", "cat"]
    calls = [asyncio.create_task(call(name, lambda name=name: order.append(name))) for name in names]
    # One of them is canceled while it waits, which takes no turn of the others.
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    released.set()
    await asyncio.gather(held_task, *calls, return_exceptions=True)
    assert sorted(order) == sorted(names[1:])
    assert {*order[:4]} == {"ann", "ben", "cat"}
    assert order.index("cat") < 4
    assert [at for at, name in enumerate(order) if name == "ben"][-1] < 6


async def test_small_inputs_of_many_requests_do_not_block_the_loop() -> None:
    single = SingleThread("test")

    def parse() -> None:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

    async with loop_time.watched() as loop:
        await asyncio.gather(*(single.run_large(single_thread.LOOP_BYTES, parse) for _ in range(60)))
    assert loop.longest < 0.1
