"""A cluster whose parts are killed at random while people work on it: nothing is lost or paid twice."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import postgres, s3
from tests.fakes.models import model_server
from tests.stories.cluster import Work, cluster, urls

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

        assert {told["status"] for told in work.predictions} == {"succeeded"}
        assert len({told["prediction_id"] for told in work.predictions}) == RUNS
        assert {reply.status for reply in work.chats} == {200}
        assert work.session["status"] == "closed"
        assert work.heard == list(range(work.heard[0], work.heard[0] + len(work.heard)))
        for told in work.predictions:
            for url in urls(told["output"]):
                assert (await work.insist("GET", urlsplit(url).path)).status == 200
        for path in work.pages:
            assert (await work.insist("GET", path)).json["body"].startswith("Written as ")
        account = (await work.insist("GET", "/api/account")).json
        assert (Decimal(account["balance_usd"]), account["held_usd"]) == (10 - work.charged, "0.00")
        status, text = await whole.servers[0].command("ledger", "verify")
        assert status == 0, text
