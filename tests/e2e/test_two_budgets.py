"""One key on two servers at once: daily, monthly and per-minute limits are exact."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts, keys, ledger_queries
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.database import Database, one
from tests.e2e.servers import Reply, Server
from tests.e2e.test_gateway_death import CONFIG
from tests.e2e.test_two_servers import both
from tests.fakes.chat_servers import ModelServer, model_server
from tests.harness import databases, postgres

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
IMAGE_PRICE = 7_000  # micro-dollars
ENDED = {"succeeded", "failed", "canceled"}
DAY_SECONDS, NEAR_SECONDS = 86_400, 60
Order = tuple[str, dict[str, Any]]


def image_call(seed: int) -> Order:
    """Send a prediction with a fixed price."""
    return "/api/service", {"service": "anime", "prompt": "a hill", "seed": seed, "async": True}


def chat_call(words: int) -> Order:
    """Send a gateway call, which is held at its maximum and charged by its tokens."""
    talk = [{"role": "user", "content": f"say {words} words"}]
    return "/v1/chat/completions", {"model": "small", "max_tokens": 12, "messages": talk}


def queued_chat_call(words: int) -> Order:
    """Send the same call as a prediction."""
    request = {"service": "chat", "model": "small", "max_tokens": 12, "prompt": f"say {words} words"}
    return "/api/service", {**request, "async": True}


@dataclass(frozen=True)
class BudgetServers:
    """Two servers, the model server behind both, and the account whose keys are limited."""

    servers: tuple[Server, Server]
    database: Database
    acme: ModelServer
    key: str
    account_id: str

    async def limited(self, scope: KeyLimits) -> keys.NewKey:
        return await self.database.write(keys.create(self.account_id, scope))

    async def ask(self, key: keys.NewKey, orders: Sequence[Order]) -> list[Reply]:
        bearer = {"Authorization": f"Bearer {key.api_key}"}
        request = zip(itertools.cycle(self.servers), orders, strict=False)
        return await asyncio.gather(*(server.call("POST", *order, **bearer) for server, order in request))

    async def look(self, reply: Reply, method: str = "GET") -> dict[str, Any]:
        """Request a prediction from the second server."""
        path = f"/api/{reply.json['status_url'].partition('/api/')[2]}"
        return (await self.servers[1].call(method, path, Authorization=f"Bearer {self.key}")).json

    async def cost(self, reply: Reply) -> int:
        """Return the final cost of a prediction."""
        if reply.status == 200:
            return _micros(reply.headers["x-sixfold-cost"])
        async with asyncio.timeout(100):
            while (response := await self.look(reply))["status"] not in ENDED:  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.05)
        return _micros(response["cost"])

    async def spent(self, key: keys.NewKey) -> tuple[int, int]:
        """Return the spending of a key, today and this month."""
        day = datetime.now(UTC).date().isoformat()
        rows = [await self.database.read(one("key_spent", key_id=key.id, period=at)) for at in (day, day[:7])]
        today, month = (0 if row is None else int(row["amount"]) for row in rows)
        return today, month

    async def settled(self, key: keys.NewKey, amount: int) -> None:
        """Wait until exactly so much is counted, and nothing is held."""
        async with asyncio.timeout(60):
            while (await self.spent(key), await self.held()) != ((amount, amount), 0):  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.02)
        assert await self.database.read(ledger_queries.verify()) == ()

    async def held(self) -> int:
        return (await self.database.read(accounts.by_id(self.account_id))).held


def _micros(usd: str) -> int:
    return int(Decimal(usd) * 1_000_000)


@pytest.fixture
async def budget_servers(tmp_path: Path) -> AsyncIterator[BudgetServers]:
    async with running_servers(tmp_path) as result:
        yield result


@asynccontextmanager
async def running_servers(folder: Path) -> AsyncIterator[BudgetServers]:
    """Run the servers, not in the last minute of a day, which resets a key's budget."""
    if (left := DAY_SECONDS - time.time() % DAY_SECONDS) < NEAR_SECONDS:
        await asyncio.sleep(left)
    async with model_server() as acme:
        config = CONFIG.format(url=acme.url)
        async with (
            both(folder, config, SIXFOLD_PROBE="0", ACME_KEY="sk-acme") as (first, second, key),
            databases.running_database(None, folder / "first") as database,
        ):
            account_id = (await database.read(keys.authenticate(key))).account_id
            yield BudgetServers((first, second), database, acme, key, account_id)


async def test_two_servers_share_daily_budget_and_rate_limit(budget_servers: BudgetServers) -> None:
    key = await budget_servers.limited(KeyLimits(budget_day=8 * IMAGE_PRICE - 1))
    answers = await budget_servers.ask(key, [image_call(seed) for seed in range(24)])
    sold = [response for response in answers if response.status == 202]
    responses = [response for response in answers if response.status != 202]
    assert len(sold) == 7
    assert {(response.status, response.json["code"]) for response in responses} == {(429, "budget_exceeded")}
    assert sum([await budget_servers.cost(response) for response in sold]) == 7 * IMAGE_PRICE
    await budget_servers.settled(key, 7 * IMAGE_PRICE)
    for response in await budget_servers.ask(key, [image_call(30), image_call(31)]):
        assert "has 0.006999 USD left" in response.json["error"], response.json
    await _rates_are_one(budget_servers)


async def _rates_are_one(budget_servers: BudgetServers) -> None:
    key, began = await budget_servers.limited(KeyLimits(rpm=6)), time.monotonic()
    bearer = {"Authorization": f"Bearer {key.api_key}"}
    request = (
        server.call("GET", "/api/account", **bearer) for server in budget_servers.servers for _ in range(12)
    )
    answers = [response.status for response in await asyncio.gather(*request)]
    # One request is restored every ten seconds while the requests run.
    earned = int(time.monotonic() - began) // 10 + 1
    assert 6 <= answers.count(200) <= 6 + earned
    assert set(answers) == {200, 429}


async def test_sync_and_async_images_and_chat_share_a_monthly_budget(budget_servers: BudgetServers) -> None:
    budget = 75_000
    key = await budget_servers.limited(KeyLimits(budget_day=budget, budget_month=budget))
    pending_orders = [
        make(number % 9 + 1) for number in range(8) for make in (image_call, chat_call, queued_chat_call)
    ]
    most, cost, sold = 0, 0, 1

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, *(await budget_servers.spent(key)))
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    # A request that was refused may fit in the next round, which begins without holds.
    while sold:
        answers = await budget_servers.ask(key, pending_orders)
        errors = [answer.json for answer in answers if answer.status >= 400]
        kinds = {str(response.get("code") or response["error"]["code"]) for response in errors}
        assert kinds <= {"budget_exceeded"}, errors
        accepted = [answer for answer in answers if answer.status < 400]
        cost += sum(await asyncio.gather(*map(budget_servers.cost, accepted)))
        pending_orders = [
            order for order, answer in zip(pending_orders, answers, strict=True) if answer.status >= 400
        ]
        sold = len(accepted)
        await budget_servers.settled(key, cost)
    watching.cancel()
    assert image_call(1)[0] in {path for path, _ in pending_orders}
    assert budget - IMAGE_PRICE < cost <= budget
    assert most <= budget


async def test_budget_of_failed_runs_elsewhere_is_returned(budget_servers: BudgetServers) -> None:
    key = await budget_servers.limited(KeyLimits(budget_day=8 * IMAGE_PRICE))
    budget_servers.acme.mode = "hang"
    responses = [
        response
        for response in await budget_servers.ask(key, [queued_chat_call(3)] * 8)
        if response.status == 202
    ]
    assert responses
    assert sum(await budget_servers.spent(key)) > 0
    for response in responses:
        await budget_servers.look(response, "DELETE")
    assert [await budget_servers.cost(response) for response in responses] == [0] * len(responses)
    await budget_servers.settled(key, 0)
    budget_servers.acme.mode = "fail"
    failed = await budget_servers.ask(
        key, [chat_call(3), chat_call(3), queued_chat_call(3), queued_chat_call(3)]
    )
    assert [await budget_servers.cost(response) for response in failed if response.status == 202] == [0, 0]
    await budget_servers.settled(key, 0)
    sold = await budget_servers.ask(key, [image_call(seed) for seed in range(12)])
    assert [response.status for response in sold].count(202) == 8
