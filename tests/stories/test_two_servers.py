"""Two `sixfold serve` on one PostgreSQL and one store of files: one product, whichever of them is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import ground, postgres
from tests.stories.servers import Server, serving

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[Server, Server, str]]:
    """Two servers, and the key of the account that the first one made."""
    homes = [folder / "first", folder / "second"]
    shared = {"SIXFOLD_WORKERS": "1", "SIXFOLD_LEASE_SECONDS": "3"}
    for home in homes:
        home.mkdir()
    ground.database_url(homes[0], "postgres")
    ground.database_url(homes[1], "sqlite")  # which is overruled below: a note of its own, and no database
    if not ground.blob_url(homes[0]):
        shared["SIXFOLD_BLOB_URL"] = f"file://{folder / 'store'}"
    first_environ = {**ground.environ(homes[0]), **shared}
    async with serving(homes[0], **first_environ) as first, serving(homes[1], **first_environ) as second:
        yield first, second, first.key


async def test_the_same_request_to_both_at_once_is_one_effect_and_one_answer(tmp_path: Path) -> None:
    async with both(tmp_path) as (first, second, key):
        body = {"api_key": key, "prompt": "a hill", "response_mode": "polling", "seed": 1}
        asked = [
            server.call("POST", "/api/anime", body, Idempotency_Key="once")
            for _ in range(6)
            for server in (first, second)
        ]
        answers = await asyncio.gather(*asked)
        assert {answer.status for answer in answers} == {202}
        assert len({answer.body for answer in answers}) == 1
        ended = await _ended(second, answers[0].json["status_url"])
        assert ended == "completed"
        assert await _balance(second) == ("9.993", "0.00")


async def test_when_one_dies_the_other_finishes_its_work_and_each_is_charged_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (first, second, key):
        order = {"api_key": key, "prompt": "a lake", "response_mode": "polling"}
        replies = await asyncio.gather(
            *(
                server.call("POST", "/api/anime", {**order, "seed": seed})
                for seed in range(5)
                for server in (first, second)
            )
        )
        assert {reply.status for reply in replies} == {202}
        await first.kill()
        urls = [reply.json["status_url"] for reply in replies]
        assert [await _ended(second, url) for url in urls] == ["completed"] * 10
        assert await _balance(second) == ("9.93", "0.00")
        status, text = await second.command("ledger", "verify")
        assert status == 0, text


async def _ended(server: Server, url: str) -> str:
    async with asyncio.timeout(100):
        while True:
            status = str((await server.call("GET", url)).json["status"])
            if status != "in_progress":
                return status
            await asyncio.sleep(0.1)


async def _balance(server: Server) -> tuple[str, str]:
    status, text = await server.command("account", "show", "local@localhost", "--json")
    assert status == 0, text
    found = json.loads(text)
    return found["balance_usd"], found["held_usd"]
