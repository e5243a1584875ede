"""Bursts of requests do not block the event loop, and addresses take turns."""

from __future__ import annotations

import asyncio
import time

from sixfold.core.concurrency import request_turns
from sixfold.core.concurrency.request_turns import RequestTurns
from tests import loop_time

BURST = 120
WORK_SECONDS = 0.005


async def _start(turns: RequestTurns, peer: str) -> None:
    turn = turns.start(peer)
    if turn is not None:
        await turn


async def test_a_burst_of_requests_does_not_block_the_event_loop() -> None:
    turns = RequestTurns()

    async def serve() -> None:
        await _start(turns, "eve")
        end = time.thread_time() + WORK_SECONDS
        while time.thread_time() < end:
            pass

    async with loop_time.watched() as loop:
        await asyncio.gather(*(serve() for _ in range(BURST)))
    assert loop.longest < 3 * request_turns.MAX_SECONDS


async def test_addresses_take_turns_while_requests_wait() -> None:
    seconds = [0.0]
    turns = RequestTurns(lambda: seconds[0])
    served: list[str] = []

    async def serve(peer: str) -> None:
        await _start(turns, peer)
        served.append(peer)
        seconds[0] += 2 * request_turns.MAX_SECONDS

    async with asyncio.timeout(10):
        await asyncio.gather(*(serve("eve") for _ in range(40)), serve("ada"))
    assert sorted(served) == ["ada", *["eve"] * 40]
    assert served.index("ada") < 5


async def test_a_canceled_request_does_not_delay_others() -> None:
    seconds = [0.0]
    turns = RequestTurns(lambda: seconds[0])

    async def serve() -> None:
        await _start(turns, "eve")
        seconds[0] += 2 * request_turns.MAX_SECONDS

    tasks = [asyncio.create_task(serve()) for _ in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    async with asyncio.timeout(10):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results].count(asyncio.CancelledError) == 1
