"""Batched billing: entries commit together, and individually if the batch fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, ledger, ledger_queries
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database, Transaction, many, one
from sixfold.core.gateway import idempotency, request_log
from sixfold.core.gateway.billing import BillingBatcher
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from tests.harness import databases


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened_database:
        yield opened_database


async def _batcher(database: Database, credit: int) -> tuple[BillingBatcher, str]:
    account = await database.write(accounts.create("a@example.com", credit=credit))
    batcher = BillingBatcher(database)
    batcher.holder = "boot_here"
    return batcher, account.id


def _call(account_id: str, held: int = 10) -> CallRecord:
    return CallRecord(ids.new("req"), account_id, "key_a", "chat", "m", "s/m", streamed=False, held=held)


async def _account(database: Database, account_id: str) -> tuple[int, int]:
    row: Any = await database.read(one("account_by_id", id=account_id))
    assert await database.read(ledger_queries.verify()) == ()
    return int(row["posted"]), int(row["held"])


async def test_concurrent_calls_begin_up_to_the_balance(database: Database) -> None:
    batcher, account_id = await _batcher(database, credit=45)
    calls = [_call(account_id) for _ in range(9)]
    response = await asyncio.gather(*(batcher.hold(call, None) for call in calls), return_exceptions=True)
    assert [type(each) for each in response] == [type(None)] * 4 + [errors.InsufficientCredits] * 5
    assert await _account(database, account_id) == (45, 40)
    endings = [
        CallOutcome("succeeded", cost=3),
        CallOutcome("succeeded", cost=10),
        CallOutcome("failed"),
        CallOutcome("left"),
    ]
    await asyncio.gather(
        *(batcher.settle(call, ending) for call, ending in zip(calls, endings, strict=False))
    )
    assert await _account(database, account_id) == (32, 0)


async def test_budget_is_counted_once_per_batch_and_released(database: Database) -> None:
    batcher, account_id = await _batcher(database, credit=1000)
    payer = Payer("key_a", budget_day=25)
    calls = [_call(account_id) for _ in range(4)]
    response = await asyncio.gather(*(batcher.hold(call, payer) for call in calls), return_exceptions=True)
    assert [isinstance(each, errors.BudgetExceeded) for each in response] == [False, False, True, True]
    await asyncio.gather(
        batcher.settle(calls[0], CallOutcome("succeeded", cost=4)),
        batcher.settle(calls[1], CallOutcome("failed")),
    )
    await asyncio.gather(*(batcher.hold(_call(account_id), payer) for _ in range(2)))
    assert await _account(database, account_id) == (996, 20)


async def test_hold_canceled_before_the_batch_is_written_is_dropped(database: Database) -> None:
    batcher, account_id = await _batcher(database, credit=100)
    beginning = [asyncio.create_task(batcher.hold(_call(account_id), None)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in beginning:
        task.cancel()
    await asyncio.wait(beginning)
    await batcher.flush()
    assert await _account(database, account_id) == (100, 0)


async def test_ended_call_is_charged_once_without_a_waiting_caller(database: Database) -> None:
    batcher, account_id = await _batcher(database, credit=100)
    calls = [_call(account_id), _call(account_id)]
    for call in calls:
        await batcher.hold(call, None)
    # A repeated end has no effect.
    for call in (*calls, calls[0]):
        batcher.settle(call, CallOutcome("succeeded", cost=7))
    await batcher.flush()
    assert await _account(database, account_id) == (86, 0)
    assert len(await database.read(many("find_orphaned_holds", holder="boot_other", before=0))) == 0


# -- calls that begin on trust ---------------------------------------------------------------------


async def _trusting(database: Database, credit: int) -> tuple[BillingBatcher, str]:
    batcher, account_id = await _batcher(database, credit)
    trusting = BillingBatcher(database, defer_holds=True)
    trusting.holder = batcher.holder
    return trusting, account_id


async def _log(database: Database, account_id: str) -> list[tuple[str, int, int]]:
    """Return state, held amount and cost of each call, oldest first."""
    rows, _ = await database.read(request_log.list_calls(account_id, request_log.CallFilter(), 100, None))
    return [(row["state"], row["held"], row["cost"]) for row in reversed(rows)]


async def _read_spent(database: Database, account_id: str, amount: int) -> None:
    await database.write(ledger.hold(account_id, "other", amount))
    await database.write(ledger.capture("other", amount, ledger.LedgerEntry("charge", "x")))


async def test_short_call_of_a_rich_account_is_written_once_at_its_end(database: Database) -> None:
    batcher, account_id = await _trusting(database, credit=1000)
    payer = Payer("key_a", budget_day=500)
    calls = [_call(account_id) for _ in range(4)]
    for call in calls:
        await batcher.hold(call, payer)
    assert await _account(database, account_id) == (1000, 0)
    endings = [
        CallOutcome("succeeded", cost=3),
        CallOutcome("succeeded", cost=10),
        CallOutcome("failed"),
        CallOutcome("left"),
    ]
    await asyncio.gather(*(batcher.settle(call, ending) for call, ending in zip(calls, endings, strict=True)))
    assert await _account(database, account_id) == (987, 0)
    assert await database.read(budgets.unspent(payer)) == 487
    messages = [("succeeded", 10, 3), ("succeeded", 10, 10), ("failed", 10, 0), ("left", 10, 0)]
    assert sorted(await _log(database, account_id)) == sorted(messages)


async def test_long_call_is_held_later_but_before_any_output(database: Database) -> None:
    batcher, account_id = await _trusting(database, credit=1000)
    lasting, streamed = _call(account_id), _call(account_id)
    await batcher.hold(lasting, None)
    async with asyncio.timeout(60):
        while await _account(database, account_id) != (1000, 10):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
    await batcher.hold(streamed, None)
    await batcher.ensure_held(streamed)
    assert await _account(database, account_id) == (1000, 20)
    assert await _log(database, account_id) == [("running", 10, 0)] * 2
    await asyncio.gather(
        batcher.settle(lasting, CallOutcome("succeeded", cost=4)),
        batcher.settle(streamed, CallOutcome("failed")),
    )
    assert await _account(database, account_id) == (996, 0)


async def test_end_during_the_write_of_the_start_follows_it(database: Database) -> None:
    batcher, account_id = await _trusting(database, credit=1000)
    call = _call(account_id)
    await batcher.hold(call, None)
    standing = asyncio.create_task(batcher.ensure_held(call))
    await asyncio.sleep(0)
    # The waiting caller is canceled, but the entry is still written.
    standing.cancel()
    await batcher.settle(call, CallOutcome("succeeded", cost=4))
    assert await _account(database, account_id) == (996, 0)
    assert await _log(database, account_id) == [("succeeded", 10, 4)]


@pytest.mark.parametrize("stands", [False, True])
async def test_balance_spent_elsewhere_refuses_the_call_unwritten(
    database: Database, *, stands: bool
) -> None:
    batcher, account_id = await _trusting(database, credit=1000)
    call = _call(account_id)
    await batcher.hold(call, None)
    await _read_spent(database, account_id, 998)
    if stands:
        with pytest.raises(errors.InsufficientCredits):
            await batcher.ensure_held(call)
    with pytest.raises(errors.InsufficientCredits):
        await batcher.settle(call, CallOutcome("succeeded", cost=4))
    assert await _account(database, account_id) == (2, 0)
    assert await _log(database, account_id) == []


async def test_failed_entry_does_not_affect_its_batch(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each call is written together with its end.
    monkeypatch.setattr("sixfold.core.gateway.billing.DEFER_SECONDS", 60)
    batcher, account_id = await _trusting(database, credit=1000)
    calls = [_call(account_id, held=30) for _ in range(3)]
    for call in calls:
        await batcher.hold(call, None)
    await _read_spent(database, account_id, 980)
    # In any order, the second outcome exceeds the remaining balance.
    endings = [
        batcher.settle(call, CallOutcome("succeeded", cost=cost))
        for call, cost in zip(calls, (7, 25, 9), strict=True)
    ]
    response = await asyncio.gather(*endings, return_exceptions=True)
    assert [type(each) for each in response] == [type(None), errors.InsufficientCredits, type(None)]
    assert await _account(database, account_id) == (4, 0)


async def test_hold_without_credit_waits_for_earlier_holds(database: Database) -> None:
    batcher, account_id = await _trusting(database, credit=100)
    calls = [_call(account_id, held=25) for _ in range(6)]
    response = await asyncio.gather(*(batcher.hold(call, None) for call in calls), return_exceptions=True)
    started_calls = [call for call, verdict in zip(calls, response, strict=True) if verdict is None]
    assert (len(started_calls), len(response) - len(started_calls)) == (4, 2)
    await asyncio.gather(*(batcher.ensure_held(call) for call in started_calls))
    assert await _account(database, account_id) == (100, 100)
    await asyncio.gather(*(batcher.settle(call, CallOutcome("succeeded", cost=25)) for call in started_calls))
    assert await _account(database, account_id) == (0, 0)


async def test_flush_writes_deferred_holds(database: Database) -> None:
    batcher, account_id = await _trusting(database, credit=1000)
    await batcher.hold(_call(account_id), None)
    await batcher.flush()
    assert await _account(database, account_id) == (1000, 10)


# -- a database that fails -------------------------------------------------------------------------


class UnreliableDatabase:
    """Fails all writes while `fails` is set: before they run, or if `stored` is set, after the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read, self.close = database.read, database.close
        self.fails = self.stored = False

    async def write(self, transaction: Transaction[Any], *, durable: bool = True) -> Any:
        if self.fails and not self.stored:
            raise errors.StoreFailed
        result = await self._database.write(transaction, durable=durable)
        if self.fails:
            raise errors.StoreFailed
        return result


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
async def test_end_that_cannot_be_written_is_settled_later(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, streamed: bool, stored: bool
) -> None:
    monkeypatch.setattr("sixfold.core.gateway.billing._REPEAT_SECONDS", 0.01)
    unreliable = UnreliableDatabase(database)
    batcher, account_id = await _batcher(unreliable, credit=100)
    call = replace(_call(account_id), streamed=streamed)
    await batcher.hold(call, None)
    unreliable.fails, unreliable.stored = True, stored
    with pytest.raises(errors.StoreFailed):
        await batcher.settle(call, CallOutcome("succeeded", cost=7))
    # No sweep releases the hold.
    assert batcher.active == {call.id}
    unreliable.fails = False
    await batcher.flush()
    # A stream has been delivered; the caller of a complete response has received an error.
    assert await _account(database, account_id) == (93 if streamed else 100, 0)
    assert await _log(database, account_id) == [("succeeded", 10, 7) if streamed else ("failed", 10, 0)]
    assert not batcher.active


@pytest.mark.parametrize("stored", [False, True])
async def test_hold_with_an_unknown_result_is_released(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    monkeypatch.setattr("sixfold.core.gateway.billing._REPEAT_SECONDS", 0.01)
    unreliable = UnreliableDatabase(database)
    batcher, account_id = await _batcher(unreliable, credit=100)
    call = _call(account_id)
    unreliable.fails, unreliable.stored = True, stored
    with pytest.raises(errors.StoreFailed):
        await batcher.hold(call, None)
    assert (await _account(database, account_id))[1] == (10 if stored else 0)
    unreliable.fails = False
    await batcher.flush()
    assert await _account(database, account_id) == (100, 0)
    assert await _log(database, account_id) == ([("failed", 10, 0)] if stored else [])


@pytest.mark.parametrize("stored", [False, True])
async def test_stored_charge_of_a_keyed_call_is_left_to_its_repetition(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    monkeypatch.setattr("sixfold.core.gateway.billing._REPEAT_SECONDS", 0.01)
    unreliable = UnreliableDatabase(database)
    batcher, account_id = await _batcher(unreliable, credit=100)
    call = _call(account_id)
    assert await database.write(idempotency.paid_before("scope", call.id)) is None
    await batcher.hold(call, None)
    unreliable.fails, unreliable.stored = True, stored
    with pytest.raises(errors.StoreFailed):
        await batcher.settle(call, CallOutcome("succeeded", cost=7))
    unreliable.fails = False
    await batcher.flush()
    assert await _account(database, account_id) == (93 if stored else 100, 0)
    paid = await database.write(idempotency.paid_before("scope", ids.new("req")))
    assert paid == (7 if stored else None)


async def test_end_of_a_call_that_cannot_be_repeated_is_logged(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sixfold.core.gateway.billing._REPEAT_SECONDS", 0.01)
    unreliable = UnreliableDatabase(database)
    batcher, account_id = await _batcher(unreliable, credit=100)
    call = replace(_call(account_id), streamed=True)
    await batcher.hold(call, None)
    unreliable.fails = True
    with pytest.raises(errors.StoreFailed):
        await batcher.settle(call, CallOutcome("succeeded", cost=7))
    monkeypatch.setattr(request_log, "_row", lambda *_: {})
    unreliable.fails = False
    await batcher.flush()
    assert "the background task 'billing' failed unexpectedly" in caplog.text
    assert not batcher.active


async def test_refund_is_repeated_until_it_is_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sixfold.core.gateway.billing._REPEAT_SECONDS", 0.01)
    unreliable = UnreliableDatabase(database)
    batcher, account_id = await _batcher(unreliable, credit=100)
    calls = [_call(account_id) for _ in range(2)]
    for call in calls:
        await batcher.hold(call, None)
        await batcher.settle(call, CallOutcome("succeeded", cost=7))
    assert await _account(database, account_id) == (86, 0)
    unreliable.fails = True
    await batcher.refund([call.id for call in calls], "lost")
    assert await _account(database, account_id) == (86, 0)
    unreliable.fails = False
    await batcher.flush()
    assert await _account(database, account_id) == (100, 0)
