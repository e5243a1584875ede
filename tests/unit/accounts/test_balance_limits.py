"""The largest balances: a credit beyond them is refused and changes nothing, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_batches, ledger_queries
from sixfold.core.accounts.keys import Budget
from sixfold.core.accounts.ledger import MAX_BALANCE
from sixfold.core.accounts.ledger_batches import HoldRequest
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database
from tests.harness import databases


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened_database:
        yield opened_database


async def _credit(database: Database, email: str, amount: int) -> None:
    await database.write(accounts.credit(email, amount))


@pytest.mark.parametrize("amount", [1, MAX_BALANCE, 2**63 - 1, 2**64])
async def test_credit_beyond_the_largest_balance_is_refused(database: Database, amount: int) -> None:
    await database.write(accounts.create("a@example.com", credit=MAX_BALANCE))
    with pytest.raises(errors.BadRequest, match=r"at most 1000000000000\.00 USD"):
        await _credit(database, "a@example.com", amount)
    assert (await database.read(accounts.by_email("a@example.com"))).posted == MAX_BALANCE
    await _credit(database, "a@example.com", -MAX_BALANCE)
    await _credit(database, "a@example.com", 1)
    assert await database.read(ledger_queries.verify()) == ()


async def test_credit_of_all_accounts_together_is_limited(database: Database) -> None:
    await database.write(accounts.create("a@example.com", credit=MAX_BALANCE - 1))
    with pytest.raises(errors.BadRequest):
        await database.write(accounts.create("b@example.com", credit=2))
    with pytest.raises(errors.NotFound):
        await database.read(accounts.by_email("b@example.com"))
    await database.write(accounts.create("b@example.com", credit=1))
    assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("amount", [2**62, 2**63, 2**64])
async def test_hold_above_every_balance_is_refused(database: Database, amount: int) -> None:
    account = await database.write(accounts.create("a@example.com", credit=MAX_BALANCE))
    with pytest.raises(errors.InsufficientCredits):
        await database.write(ledger.hold(account.id, "hold_1", amount))
    payer = Payer("key_1", None, None, (Budget("team_1", None, 1),))
    with pytest.raises(errors.BudgetExceeded):
        await database.write(ledger.hold(account.id, "hold_1", amount, payer))
    holds = [HoldRequest(account.id, f"hold_{number}", amount) for number in range(2)]
    with pytest.raises(errors.InsufficientCredits):
        await database.write(ledger_batches.book(holds=holds))
    assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("amount", [-MAX_BALANCE - 1, -(2**63)])
async def test_withdrawal_from_the_operator_is_limited(database: Database, amount: int) -> None:
    await database.write(accounts.create("a@example.com", operator=True))
    with pytest.raises(errors.BadRequest):
        await _credit(database, "a@example.com", amount)
    await _credit(database, "a@example.com", -MAX_BALANCE)
    assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("is_batch", [False, True], ids=["one by one", "in a batch"])
async def test_sum_of_an_operators_holds_is_limited(database: Database, *, is_batch: bool) -> None:
    """An operator's account can be overdrawn, but the sum of its holds must remain within 64 bits."""
    account = await database.write(accounts.create("a@example.com", operator=True))
    other = await database.write(accounts.create("b@example.com", credit=1))
    requests = [HoldRequest(account.id, f"hold_{number}", MAX_BALANCE) for number in range(10)]
    batches = [requests] if is_batch else [[each] for each in requests]
    writes = [database.write(ledger_batches.book(holds=batch)) for batch in batches]
    results = await asyncio.gather(
        *writes, database.write(ledger.hold(other.id, "hold_other", 1)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert {type(each) for each in refused} == {errors.InsufficientCredits}
    assert len(refused) == (1 if is_batch else 9)
    assert results[-1] is None
    assert await database.read(ledger_queries.verify()) == ()


async def test_concurrent_holds_of_an_operator_are_limited(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", operator=True))
    holds = [ledger.hold(account.id, f"hold_{number}", MAX_BALANCE) for number in range(10)]
    results = await asyncio.gather(*map(database.write, holds), return_exceptions=True)
    assert [type(result) for result in results if result is not None] == [errors.InsufficientCredits] * 9
    assert await database.read(ledger_queries.verify()) == ()
