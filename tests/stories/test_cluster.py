"""A cluster whose parts are killed at random while people work on it: nothing is lost or paid twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests import postgres, s3
from tests.fakes.models import model_server
from tests.stories.cluster import Work, cluster, wrongs

LACKING = postgres.LACKING or s3.LACKING
pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.s3,
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "all is there"),
    pytest.mark.timeout(300),
]
RUNS, CALLS, PAGES, SEED = 18, 12, 12, 6


async def test_nothing_is_lost_or_paid_twice_whatever_dies(tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same misfortunes each time
    async with model_server() as acme, cluster(tmp_path, acme.url) as whole:
        work, over = Work(whole), asyncio.Event()
        session = asyncio.create_task(work.live(over))
        people = asyncio.gather(
            *(work.job(number) for number in range(RUNS)),
            *(work.chat(number) for number in range(CALLS)),
            *(work.page(number) for number in range(PAGES)),
        )
        blows = [
            lambda: whole.crash_one(whole.servers, chance),
            lambda: whole.crash_one(whole.workers, chance),
            whole.crash_database,
        ]
        chance.shuffle(blows)
        for number, blow in enumerate(blows):
            await work.until(lambda number=number: work.done > 8 * number or people.done())
            await blow()
        await people
        over.set()
        await session

        assert len({told["prediction_id"] for told in work.predictions}) == RUNS
        assert (len(work.chats), len(work.pages)) == (CALLS, PAGES)
        assert len(work.heard) > 0
        assert await wrongs(work) == []
