"""Fill a database with the rows of years of use, and time the first queries of users and operators.

Run by `make growth`. SIXFOLD_BENCH_ROWS (1,000,000) is the number of predictions. Each has five holds and
transfers. There is one account per ten predictions, and one account owns a fifth of them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.reporting import Row, calibration
from sixfold.core.accounts import ledger_queries
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Database, Transaction, many
from sixfold.core.gateway import request_log
from sixfold.core.predictions import queries
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.store import factory
from tests.harness import backends, databases

TITLE = "A database that has grown"
ROWS = int(os.environ.get("SIXFOLD_BENCH_ROWS", "1000000"))
_BIG = "acct_000000001"
_BEGAN = 1_760_000_000_000_000
_STEP_US = 30_000_000
_OWNER = "CASE WHEN n % 5 = 0 THEN 1 ELSE 2 + n % ({accounts} - 1) END"

# Statements over `rows (n)`, each with the number of its rows. `{n}` has nine digits, so ids sort by their
# numbers.
_FILL = (
    (
        "{accounts}",
        """INSERT INTO account (id, kind, email, created_at, posted, can_go_negative)
        SELECT 'acct_' || {n}, 'customer', 'a' || n || '@example.com', {began}, 0, 1 FROM {rows}""",
    ),
    (
        "{predictions}",
        """INSERT INTO prediction (id, account_id, request_id, face, model, engine, quality, output_kind,
            inputs, task, fingerprint, origin_id, state, price, credits, cost, created_at, completed_at)
        SELECT 'pred_' || {n}, 'acct_' || {owner}, 'req_' || n, 'hosting', 'model-' || (n % 40),
            'engine-' || (n % 20), 'full', 'image', '{inputs}', '{task}', {blob}, 'pred_' || {n},
            CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END, 0, 0, 0,
            {began} + n * {step}, {began} + n * {step} + 1000000 FROM {rows}""",
    ),
    (
        "{transfers}",
        """INSERT INTO hold (id, account_id, amount, captured, state, created_at, ended_at)
        SELECT 'hold_' || {n}, 'acct_' || {owner}, 7000, 7000, 'captured', {began} + n * {step} / 5,
            {began} + n * {step} / 5 FROM {rows}""",
    ),
    (
        "{transfers}",
        """INSERT INTO transfer (id, debit, credit, amount, hold_id, kind, description, created_at)
        SELECT 'capture:hold_' || {n}, 'acct_' || {owner}, 'revenue', 7000, 'hold_' || {n}, 'charge',
            'model-' || (n % 40), {began} + n * {step} / 5 FROM {rows}""",
    ),
    (
        "{predictions}",
        """INSERT INTO relay_call (id, account_id, face, model, target, state, holder, streamed, attempts,
            input_tokens, cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error,
            words, created_at, ended_at)
        SELECT 'req_' || {n}, 'acct_' || {owner}, 'openai', 'm', 'm/m', 'succeeded', 'b', 0, 1, 10, 0, 10,
            'upstream', 1, 1, 1, 1, '', 'm words', {began} + n * {step}, {began} + n * {step} FROM {rows}""",
    ),
    (
        "1",
        """UPDATE account SET posted =
            (SELECT COALESCE(SUM(-t.amount), 0) FROM transfer t WHERE t.debit = account.id)
            + (SELECT COALESCE(SUM(t.amount), 0) FROM transfer t WHERE t.credit = account.id)""",
    ),
)
_DIALECTS = {
    "sqlite": {
        "rows": "(WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {count}) "
        "SELECT n FROM r)",
        "digits": "printf('%09d', {})",
        "blob": "CAST('f' || n AS BLOB)",
    },
    "postgres": {
        "rows": "generate_series(1::bigint, {count}) AS rows (n)",
        "digits": "lpad(({})::text, 9, '0')",
        "blob": "convert_to('f' || n, 'UTF8')",
    },
}


def statements(dialect: str, predictions: int) -> list[str]:
    words = _DIALECTS[dialect]
    counts = {
        "predictions": predictions,
        "transfers": 5 * predictions,
        "accounts": max(predictions // 10, 10),
    }
    owner = words["digits"].format(_OWNER.format(**counts))
    return [
        text.format(
            rows=words["rows"].format(count=count.format(**counts)),
            n=words["digits"].format("n"),
            owner=owner,
            blob=words["blob"],
            began=_BEGAN,
            step=_STEP_US,
            inputs="{}",
            task='{"inputs": {}}',
        )
        for count, text in _FILL
    ]


def fill_sqlite(path: Path, predictions: int) -> None:
    """Fill a SQLite file of this schema."""
    from sixfold.store.sqlite import database as sqlite

    connection = sqlite.connect(str(path))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    for statement in statements("sqlite", predictions):
        connection.execute(statement)
    connection.close()


async def fill_postgres(url: str, predictions: int) -> None:
    """Fill a PostgreSQL database of this schema."""
    import asyncpg

    connection: Any = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica; SET synchronous_commit = off")
    for statement in statements("postgres", predictions):
        await connection.execute(statement)
    await connection.execute("ANALYZE")
    await connection.close()


def _questions(database: Database) -> dict[str, Callable[[], Awaitable[Any]]]:
    owner, calls = Tenant(_BIG), request_log.CallFilter()
    canceled, queued = PredictionFilter(state="canceled"), PredictionFilter(state="queued")
    since = _BEGAN + ROWS * _STEP_US - 30 * 86_400_000_000

    def page(filters: PredictionFilter) -> Callable[[], Awaitable[Any]]:
        return lambda: queries.page(database, owner, filters, 20, None)

    def read(question: Callable[[], Transaction[Any]]) -> Callable[[], Awaitable[Any]]:
        return lambda: database.read(question())

    return {
        "predictions of an account": page(PredictionFilter()),
        "predictions of an account, canceled, without any": page(canceled),
        "predictions of an account, queued, without any": page(queued),
        "ledger of an account": read(lambda: ledger_queries.page(_BIG, 20, None)),
        "spending of 30 days": read(lambda: ledger_queries.spending(_BIG, 30)),
        "calls of an account": read(lambda: request_log.list_calls(_BIG, calls, 20, None)),
        "states on /metrics": read(lambda: many("prediction_states")),
        "upstream costs of 30 days": read(lambda: many("prediction_upstream_costs", since=since)),
    }


async def _measure_time(ask: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began


async def _answers(dialect: str, database: Database) -> list[Row]:
    results: list[Row] = []
    for name, question in _questions(database).items():
        seconds = await _measure_time(question)
        results.append(Row(f"{name}, {dialect}", seconds * 1e3, "ms"))
    for name in ("ledger_sum_posted", *ledger_queries.CHECKS):
        seconds = await _measure_time(lambda name=name: database.read(many(name)))
        results.append(Row(f"verify: {name.removeprefix('ledger_')}, {dialect}", seconds, "s"))
    return results


def _backup(dialect: str, url: str, file: Path) -> list[Row]:
    """Read all rows as `sixfold backup` does; SQLite's write-ahead log can shrink once they are copied."""
    began, copy = time.perf_counter(), file.with_name("copy.db")
    with factory.open_snapshot(url, file, copy) as reader:
        opened, size = time.perf_counter(), copy.stat().st_size if dialect == "sqlite" else 0
        count = sum(1 for table, _ in reader.tables() for _ in reader.rows(table))
        note = f"{count:,} rows"
        results = [Row(f"backup: reading the rows, {dialect}", time.perf_counter() - opened, "s", note=note)]
    if dialect == "sqlite":
        megabytes = f"{size / 1e6:,.0f} MB"
        results.append(
            Row(f"backup: copying the file before, {dialect}", opened - began, "s", note=megabytes)
        )
    return results


async def _measure(dialect: str, folder: Path, predictions: int) -> list[Row]:
    backends.database_url(folder, dialect)
    database = databases.open_database(folder)
    await database.write(many("clock"))
    began = time.perf_counter()
    if dialect == "sqlite":
        await asyncio.to_thread(fill_sqlite, folder / databases.FILE, predictions)
    else:
        await fill_postgres(backends.database_url(folder), predictions)
    filled = Row(f"filling {predictions:,} predictions, {dialect}", time.perf_counter() - began, "s")
    try:
        answers = await _answers(dialect, database)
        url = backends.database_url(folder, dialect) or ""
        return [filled, *answers, *await asyncio.to_thread(_backup, dialect, url, folder / databases.FILE)]
    finally:
        await database.close()


def rows() -> list[Row]:
    result = calibration()
    for dialect in ("sqlite", "postgres"):
        with tempfile.TemporaryDirectory() as folder:
            result += asyncio.run(_measure(dialect, Path(folder), ROWS))
    return result
