"""Measure ledger transactions per second: one per commit and many per commit, durable and not durable.

.venv/bin/python -m bench ledger
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.reporting import Row, calibration
from sixfold.core import ids
from sixfold.core.accounts import accounts, ledger
from sixfold.core.database import Transaction
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.repository import RunLease, SuccessRecord, Trace
from sixfold.store.sqlite.database import SqliteDatabase
from tests.harness.pipeline import Options, running_pipeline

TITLE = "Ledger and queue on SQLite"
GROUP = 256
ENTRY = ledger.LedgerEntry("charge", "bench")
LEASE = RunLease("boot_bench", 30_000_000)


def _spend(account_id: str) -> Transaction[None]:
    hold_id = ids.new("hold")
    yield from ledger.hold(account_id, hold_id, 7)
    yield from ledger.capture(hold_id, 7, ENTRY)


async def _rate(database: SqliteDatabase, account_id: str, group: int, total: int, *, durable: bool) -> float:
    began = time.perf_counter()
    for _ in range(total // group):
        await asyncio.gather(*(database.write(_spend(account_id), durable=durable) for _ in range(group)))
    return total / (time.perf_counter() - began)


async def _ledger(folder: Path) -> list[Row]:
    database = SqliteDatabase(folder / "ledger.db")
    account = await database.write(accounts.create("bench@example.com", credit=10**12))
    single = await _rate(database, account.id, 1, 2_000, durable=True)
    grouped = await _rate(database, account.id, GROUP, 40 * GROUP, durable=True)
    relaxed = await _rate(database, account.id, GROUP, 40 * GROUP, durable=False)
    await database.close()
    note = f"{grouped / single:.1f} times the single rate"
    return [
        Row("hold + capture, one to a durable commit", single, "per s"),
        Row(f"hold + capture, {GROUP} at once, durable (FULL)", grouped, "per s", note=note),
        Row(
            f"hold + capture, {GROUP} at once, NORMAL",
            relaxed,
            "per s",
            note=f"FULL reaches {grouped / relaxed:.2f} of it",
        ),
    ]


async def _claims(folder: Path, total: int = 8_000) -> list[Row]:
    """Claim and complete runs with their payments, as the supervisor does, without a worker."""
    async with running_pipeline(folder, Options(credit=10**12, start=False, queue_limit=10**6)) as built:
        for start in range(0, total, 500):
            await asyncio.gather(
                *(built.service.submit(built.request(extras={"n": start + n})) for n in range(500))
            )
        success = SuccessRecord(Output(), "full", "1", Trace())
        began = time.perf_counter()
        for _ in range(total // GROUP):
            claim = claims.claim("echo", LEASE, GROUP, warm=True)
            claimed = await built.database.write(claim, durable=False)
            await asyncio.gather(
                *(built.database.write(predictions.succeed(p.id, p.attempt, success)) for p in claimed)
            )
        rate = (total // GROUP) * GROUP / (time.perf_counter() - began)
    return [Row(f"claim + complete + capture, {GROUP} at once", rate, "per s")]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        result = asyncio.run(_ledger(Path(folder)))
        result += asyncio.run(_claims(Path(folder)))
    return calibration() + result
