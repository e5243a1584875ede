"""Measure the ledger and the queue on PostgreSQL beside SQLite, with the same transactions.

.venv/bin/python -m bench postgres
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.ledger import ENTRY, GROUP, LEASE
from bench.reporting import Row, calibration, of_samples
from sixfold.core import ids
from sixfold.core.accounts import accounts, ledger, ledger_queries
from sixfold.core.database import Database, Transaction
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.repository import SuccessRecord, Trace
from sixfold.drivers.process import ProcessDriver
from tests.harness import databases, postgres
from tests.harness.pipeline import Options, running_pipeline

TITLE = "PostgreSQL compared with SQLite"
BACKENDS = ("sqlite", "postgres")
SPENDS, CLAIMS, JOBS, READS = 40 * GROUP, 16 * GROUP, 1_000, 2_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Throughput per second of one database, and the seconds of each read."""

    single: float
    grouped: float
    claims: float
    jobs: float
    reads: list[float]


def _spend(account_id: str) -> Transaction[None]:
    hold_id = ids.new("hold")
    yield from ledger.hold(account_id, hold_id, 7)
    yield from ledger.capture(hold_id, 7, ENTRY)


async def _rate(database: Database, account_id: str, group: int, total: int) -> float:
    began = time.perf_counter()
    for _ in range(total // group):
        await asyncio.gather(*(database.write(_spend(account_id)) for _ in range(group)))
    return total / (time.perf_counter() - began)


async def _ledger(folder: Path) -> tuple[float, float, list[float]]:
    database = databases.open_database(folder)
    account = await database.write(accounts.create("bench@example.com", credit=10**12))
    single = await _rate(database, account.id, 1, 500)
    grouped = await _rate(database, account.id, GROUP, SPENDS)
    reads: list[float] = []
    for _ in range(READS):
        began = time.perf_counter()
        await database.read(accounts.by_id(account.id))
        reads.append(time.perf_counter() - began)
    assert await database.read(ledger_queries.verify()) == ()
    await database.close()
    return single, grouped, reads


async def _claims(folder: Path) -> float:
    """Claim and complete runs with their payments, as the supervisor does, without a worker.

    Returns the runs per second.
    """
    async with running_pipeline(folder, Options(credit=10**12, start=False, queue_limit=10**6)) as built:
        for start in range(0, CLAIMS, 500):
            count = min(500, CLAIMS - start)
            await asyncio.gather(
                *(built.service.submit(built.request(extras={"n": start + n})) for n in range(count))
            )
        success = SuccessRecord(Output(), "full", "1", Trace())
        began = time.perf_counter()
        for _ in range(CLAIMS // GROUP):
            claim = claims.claim("echo", LEASE, GROUP, warm=True)
            claimed = await built.database.write(claim, durable=False)
            await asyncio.gather(
                *(built.database.write(predictions.succeed(p.id, p.attempt, success)) for p in claimed)
            )
        rate = CLAIMS / (time.perf_counter() - began)
        assert await built.faults() == ()
        return rate


async def _jobs(folder: Path) -> float:
    """Return the predictions per second, from submission to receipt, on two workers."""
    options = Options(credit=10**12, driver=ProcessDriver(), queue_limit=10**6)
    async with running_pipeline(folder, options) as built:
        await asyncio.gather(built.run(), built.run())
        began = time.perf_counter()
        await asyncio.gather(*(built.run(extras={"n": n}) for n in range(JOBS)))
        return JOBS / (time.perf_counter() - began)


def _measure(home: Path, back: str) -> Figures:
    result = postgres.Databases(home / "server", careful=True)
    folders = [home / back / name for name in ("ledger", "claims", "jobs")]
    for folder in folders:
        folder.mkdir(parents=True)
        if back == "postgres":
            (folder / "database.url").write_text(result.lend(), "utf-8")
    single, grouped, reads = uvloop.run(_ledger(folders[0]))
    return Figures(single, grouped, uvloop.run(_claims(folders[1])), uvloop.run(_jobs(folders[2])), reads)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        of = {back: _measure(Path(name), back) for back in BACKENDS}
    result = calibration()
    names = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
    for title, field in (
        ("hold + capture, one to a durable commit", "single"),
        (f"hold + capture, {GROUP} at once", "grouped"),
        (f"claim + complete + capture, {GROUP} at once", "claims"),
        (f"priced … captured, {JOBS} at once on two workers", "jobs"),
    ):
        for back in BACKENDS:
            aim = "aim 1,500" if (field, back) == ("claims", "postgres") else ""
            result.append(Row(f"{title}: {names[back]}", getattr(of[back], field), "per s", note=aim))
    result += [of_samples(f"read one account: {names[back]}", of[back].reads, "µs") for back in BACKENDS]
    return result
