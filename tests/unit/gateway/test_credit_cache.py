"""The credit cache: only large balances skip the synchronous hold, and each share is spent once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts, ledger
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database
from sixfold.core.gateway.credit_cache import CreditCache
from tests.harness import databases

ENTRY = ledger.LedgerEntry("charge", "x")


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened_database:
        yield opened_database


async def _account(database: Database, credit: int) -> str:
    return (await database.write(accounts.create("a@example.com", credit=credit))).id


class _Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def _covers(trust: CreditCache, account_id: str, payer: Payer | None, amount: int) -> bool:
    known = trust.try_reserve(account_id, payer, amount)
    return await trust.refresh_and_reserve(account_id, payer, amount) if known is None else known


def _trust(database: Database, unwritten: int = 0, clock: _Clock | None = None) -> CreditCache:
    return CreditCache(database, lambda _: unwritten, clock or _Clock())


async def test_only_a_quarter_of_the_balance_skips_the_hold(database: Database) -> None:
    account_id = await _account(database, 400)
    trust = _trust(database)
    requests = [await _covers(trust, account_id, None, amount) for amount in (60, 41, 40, 1)]
    assert requests == [True, False, True, False]


async def test_held_and_unwritten_amounts_reduce_the_credit(database: Database) -> None:
    account_id = await _account(database, 400)
    await database.write(ledger.hold(account_id, "h", 200))
    assert not await _covers(_trust(database), account_id, None, 51)
    assert await _covers(_trust(database), account_id, None, 50)
    assert not await _covers(_trust(database, unwritten=1), account_id, None, 50)


async def test_balance_is_read_again_after_an_interval(database: Database) -> None:
    account_id, clock = await _account(database, 400), _Clock()
    trust = _trust(database, clock=clock)
    assert await _covers(trust, account_id, None, 100)
    await database.write(ledger.deposit(account_id, 400, ENTRY))
    assert not await _covers(trust, account_id, None, 100)
    clock.seconds = 1
    assert await _covers(trust, account_id, None, 200)
    assert not await _covers(trust, account_id, None, 1)


async def test_tighter_key_budget_counts_and_refusal_takes_nothing(database: Database) -> None:
    account_id = await _account(database, 4000)
    payer = Payer("key_a", budget_day=400, budget_month=200)
    await database.write(budgets.spend(payer, 40))
    assert await database.read(budgets.unspent(payer)) == 160
    trust = _trust(database)
    assert not await _covers(trust, account_id, payer, 41)
    assert await _covers(trust, account_id, payer, 40)
    assert not await _covers(trust, account_id, payer, 1)
    assert await _covers(trust, account_id, None, 960)
    assert not await _covers(trust, account_id, None, 1)


async def test_unknown_account_is_not_trusted(database: Database) -> None:
    assert not await _covers(_trust(database), "acc_nobody", None, 1)
