"""One timer for many calls, each with its own deadline."""

from __future__ import annotations

import asyncio

import pytest

from sixfold.core.gateway.deadlines import Deadlines


async def test_deadline_ends_only_calls_that_exceed_it() -> None:
    deadlines, never = Deadlines(0.01), asyncio.Event()

    async def slow() -> None:
        with deadlines.start():
            await never.wait()

    async def quick() -> str:
        with deadlines.start():
            await asyncio.sleep(0)
        return "done"

    result = await asyncio.gather(slow(), quick(), slow(), return_exceptions=True)
    assert [type(each) for each in result] == [TimeoutError, str, TimeoutError]
    # The timer starts again.
    with pytest.raises(TimeoutError):
        await slow()
    assert await quick() == "done"


async def test_task_canceled_by_another_is_canceled() -> None:
    deadlines, start_event = Deadlines(60), asyncio.Event()

    async def waiting() -> None:
        with deadlines.start():
            start_event.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(waiting())
    await start_event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_error_before_the_deadline_is_raised_unchanged() -> None:
    with pytest.raises(ValueError, match="mine"), Deadlines(60).start():
        raise ValueError("mine")
