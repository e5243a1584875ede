"""Batches of several servers on one PostgreSQL: concurrent, without deadlocks, and atomic."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_batches, ledger_queries
from sixfold.core.accounts.ledger_batches import Capture, DirectCharge, HoldRequest
from sixfold.core.accounts.limits import budgets, rate_limits
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Transaction, many, one
from sixfold.store import sql
from sixfold.store.postgres.connection import WRITING
from sixfold.store.postgres.pipelining import StatementBatcher
from tests.harness import backends, databases, postgres

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
ENTRY = ledger.LedgerEntry("chat", "test")
BUDGET = 10**9
_LOCKS = "SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Any]:
    async with databases.running_database("postgres", tmp_path) as opened_database:
        yield opened_database


async def _accounts(database: Any, count: int, credit: int) -> list[str]:
    results = [await database.write(accounts.create(f"{n}@example.com", credit=credit)) for n in range(count)]
    return [account.id for account in results]


async def test_batches_share_the_lock_that_groups_take_exclusively(database: Any, tmp_path: Path) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    [account_id] = await _accounts(database, 1, 100)
    database.queries = {**database.queries, "locks": sql.SqlStatement(_LOCKS, "", needs_now=False)}
    assert [row["mode"] for row in await database.write(many("locks"))] == ["ExclusiveLock"]
    other: Any = await asyncpg.connect(backends.database_url(tmp_path))
    await other.execute(f"SELECT pg_advisory_lock_shared({WRITING})")
    await database.write(ledger_batches.book(holds=[HoldRequest(account_id, "h", 3)]))
    await rate_limits.build(database, "requests", shared=True).spend("key_a", 60)
    await other.close()
    assert (await database.read(accounts.by_id(account_id))).held == 3


async def test_servers_booking_the_same_accounts_never_deadlock(tmp_path: Path) -> None:
    dice = random.Random(11)  # noqa: S311 - for a test
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(databases.running_database("postgres", tmp_path))
            for _ in range(4)
        ]
        ids = await _accounts(servers[0], 6, 1_000_000)
        payers = {account_id: Payer(f"key_{account_id}", BUDGET, BUDGET) for account_id in ids}

        async def serve(name: str, server: Any) -> int:
            spent, open_holds = 0, list[tuple[str, str, int]]()
            for turn in range(25):
                some = [dice.choice(ids) for _ in range(8)]
                holds = [
                    HoldRequest(each, f"{name}h{turn}.{n}", 9, payers[each]) for n, each in enumerate(some)
                ]
                charges = [
                    DirectCharge(each, f"{name}c{turn}.{n}", 9, 4, ENTRY, payers[each])
                    for n, each in enumerate(reversed(some))
                ]
                captures = [
                    Capture(owner, hold_id, 9, 2, ENTRY, payers[owner].key_id, held_at)
                    for owner, hold_id, held_at in open_holds
                ]
                dice.shuffle(captures)
                held_at = await server.write(
                    ledger_batches.book(holds=holds, captures=captures, charges=charges)
                )
                open_holds = [(each.account_id, each.hold_id, held_at) for each in holds]
                spent += 4 * len(charges) + 2 * len(captures)
            return spent

        spent = sum(await asyncio.gather(*(serve(f"s{n}", server) for n, server in enumerate(servers))))
        results = [await servers[0].read(accounts.by_id(account_id)) for account_id in ids]
        hold_count = 4 * 8 * 9
        assert sum(account.posted for account in results) == 6_000_000 - spent
        assert sum(account.held for account in results) == hold_count
        rest = [await servers[0].read(budgets.unspent(payer)) for payer in payers.values()]
        assert sum(BUDGET - each for each in rest) == spent + hold_count
        assert await servers[0].read(ledger_queries.verify()) == ()
        # A deadlock would be ended by PostgreSQL after a second, and counted here.
        assert await _deadlocks(tmp_path) == 0


async def _deadlocks(folder: Path) -> int:
    import asyncpg  # noqa: PLC0415 - an extra

    connection: Any = await asyncpg.connect(backends.database_url(folder))
    count = await connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    await connection.close()
    return int(count)


def _mix(account_id: str, payer: Payer) -> Transaction[int]:
    return ledger_batches.book(
        holds=[HoldRequest(account_id, "new", 10, payer)],
        captures=[Capture(account_id, "open", 20, 5, ENTRY)],
        charges=[DirectCharge(account_id, "direct", 9, 7, ENTRY, payer)],
    )


@pytest.mark.parametrize(
    ("credit", "budget", "hold_id", "error"),
    [
        (36, BUDGET, "open", errors.InsufficientCredits),
        (100, 16, "open", errors.BudgetExceeded),
        (100, BUDGET, "ended", ledger.LedgerError),
    ],
)
async def test_partly_refused_batch_changes_nothing(
    database: Any, credit: int, budget: int, hold_id: str, error: type[Exception]
) -> None:
    [account_id] = await _accounts(database, 1, credit)
    payer = Payer("key_a", budget, budget)
    await database.write(ledger.hold(account_id, hold_id, 20))
    with pytest.raises(error):
        await database.write(_mix(account_id, payer))
    after = await database.read(accounts.by_id(account_id))
    assert (after.posted, after.held) == (credit, 20)
    assert await database.read(budgets.unspent(payer)) == budget
    assert await database.read(one("hold_by_id", id="direct")) is None
    assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("at", range(1, 8))
async def test_connection_loss_in_a_batch_keeps_the_ledger_valid(database: Any, at: int) -> None:
    [account_id] = await _accounts(database, 1, 100)
    await database.write(ledger.hold(account_id, "open", 20))
    real, left = database._writer, [at]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name in {"execute", "fetch", "fetchval"}:
                left[0] -= 1
                if left[0] == 0:
                    real.terminate()
            return getattr(real, name)

    database._writer = Failing()
    batch = database.write(_mix(account_id, Payer("key_a", BUDGET, BUDGET)))
    results = await asyncio.gather(batch, database.write(one("clock")), return_exceptions=True)
    is_booked = isinstance(results[0], int)
    after = await database.read(accounts.by_id(account_id))
    assert (after.posted, after.held) == ((88, 10) if is_booked else (100, 20))
    assert is_booked or isinstance(results[0], errors.StoreFailed)
    assert await database.read(ledger_queries.verify()) == ()


async def test_batch_commits_after_a_database_restart(database: Any, tmp_path: Path) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    [account_id] = await _accounts(database, 1, 100)
    await database.write(ledger_batches.book(holds=[HoldRequest(account_id, "a", 1)]))
    connection: Any = await asyncpg.connect(backends.database_url(tmp_path))
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()
    await database.write(ledger_batches.book(holds=[HoldRequest(account_id, "b", 2)]))
    assert (await database.read(accounts.by_id(account_id))).held == 3


def _charge(account_id: str, hold_id: str, amount: int, captured: int) -> Transaction[None]:
    yield from ledger.hold(account_id, hold_id, amount)
    yield from ledger_batches.capture_all([Capture(account_id, hold_id, captured, captured, ENTRY)])


async def test_captures_of_a_group_are_recorded_in_one_statement(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batched: list[list[int]] = []
    change = StatementBatcher.change

    async def counted(self: StatementBatcher, connection: Any, changes: Any, **options: Any) -> list[int]:
        batched.append([len(each.columns[0]) for each in changes])
        return await change(self, connection, changes, **options)

    [first, second] = await _accounts(database, 2, 100)
    monkeypatch.setattr(StatementBatcher, "change", counted)
    owners = [first, second, first, first, second]
    await asyncio.gather(
        *(database.write(_charge(owner, f"h{n}", 4 + n, 4 + n)) for n, owner in enumerate(owners))
    )
    # Five holds end with five transfers, and each of two accounts and the revenue has one new balance.
    assert batched == [[5, 5, 3]]
    balances = [await database.read(accounts.by_id(account_id)) for account_id in (first, second)]
    assert [(account.posted, account.held) for account in balances] == [(100 - 17, 0), (100 - 13, 0)]
    assert await database.read(ledger_queries.verify()) == ()


async def test_refused_capture_does_not_affect_its_group(database: Any) -> None:
    [account_id] = await _accounts(database, 1, 100)
    jobs = [database.write(_charge(account_id, f"h{n}", 5, 6 if n == 2 else 5)) for n in range(6)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 2 + [ledger.LedgerError] + [type(None)] * 3
    after = await database.read(accounts.by_id(account_id))
    assert (after.posted, after.held) == (75, 0)
    assert await database.read(one("hold_by_id", id="h2")) is None
    assert await database.read(ledger_queries.verify()) == ()


# Runs that have ended, so nothing is queued, leased or held.
_ENDED = """
INSERT INTO account (id, kind, created_at) VALUES ('a', 'customer', 1);
INSERT INTO prediction (id, account_id, request_id, face, model, engine, quality, output_kind, inputs, task,
    fingerprint, origin_id, state, price, credits, created_at)
SELECT 'p' || n, 'a', 'r', 'test', 'm', 'e', 'full', 'json', '{}', '{}', '', 'p' || n, 'succeeded', 1, 1, n
FROM generate_series(1, 3000) AS n;
INSERT INTO hold (id, account_id, amount, state, created_at)
SELECT 'p' || n, 'a', 1, 'captured', n FROM generate_series(1, 3000) AS n;
ANALYZE prediction, hold"""


@pytest.mark.parametrize(
    ("name", "params", "index"),
    [
        (
            "prediction_claim",
            {"state": "running", "holder": "b", "lease": 1, "engine": "e", "limit": 4},
            "prediction_queue",
        ),
        (
            "hold_end_each",
            {"id": "h", "state": "captured", "captured": 1, "account_id": "a", "amount": 1},
            "hold_pkey",
        ),
        ("hold_end", {"id": "h", "state": "captured", "captured": 1}, "hold_pkey"),
        ("prediction_by_job", {"job_id": "j"}, "prediction_job_id_key"),
        ("prediction_by_idempotency", {"idempotency_id": "i"}, "prediction_idempotency_id_key"),
    ],
)
async def test_query_plans_of_an_empty_queue_use_the_indexes(
    database: Any, tmp_path: Path, name: str, params: dict[str, Any], index: str
) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    await database.write(one("clock"))
    statement = sql.queries("postgres")[name]
    bound = database._bind(statement.sql, {**params, "now": 1})
    connection: Any = await asyncpg.connect(backends.database_url(tmp_path))
    await connection.execute(_ENDED)
    rows = await connection.fetch(f"EXPLAIN {bound.text}", *bound.arguments({**params, "now": 1}))
    await connection.close()
    assert any(f"using {index} " in row[0] for row in rows), rows


async def test_missing_keys_are_not_in_unique_indexes(database: Any, tmp_path: Path) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    await database.write(one("clock"))
    connection: Any = await asyncpg.connect(backends.database_url(tmp_path))
    await connection.execute(_ENDED)
    await connection.execute("UPDATE prediction SET job_id = 'job', idempotency_id = 'key' WHERE id = 'p1'")
    sizes = {
        row["relname"]: row["reltuples"]
        for row in await connection.fetch(
            "SELECT relname, reltuples FROM pg_class "
            "WHERE relname IN ('prediction_job_id_key', 'prediction_idempotency_id_key')"
        )
    }
    for change in ("job_id = 'job'", "idempotency_id = 'key'"):
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(f"UPDATE prediction SET {change} WHERE id = 'p2'")  # noqa: S608 - our own values
    await connection.close()
    assert sizes == {"prediction_job_id_key": 0, "prediction_idempotency_id_key": 0}
