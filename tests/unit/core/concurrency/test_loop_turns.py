"""Long steps of concurrent tasks run in different iterations of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sixfold.core.concurrency.loop_turns import TURN_BYTES, LoopTurns


async def iterations(turns: LoopTurns, tasks: int, size: int) -> Counter[int]:
    """Return the number of steps in each iteration of the loop, for tasks that begin at once."""
    iteration, steps, arrived, continued = 0, Counter[int](), list[int](), list[int]()

    async def count() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    async def work(number: int) -> None:
        for _ in range(3):
            arrived.append(number)
            await turns.next(size)
            steps[iteration] += 1
            continued.append(number)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(work(number) for number in range(tasks)))
    counting.cancel()
    assert continued == arrived
    return steps


def test_one_large_step_runs_in_an_iteration_in_each_loop() -> None:
    turns = LoopTurns()
    # A future of one loop would fail in another one.
    for _ in range(2):
        steps = asyncio.run(iterations(turns, tasks=10, size=TURN_BYTES))
        assert (sum(steps.values()), max(steps.values())) == (30, 1)


async def test_smaller_steps_share_an_iteration() -> None:
    steps = await iterations(LoopTurns(), tasks=10, size=TURN_BYTES // 4)
    assert (sum(steps.values()), max(steps.values())) == (30, 4)


async def test_small_steps_do_not_wait() -> None:
    steps = await iterations(LoopTurns(), tasks=1, size=100)
    assert list(steps.values()) == [3]


async def test_a_canceled_task_does_not_keep_its_turn() -> None:
    turns = LoopTurns()
    await turns.next(TURN_BYTES)
    first, second, third = (asyncio.create_task(turns.next(TURN_BYTES)) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    async with asyncio.timeout(30):
        await third
        with pytest.raises(asyncio.CancelledError):
            await second


async def test_called_steps_run_in_one_iteration_each_despite_errors() -> None:
    turns, iteration, steps = LoopTurns(), 0, list[int]()

    def step() -> None:
        steps.append(iteration)
        raise RuntimeError("no")

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    for _ in range(3):
        turns.call(step)
    assert steps == []
    async with asyncio.timeout(30):
        while len(steps) < 3:
            await asyncio.sleep(0)
            iteration += 1
    assert len(set(steps)) == 3


async def test_reads_are_taken_up_to_the_bytes_of_an_iteration() -> None:
    turns = LoopTurns(TURN_BYTES)
    assert [turns.take(TURN_BYTES // 2) for _ in range(3)] == [True, True, False]
    assert turns.take(100)
    await asyncio.sleep(0)
    assert turns.take(TURN_BYTES)
