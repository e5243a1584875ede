"""The till: what is booked together is right together, and where it does not fit, each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, journal
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, many, one
from sixfold.core.relay.requestlog import Call, Ending
from sixfold.core.relay.till import Till
from tests import databases


@pytest.fixture(params=databases.BACKS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened:
        yield opened


async def _till(database: Database, credit: int) -> tuple[Till, str]:
    account = await database.write(accounts.create("a@example.com", credit=credit))
    till = Till(database)
    till.holder = "boot_here"
    return till, account.id


def _call(account_id: str, held: int = 10) -> Call:
    return Call(ids.new("req"), account_id, "key_a", "chat", "m", "s/m", streamed=False, held=held)


async def _account(database: Database, account_id: str) -> tuple[int, int]:
    row: Any = await database.read(one("account_by_id", id=account_id))
    assert await database.read(journal.verify()) == ()
    return int(row["posted"]), int(row["held"])


async def test_of_many_at_once_as_many_begin_as_there_is_money_for(database: Database) -> None:
    till, account_id = await _till(database, credit=45)
    calls = [_call(account_id) for _ in range(9)]
    told = await asyncio.gather(*(till.begin(call, None) for call in calls), return_exceptions=True)
    assert [type(each) for each in told] == [type(None)] * 4 + [errors.InsufficientCredits] * 5
    assert await _account(database, account_id) == (45, 40)
    endings = [Ending("succeeded", cost=3), Ending("succeeded", cost=10), Ending("failed"), Ending("left")]
    await asyncio.gather(*(till.end(call, ending) for call, ending in zip(calls, endings, strict=False)))
    assert await _account(database, account_id) == (32, 0)


async def test_a_budget_is_counted_once_for_all_and_given_back(database: Database) -> None:
    till, account_id = await _till(database, credit=1000)
    payer = Payer("key_a", budget_day=25)
    calls = [_call(account_id) for _ in range(4)]
    told = await asyncio.gather(*(till.begin(call, payer) for call in calls), return_exceptions=True)
    assert [isinstance(each, errors.BudgetExceeded) for each in told] == [False, False, True, True]
    await asyncio.gather(
        till.end(calls[0], Ending("succeeded", cost=4)), till.end(calls[1], Ending("failed"))
    )
    await asyncio.gather(*(till.begin(_call(account_id), payer) for _ in range(2)))
    assert await _account(database, account_id) == (996, 20)


async def test_who_goes_away_while_it_is_booked_holds_nothing(database: Database) -> None:
    till, account_id = await _till(database, credit=100)
    beginning = [asyncio.create_task(till.begin(_call(account_id), None)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in beginning:
        task.cancel()
    await asyncio.wait(beginning)
    await till.drain()
    assert await _account(database, account_id) == (100, 0)


async def test_an_ending_is_booked_though_nobody_waits_and_only_once(database: Database) -> None:
    till, account_id = await _till(database, credit=100)
    calls = [_call(account_id), _call(account_id)]
    for call in calls:
        await till.begin(call, None)
    for call in (*calls, calls[0]):  # told twice, it counts once
        till.end(call, Ending("succeeded", cost=7))
    await till.drain()
    assert await _account(database, account_id) == (86, 0)
    assert len(await database.read(many("relay_orphans", holder="boot_other", before=0))) == 0
