"""A hold at midnight counts against one day only, on both databases, alone and in a batch."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_batches
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.clock import SECOND_US
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


@pytest.mark.parametrize("backend", databases.BACKENDS)
@pytest.mark.parametrize("date", ["2026-01-29", "2026-01-31", "2026-02-28", "2026-11-30", "2026-12-31"])
async def test_a_used_up_month_ends_at_the_first_day_of_the_next(
    backend: str, date: str, tmp_path: Path
) -> None:
    day = datetime.fromisoformat(date).replace(tzinfo=UTC)
    following = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC)
    moment = int(day.timestamp()) * SECOND_US
    async with databases.running_database(backend, tmp_path, lambda: moment) as database:
        account = await database.write(accounts.create("a@example.com", credit=1000))
        with pytest.raises(errors.BudgetExceeded) as caught:
            await database.write(ledger.hold(account.id, "h", 101, Payer("key_1", budget_month=100)))
    assert caught.value.retry_after == (following - day).total_seconds()
