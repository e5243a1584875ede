"""Functions that keep all others waiting run one at a time, in the context of their callers."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from sixfold.core.concurrency.single_thread import SingleThread

CALLER = contextvars.ContextVar("CALLER", default=0)


async def test_functions_run_one_at_a_time() -> None:
    thread, running, most = SingleThread("test"), 0, 0

    def work(value: int, *, factor: int) -> tuple[int, int, str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        sum(range(200_000))  # long enough for another thread to begin
        running -= 1
        return value * factor, CALLER.get(), threading.current_thread().name

    async def call(value: int) -> tuple[int, int, str]:
        CALLER.set(value)
        return await thread.run(work, value, factor=2)

    result = await asyncio.gather(*map(call, range(20)))
    assert result == [(2 * value, value, "test_0") for value in range(20)]
    assert most == 1


async def test_error_of_a_function_is_its_callers() -> None:
    thread = SingleThread("test")
    with pytest.raises(ValueError, match="invalid literal"):
        await thread.run(int, "x")
    assert await thread.run(int, "7") == 7
