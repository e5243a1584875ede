"""Full and failing disks: a clean error, no partial writes, and recovery afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.store.sqlite.database import SqliteDatabase
from tests.harness import backends
from tests.harness.cases import nightly_after
from tests.harness.pipeline import PRICE, Options, running_pipeline


def _limit_pages(database: SqliteDatabase, pages: int) -> None:
    """Limit the size of the database file, so that SQLite fails as on a full disk."""
    database._writer.execute(f"PRAGMA max_page_count={pages}")


async def test_full_disk_refuses_requests_and_recovers(tmp_path: Path) -> None:
    # Faults of PostgreSQL are tested in tests/contract/test_postgres.py.
    backends.database_url(tmp_path, "sqlite")
    async with running_pipeline(tmp_path, Options(credit=10_000_000, start=False)) as pipeline:
        assert isinstance(pipeline.database, SqliteDatabase)
        # SQLite raises the limit to the present number of pages.
        _limit_pages(pipeline.database, 1)
        submissions = [
            pipeline.service.submit(pipeline.request(extras={"n": n, "pad": "x" * 4000})) for n in range(60)
        ]
        results = await asyncio.gather(*submissions, return_exceptions=True)
        accepted = [result for result in results if isinstance(result, Prediction)]
        failures = [result for result in results if isinstance(result, errors.StoreFailed)]
        assert failures
        assert len(accepted) + len(failures) == 60
        _limit_pages(pipeline.database, 1_000_000)
        assert (await pipeline.account()).held == len(accepted) * PRICE
        assert await pipeline.faults() == ()
        await pipeline.scheduler.start()
        last = await pipeline.run(extras={"n": 61})
        assert last.state is PredictionState.SUCCEEDED
        predictions = [await pipeline.service.wait(prediction, 60) for prediction in accepted]
        assert {prediction.state for prediction in predictions} <= {PredictionState.SUCCEEDED}
        assert await pipeline.faults() == ()


class FailingConnection:
    """A connection whose nth statement that matches fails, as a broken disk would make it."""

    def __init__(self, real: sqlite3.Connection, at: int) -> None:
        self._real = real
        self._left = at

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        self._left -= 1
        if self._left == 0:
            if self._real.in_transaction:
                self._real.rollback()
            raise sqlite3.OperationalError("disk I/O error")
        return self._real.execute(sql, *arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


@pytest.mark.parametrize("at", nightly_after(7, sorted(range(2, 22), key=lambda at: at % 3 != 2)))
async def test_io_error_at_any_statement_keeps_the_ledger_valid(tmp_path: Path, at: int) -> None:
    backends.database_url(tmp_path, "sqlite")
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        database: Any = pipeline.database
        real = database._writer
        database._writer = FailingConnection(real, at)
        entry = ledger.LedgerEntry("credit", "test")
        jobs = [
            database.write(ledger.deposit(pipeline.payer.id, 5, entry)),
            pipeline.service.submit(pipeline.request(extras={"n": at})),
            database.write(ledger.deposit(pipeline.payer.id, 5, entry)),
        ]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        database._writer = real
        for result in results:
            assert not isinstance(result, BaseException) or isinstance(result, errors.StoreFailed)
        account = await pipeline.account()
        deposits = sum(not isinstance(result, BaseException) for result in (results[0], results[2]))
        assert account.posted == 1_000_000 + 5 * deposits
        assert account.held == (0 if isinstance(results[1], BaseException) else PRICE)
        assert await pipeline.faults() == ()
        assert (await database.read(accounts.by_id(pipeline.payer.id))).id == pipeline.payer.id
