"""A hold at midnight counts against one day only, on both databases, alone and in a batch."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts, ledger, ledger_batches
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, Transaction, one
from tests.harness import databases

# 2025-12-01T00:00:00Z, the start of a month.
MIDNIGHT = 1_764_547_200_000_000
PERIODS = ("2025-11-30", "2025-11", "2025-12-01", "2025-12")
PAYER = Payer("key_1", budget_day=100, budget_month=100)
ENTRY = ledger.LedgerEntry("chat", "x")


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Its clock is a microsecond before midnight at the second reading, then at midnight."""
    moments = itertools.count(MIDNIGHT - 2)
    async with databases.running_database(request.param, tmp_path, lambda: next(moments)) as opened_database:
        yield opened_database


def _read_spent() -> Transaction[list[int]]:
    results: list[int] = []
    for period in PERIODS:
        row = yield from one("key_spent", key_id="key_1", period=period)
        results.append(int(row["amount"]) if row is not None else 0)
    return results


async def test_hold_across_midnight_refunds_the_day_it_counted_in(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))
    await database.write(ledger.hold(account.id, "h", 100, PAYER))
    assert await database.read(_read_spent()) == [100, 100, 0, 0]
    await database.write(ledger.capture("h", 30, ENTRY))
    assert await database.read(_read_spent()) == [30, 30, 0, 0]


async def test_batched_holds_across_midnight_refund_their_day(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))
    expected = [ledger_batches.HoldRequest(account.id, name, 20, PAYER) for name in ("h1", "h2")]
    moment = await database.write(ledger_batches.book(holds=expected))
    assert await database.read(_read_spent()) == [40, 40, 0, 0]
    charge = ledger_batches.Capture(account.id, "h1", 20, 5, ENTRY, "key_1", moment)
    await database.write(ledger_batches.capture_all([charge]))
    # A release reads the time of the hold.
    await database.write(ledger.release("h2"))
    assert await database.read(_read_spent()) == [5, 5, 0, 0]
