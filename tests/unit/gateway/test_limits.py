"""Rates and budgets of a key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_queries
from sixfold.core.accounts.keys import KeyLimits, Principal
from sixfold.core.accounts.limits import budgets, rate_limits
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.accounts.limits.rate_limits import OwnRates, RateLimits, SharedRates
from sixfold.core.database import Database, Transaction, many
from sixfold.store.sqlite.database import SqliteDatabase
from tests.harness import backends, databases, postgres

NOON = 1_763_726_400_000_000  # 2025-11-21T12:00:00Z
DAY = 86_400_000_000


class Clock:
    """A clock that the test sets, in microseconds."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class Rated:
    """Rate limits with a clock that the test sets."""

    rates: RateLimits
    clock: Clock


@pytest.fixture(params=["own", *backends.EACH_DATABASE])
async def rated(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rated]:
    clock = Clock(1000.0)
    if request.param == "own":
        yield Rated(OwnRates(clock), clock)
        return
    async with databases.running_database(
        request.param, tmp_path, lambda: round(clock.now * 1_000_000)
    ) as database:
        yield Rated(SharedRates(database, "requests"), clock)


async def test_minute_quota_may_burst_and_refills_evenly(rated: Rated) -> None:
    rates, clock = rated.rates, rated.clock
    for _ in range(6):
        await rates.spend("k", 6)
    with pytest.raises(errors.TooManyRequests) as excinfo:
        await rates.spend("k", 6)
    assert excinfo.value.retry_after == 10
    await rates.spend("other", 6)
    clock.now += 10.0
    await rates.spend("k", 6)
    with pytest.raises(errors.TooManyRequests):
        await rates.spend("k", 6)


async def test_tokens_reported_later_delay_the_next_requests(rated: Rated) -> None:
    rates, clock = rated.rates, rated.clock
    await rates.spend("k", 60, 10)
    await rates.add("k", 60, 100)
    with pytest.raises(errors.TooManyRequests) as excinfo:
        await rates.spend("k", 60, 1)
    assert excinfo.value.retry_after == 51
    clock.now += 51.0
    await rates.spend("k", 60, 1)


async def test_eviction_keeps_the_keys_with_the_largest_debts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_KEYS", 10)
    rates = OwnRates(Clock(1000.0))
    await rates.spend("busy", 60, 60)
    for number in range(30):
        await rates.spend(f"new {number}", 60)
    with pytest.raises(errors.TooManyRequests):
        await rates.spend("busy", 60)


async def test_request_above_the_minute_quota_is_allowed_alone(rated: Rated) -> None:
    await rated.rates.spend("k", 60, 5000)
    with pytest.raises(errors.TooManyRequests):
        await rated.rates.spend("k", 60, 1)


@pytest.mark.parametrize("per_minute", [60, 6_000, 59_999_999, 60_000_001, 10**9])
async def test_remaining_part_of_any_limit_is_known(rated: Rated, per_minute: int) -> None:
    assert (await rated.rates.left("k", per_minute)).amount == per_minute
    await rated.rates.spend("k", per_minute, 10)
    left = await rated.rates.left("k", per_minute)
    assert per_minute - 10 <= left.amount <= per_minute
    assert 0 <= left.reset_seconds <= 10


async def test_remaining_part_is_known_without_a_read(either: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_transaction: Any, **_options: Any) -> Any:
        raise AssertionError

    clock = Clock(1000.0)
    async with databases.running_database(None, either, lambda: round(clock.now * 1_000_000)) as database:
        counted = CountedWrites(database)
        rates = SharedRates(counted, "requests")
        await SharedRates(database, "requests").spend("k", 60, 5)
        assert (await rates.left("k", 60)).amount == 55
        await rates.spend("k", 60)
        monkeypatch.setattr(counted, "read", read)
        assert 54 <= (await rates.left("k", 60)).amount < 60
        with pytest.raises(errors.TooManyRequests):
            await rates.spend("k", 60, 60)
        assert 54 <= (await rates.left("k", 60)).amount < 60


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_servers_on_one_database_share_the_rate_limit(tmp_path: Path) -> None:
    async with (
        databases.running_database("postgres", tmp_path) as first,
        databases.running_database("postgres", tmp_path) as second,
    ):
        servers = [SharedRates(database, "requests") for database in (first, second)]
        requests = [server.spend("k", 20) for _ in range(30) for server in servers]
        answers = await asyncio.gather(*requests, return_exceptions=True)
    assert answers.count(None) == 20
    assert {type(answer) for answer in answers} == {type(None), errors.TooManyRequests}


class CountedWrites:
    """A database that counts the transactions written to it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read, self.close = database.read, database.close
        self.writes = 0
        self.fails = False
        self.returned = asyncio.Event()

    async def write(self, transaction: Transaction[Any], *, durable: bool = True) -> Any:
        self.writes += 1
        if self.fails:
            # Longer than the life of a lease, which ends while its key is being counted.
            await asyncio.sleep(0.3)
            raise errors.StoreFailed("the disk is full")
        result = await self._database.write(transaction, durable=durable)
        if getattr(transaction, "__name__", "") == "_return":
            self.returned.set()
        return result


async def test_busy_key_is_leased_and_never_exceeds_its_limit(either: Path) -> None:
    clock = Clock(1000.0)
    async with databases.running_database(None, either, lambda: round(clock.now * 1_000_000)) as database:
        counted = CountedWrites(database)
        servers = [SharedRates(counted, "requests") for _ in range(3)]
        passed = Counter[bool]()

        async def calls(rates: SharedRates) -> None:
            for _ in range(100):
                try:
                    await rates.spend("k", 3_000)
                except errors.TooManyRequests:
                    passed[False] += 1
                else:
                    passed[True] += 1
                await asyncio.sleep(0)

        await asyncio.gather(*(calls(servers[number % 3]) for number in range(60)))
        assert passed.total() == 6_000
        assert 3_000 * (1 - 3 / 20) <= passed[True] <= 3_000
        assert counted.writes < 600


async def test_unused_lease_is_returned(either: Path) -> None:
    clock = Clock(1000.0)
    async with databases.running_database(None, either, lambda: round(clock.now * 1_000_000)) as database:
        counted = CountedWrites(database)
        rates = SharedRates(counted, "requests")
        for _ in range(30):
            await rates.spend("k", 6_000)
        assert counted.writes < 30
        async with asyncio.timeout(30):
            await counted.returned.wait()
        row = await database.read(many("key_rate_ahead", key_id="k", kind="requests"))
        assert row[0]["ahead"] == 30 * 10_000


async def test_lease_expires_after_a_failed_write(either: Path) -> None:
    clock = Clock(1000.0)
    async with databases.running_database(None, either, lambda: round(clock.now * 1_000_000)) as database:
        counted = CountedWrites(database)
        rates = SharedRates(counted, "requests")
        for _ in range(30):
            await rates.spend("k", 6_000)
        counted.fails = True
        results = await asyncio.gather(
            *(rates.spend("k", 6_000, 6_000) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [errors.StoreFailed] * 3
        counted.fails = False
        async with asyncio.timeout(10):
            await counted.returned.wait()
        row = await database.read(many("key_rate_ahead", key_id="k", kind="requests"))
        assert row[0]["ahead"] == 30 * 10_000


async def test_unused_rates_are_removed(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    async with databases.running_database(
        "sqlite", tmp_path, lambda: round(clock.now * 1_000_000)
    ) as database:
        await SharedRates(database, "requests").spend("k", 6)
        clock.now += 2 * 3600
        await database.write(rate_limits.sweep())
        assert len(await database.read(many("key_rate_ahead", key_id="k", kind="requests"))) == 0


def test_only_a_key_with_a_budget_pays_from_it() -> None:
    assert budgets.payer_of(Principal("a", "customer", "x")) is None
    assert budgets.payer_of(Principal("a", "customer", "x", "key_1", KeyLimits(rpm=3))) is None
    assert budgets.payer_of(Principal("a", "customer", "x", "key_1", KeyLimits(budget_day=3))) == Payer(
        "key_1", 3
    )


class Clocked:
    """Database with a clock that the test sets."""

    def __init__(self) -> None:
        self.moment = NOON
        self.database = SqliteDatabase(":memory:", clock=lambda: self.moment)


@pytest.fixture
async def clocked() -> AsyncIterator[Clocked]:
    result = Clocked()
    yield result
    await result.database.close()


async def test_budget_counts_holds_and_regains_the_unused_part(clocked: Clocked) -> None:
    write = clocked.database.write
    account = await write(accounts.create("ada@example.com", credit=1_000_000))
    payer = Payer("key_1", budget_day=100, budget_month=250)
    await write(ledger.hold(account.id, "h1", 100, payer))
    with pytest.raises(errors.BudgetExceeded) as excinfo:
        await write(ledger.hold(account.id, "h2", 1, payer))
    assert excinfo.value.retry_after == 12 * 3600
    assert str(excinfo.value) == "This key's budget of 0.0001 USD per day is used up"
    await write(ledger.capture("h1", 40, ledger.LedgerEntry("chat", "x")))
    await write(ledger.hold(account.id, "h3", 60, payer))
    await write(ledger.release("h3"))
    await write(ledger.hold(account.id, "h4", 60, payer))
    await write(ledger.hold(account.id, "h5", 1000, None))
    with pytest.raises(errors.BudgetExceeded):
        await write(ledger.hold(account.id, "h6", 101, payer))
    await write(ledger.release("h4"))
    with pytest.raises(errors.BudgetExceeded) as excinfo:
        await write(ledger.hold(account.id, "h7", 61, payer))
    text = "This key's budget of 0.0001 USD per day has 0.00006 USD left; this request needs 0.000061 USD"
    assert str(excinfo.value) == text
    assert await clocked.database.read(ledger_queries.verify()) == ()


async def test_budget_restarts_each_day_and_month(clocked: Clocked) -> None:
    write = clocked.database.write
    account = await write(accounts.create("ada@example.com", credit=1_000_000))
    payer = Payer("key_1", budget_day=100, budget_month=250)
    for day in range(3):
        clocked.moment = NOON + day * DAY
        amount = 50 if day == 2 else 100
        await write(ledger.hold(account.id, f"h{day}", amount, payer))
    with pytest.raises(errors.BudgetExceeded) as excinfo:
        await write(ledger.hold(account.id, "more", 1, payer))
    assert excinfo.value.retry_after == int(7.5 * 86400)
    clocked.moment = NOON + 11 * DAY
    await write(ledger.hold(account.id, "next month", 100, payer))


async def test_refused_hold_does_not_count_against_the_budget(clocked: Clocked) -> None:
    write = clocked.database.write
    account = await write(accounts.create("ada@example.com", credit=50))
    payer = Payer("key_1", budget_day=100)
    with pytest.raises(errors.InsufficientCredits):
        await write(ledger.hold(account.id, "h1", 60, payer))
    await write(ledger.hold(account.id, "h2", 50, payer))


@pytest.mark.parametrize(
    ("per_minute", "kind", "text"),
    [(1, "requests", "1 request per minute"), (2, "requests", "2 requests per minute")],
)
def test_limit_of_one_is_singular(per_minute: int, kind: str, text: str) -> None:
    message = rate_limits._share(per_minute, 1, kind).error(0).message
    assert message == f"This key is limited to {text}"
