"""Long computations on the event loop, divided into slices."""

from __future__ import annotations

import asyncio
import time

from sixfold.core.workflows import slices
from sixfold.core.workflows.slices import Steps


async def test_long_computations_of_a_loop_take_turns() -> None:
    order: list[str] = []

    def steps(name: str) -> Steps[str]:
        for _ in range(3):
            until = time.thread_time() + 0.01
            while time.thread_time() < until:
                pass
            order.append(name)
            yield
        return name

    # The first slice of each computation precedes the turns.
    assert await asyncio.gather(slices.run(steps("a")), slices.run(steps("b"))) == ["a", "b"]
    assert order == ["a", "b", "a", "a", "b", "b"]


async def test_short_computation_does_not_wait_for_a_long_one() -> None:
    def endless() -> Steps[None]:
        while True:
            yield

    def short() -> Steps[int]:
        yield
        return 1

    long_run = asyncio.create_task(slices.run(endless()))
    await asyncio.sleep(0)
    assert await slices.run(short()) == 1
    long_run.cancel()
    await asyncio.gather(long_run, return_exceptions=True)
