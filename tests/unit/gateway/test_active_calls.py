"""Active calls: stored as a hold only, included in the log, and compatible with a downgrade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database, one
from sixfold.core.gateway import request_log
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.request_log import CallFilter, CallOutcome, CallRecord
from sixfold.store.sqlite import database as sqlite
from tests.harness import databases

ALL = CallFilter()


def _call(account_id: str, name: str = "req_a") -> CallRecord:
    return CallRecord(name, account_id, "key_a", "chat", 'm "\0"', "s/m", streamed=True, held=10)


async def _list_calls(
    database: Database, account_id: str, selection: CallFilter = ALL
) -> list[dict[str, Any]]:
    rows, _ = await database.read(request_log.list_calls(account_id, selection, 10, None))
    assert await database.read(ledger_queries.verify()) == ()
    return [dict(row) for row in rows]


@pytest.mark.parametrize("backend", databases.BACKENDS)
@pytest.mark.parametrize("together", [False, True])
async def test_running_call_is_logged_and_its_end_is_written_once(
    tmp_path: Path, backend: str, *, together: bool
) -> None:
    async with databases.OPENERS[backend](tmp_path, None) as database:
        account_id = (await database.write(accounts.create("a@example.com", credit=100))).id
        first, last = _call(account_id), _call(account_id, "req_b")
        payer = Payer("key_a", budget_day=50)
        if together:
            await database.write(request_log.write_batch([(first, payer), (last, payer)], [], "boot_a"))
        else:
            for call in (first, last):
                await database.write(request_log.begin(call, "boot_a", payer))
        running_calls = await _list_calls(database, account_id, CallFilter(state="running"))
        assert [row["id"] for row in running_calls] == ["req_b", "req_a"]
        response = {"face": "chat", "target": "s/m", "key_id": "key_a", "streamed": 1, "held": 10, "cost": 0}
        assert running_calls[0].items() >= response.items()
        assert running_calls[0]["model"].startswith('m "')
        assert running_calls[0]["ended_at"] is None
        ending = CallOutcome("succeeded", TokenUsage(3, 4), 7, counted_by="server")
        if together:
            await database.write(request_log.write_batch([], [(first, ending)], "boot_a"))
        else:
            await database.write(request_log.finish(first, ending, "boot_a"))
        rows = await _list_calls(database, account_id)
        assert [(row["id"], row["state"], row["cost"]) for row in rows] == [
            ("req_b", "running", 0),
            ("req_a", "succeeded", 7),
        ]
        assert rows[1]["created_at"] == first.held_at <= rows[1]["ended_at"]
        await database.write(request_log.sweep("boot_b", 0, None))
        # This end is too late, because the hold was released.
        await database.write(request_log.finish(last, ending, "boot_a"))
        rows = await _list_calls(database, account_id)
        assert [(row["id"], row["state"], row["cost"]) for row in rows] == [
            ("req_b", "failed", 0),
            ("req_a", "succeeded", 7),
        ]
        assert rows[0].items() >= response.items()
        row: Any = await database.read(one("account_by_id", id=account_id))
        assert (row["posted"], row["held"]) == (93, 0)


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_log_has_the_start_of_a_call_that_was_held_at_its_end(tmp_path: Path, backend: str) -> None:
    async with databases.OPENERS[backend](tmp_path, None) as database:
        account_id = (await database.write(accounts.create("a@example.com", credit=100))).id
        call = _call(account_id)
        call.total_us = 2_000_000
        outcome = CallOutcome("succeeded", TokenUsage(3, 4), 7, counted_by="server")
        await database.write(request_log.write_batch([], [], "boot_a", [(call, Payer("key_a"), outcome)]))
        (row,) = await _list_calls(database, account_id)
        assert row["ended_at"] - row["created_at"] == row["total_us"] == 2_000_000


async def test_schema_downgrade_keeps_the_hold_and_start_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "sixfold.db"
    database = sqlite.SqliteDatabase(path)
    account_id = (await database.write(accounts.create("a@example.com", credit=100))).id
    await database.write(request_log.begin(_call(account_id), "boot_a", None))
    await database.close()
    connection = sqlite.connect(str(path))
    sqlite.migrate(connection, 23)
    assert connection.execute("SELECT state, target FROM relay_call").fetchall()[0][:] == ("running", "s/m")
    connection.close()
    # The database contains the call as a server of the previous version wrote it.
    database = sqlite.SqliteDatabase(path)
    try:
        assert [row["state"] for row in await _list_calls(database, account_id)] == ["running"]
        await database.write(request_log.sweep("boot_b", 0, None))
        assert [row["state"] for row in await _list_calls(database, account_id)] == ["failed"]
    finally:
        await database.close()
