"""PostgreSQL beyond the contract: group commit, restarts, several servers, and shared SQL texts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_queries
from sixfold.core.database import Query, Transaction, TransactionConflict, one
from sixfold.store import sql
from sixfold.store.postgres import connection, readers
from tests.harness import backends, databases, postgres
from tests.harness.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
ENTRY = ledger.LedgerEntry("charge", "test")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Any]:
    async with databases.running_database("postgres", tmp_path) as opened_database:
        yield opened_database


async def _sessions_end(folder: Path) -> None:
    """End all sessions, as a restart of PostgreSQL does."""
    import asyncpg  # noqa: PLC0415 - an extra

    admin = await asyncpg.connect(backends.database_url(folder))
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await admin.close()


async def _sessions(folder: Path, query: str = "%") -> int:
    """Return the number of other sessions in the folder's database whose query is like `query`."""
    import asyncpg  # noqa: PLC0415 - an extra

    admin = await asyncpg.connect(backends.database_url(folder))
    count = await admin.fetchval(
        "SELECT COUNT(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE $1",
        query,
    )
    await admin.close()
    return int(count)


def _spend(account_id: str, hold_id: str, amount: int) -> Transaction[None]:
    yield from ledger.hold(account_id, hold_id, amount)
    yield from ledger.capture(hold_id, amount, ENTRY)


# -- groups ----------------------------------------------------------------------------------------


async def test_holds_are_in_order_and_a_refused_one_blocks_none(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=100))
    dice = random.Random(7)  # noqa: S311 - for a test
    amounts = [dice.choice((1, 2, 30, 70)) for _ in range(60)]
    left, expected = 100, list[bool]()
    for amount in amounts:
        expected.append(amount <= left)
        left -= amount if amount <= left else 0
    jobs = [database.write(_spend(account.id, f"h{number}", amount)) for number, amount in enumerate(amounts)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [result is None for result in results] == expected
    assert {type(result) for result in results} == {type(None), errors.InsufficientCredits}
    after = await database.read(accounts.by_id(account.id))
    assert (after.posted, after.held) == (left, 0)
    assert await database.read(ledger_queries.verify()) == ()


async def test_constraint_violation_fails_one_request_of_a_group(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))
    # Each name occurs twice.
    names = [f"h{number % 25}" for number in range(50)]
    jobs = [database.write(ledger.hold(account.id, name, 1)) for name in names]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 25 + [TransactionConflict] * 25
    after = await database.read(accounts.by_id(account.id))
    assert (after.posted, after.held) == (1000, 25)
    assert await database.read(ledger_queries.verify()) == ()


async def test_failed_transaction_of_a_group_is_rolled_back_alone(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))

    def half(name: str, *, fail: bool) -> Transaction[str]:
        yield from ledger.hold(account.id, name, 10)
        if fail:
            raise ValueError(name)
        return name

    jobs = [database.write(half(f"h{number}", fail=number % 5 == 0)) for number in range(40)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [n % 5 == 0 for n in range(40)]
    assert (await database.read(accounts.by_id(account.id))).held == 320
    assert await database.read(ledger_queries.verify()) == ()


async def test_caught_conflict_keeps_earlier_statements(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))

    def again(name: str) -> Transaction[str]:
        yield from ledger.hold(account.id, name, 10)
        try:
            same = {"id": name, "account_id": account.id, "amount": 10, "key_id": None, "about": None}
            yield Query("hold_insert", same)
        except TransactionConflict as conflict:
            yield from ledger.release(name)
            return str(conflict)
        return "not seen"

    jobs = [database.write(again(f"h{number}")) for number in range(10)]
    assert await asyncio.gather(*jobs) == ["hold_pkey"] * 10
    assert (await database.read(accounts.by_id(account.id))).held == 0
    assert await database.read(ledger_queries.verify()) == ()


async def test_value_out_of_range_fails_its_request_alone(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))
    amounts = [1, 2**70, 1, 1]
    jobs = [
        database.write(ledger.hold(account.id, f"h{number}", amount)) for number, amount in enumerate(amounts)
    ]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [result is None for result in results] == [True, False, True, True]
    assert (await database.read(accounts.by_id(account.id))).held == 3


async def test_unknown_query_rolls_back_its_own_hold_alone(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=1000))

    def wrong(name: str) -> Transaction[None]:
        yield from ledger.hold(account.id, name, 10)
        yield Query("no_such_query", {})

    jobs = [database.write(ledger.hold(account.id, "a", 1)), database.write(wrong("b"))]
    jobs.append(database.write(ledger.hold(account.id, "c", 2)))
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), KeyError, type(None)]
    assert (await database.read(accounts.by_id(account.id))).held == 3


async def test_an_unknown_query_fails_its_request_alone(database: Any) -> None:
    jobs = [database.write(one("no_such_query")), database.write(accounts.create("a@example.com"))]
    first, second = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(first, KeyError)
    assert isinstance(second, accounts.Account)


# -- restarts --------------------------------------------------------------------------------------


async def test_reads_without_a_snapshot_continue_after_a_restart(database: Any, tmp_path: Path) -> None:
    account = await database.write(accounts.create("reader@example.com", credit=10))
    for _ in range(2):
        result = await asyncio.gather(
            *(database.read(accounts.by_id(account.id), snapshot=False) for _ in range(20))
        )
        assert [each.posted for each in result] == [10] * 20
        await _sessions_end(tmp_path)


async def test_idle_readers_are_closed(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(database.read(one("clock")) for _ in range(20)))
    assert await _sessions(tmp_path) == 8 + 1
    monkeypatch.setattr(readers, "IDLE_SECONDS", -1)
    for _ in range(20):
        await database.read(one("clock"), snapshot=False)
    assert await _sessions(tmp_path) == 2 + 1


async def test_reads_and_writes_continue_after_a_restart(database: Any, tmp_path: Path) -> None:
    account = await database.write(accounts.create("a@example.com", credit=10))
    assert (await database.read(accounts.by_id(account.id))).posted == 10
    await _sessions_end(tmp_path)
    await database.write(ledger.hold(account.id, "h", 3))
    assert (await database.read(accounts.by_id(account.id))).held == 3


async def test_read_continues_if_its_session_ends_before_its_query(database: Any, tmp_path: Path) -> None:
    account = await database.write(accounts.create("a@example.com", credit=10))

    def read() -> Transaction[int]:
        # The transaction has begun.
        postgres.apart(_sessions_end(tmp_path))
        return (yield from accounts.by_id(account.id)).posted

    assert await database.read(read()) == 10
    assert (await database.read(accounts.by_id(account.id))).posted == 10


async def test_transaction_is_refused_whole_when_the_server_ends(database: Any, tmp_path: Path) -> None:
    account = await database.write(accounts.create("a@example.com", credit=10))

    ending: list[asyncio.Task[None]] = []

    def cut() -> Transaction[None]:
        yield from ledger.hold(account.id, "h", 3)
        ending.append(asyncio.ensure_future(_sessions_end(tmp_path)))
        # The event loop runs once for each round trip.
        while not ending[0].done():
            yield Query("clock", {})

    with pytest.raises(errors.StoreFailed):
        await database.write(cut())
    await ending[0]
    assert (await database.read(accounts.by_id(account.id))).held == 0
    await database.write(ledger.hold(account.id, "h", 4))
    assert (await database.read(accounts.by_id(account.id))).held == 4
    assert await database.read(ledger_queries.verify()) == ()


async def test_cancelled_connect_closes_its_session(tmp_path: Path) -> None:
    url = backends.database_url(tmp_path, "postgres")
    # The settings of the session take a second, in which the connecting is cancelled.
    connecting = asyncio.create_task(connection.connect(url, application_name="a'; SELECT pg_sleep(1), 'b"))
    await wait_until(lambda: _sessions(tmp_path, "%pg_sleep%"), 30)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError) as error:
        await connecting
    async with asyncio.timeout(30):
        while await _sessions(tmp_path):  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
    # Its traceback refers to the connection, which the garbage collector would close.
    del error


@pytest.mark.parametrize("at", range(1, 16))
async def test_connection_loss_at_any_statement_keeps_the_ledger_valid(at: int, database: Any) -> None:
    account = await database.write(accounts.create("a@example.com", credit=100))
    await database.write(ledger.hold(account.id, "warm", 1))
    real, left = database._writer, [at]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name in {"execute", "fetch", "fetchval"}:
                left[0] -= 1
                if left[0] == 0:
                    real.terminate()
            return getattr(real, name)

    database._writer = Failing()
    jobs = [database.write(_spend(account.id, f"h{number}", 10)) for number in range(3)]
    jobs.append(database.write(ledger.release("warm")))
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), errors.StoreFailed}
    after = await database.read(accounts.by_id(account.id))
    spent = sum(result is None for result in results[:3])
    assert (after.posted, after.held) == (100 - 10 * spent, 0 if results[3] is None else 1)
    assert await database.read(ledger_queries.verify()) == ()


async def test_unreachable_server_error_hides_the_password(tmp_path: Path) -> None:
    (tmp_path / "database.url").write_text("postgresql://me:geheim@127.0.0.1:9/shop")
    async with databases.running_database(None, tmp_path) as nowhere:
        for attempt in (nowhere.write(one("clock")), nowhere.read(one("clock"))):
            with pytest.raises(
                errors.StoreFailed, match=r"postgresql://127\.0\.0\.1:9/shop cannot be"
            ) as excinfo:
                await attempt
            assert "geheim" not in str(excinfo.value)


async def test_lost_database_error_hides_its_address(database: Any, tmp_path: Path) -> None:
    await database.write(accounts.create("a@example.com"))
    database._url = database._readers._url = "postgresql://127.0.0.1:9/shop"
    await _sessions_end(tmp_path)
    for attempt in (database.write(one("clock")), database.read(one("clock"))):
        with pytest.raises(errors.StoreFailed) as excinfo:
            await attempt
        assert "127.0.0.1" not in excinfo.value.message


# -- several servers -------------------------------------------------------------------------------


async def test_concurrent_writes_of_two_servers_have_correct_sums(tmp_path: Path) -> None:
    async with (
        databases.running_database("postgres", tmp_path) as first,
        databases.running_database(None, tmp_path) as second,
    ):
        account = await first.write(accounts.create("a@example.com", credit=100))
        jobs = [
            server.write(_spend(account.id, f"{name}{number}", 3))
            for number in range(40)
            for name, server in (("a", first), ("b", second))
        ]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert sum(result is None for result in results) == 33
        assert (await second.read(accounts.by_id(account.id))).posted == 1
        assert await first.read(ledger_queries.verify()) == ()


async def test_servers_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    url = backends.database_url(tmp_path, "postgres")
    keeper = databases.keeper(url, tmp_path)
    keeper.migrate(0)
    servers = [databases.open_database(tmp_path) for _ in range(4)]
    result = await asyncio.gather(*(server.read(one("account_by_id", id="world")) for server in servers))
    assert all(row is not None for row in result)
    assert keeper.schema() == sql.latest("postgres")
    await asyncio.gather(*(server.close() for server in servers))


# -- one SQL for two databases ---------------------------------------------------------------------


async def test_nul_in_a_text_is_stored_as_a_replacement_character(database: Any) -> None:
    account = await database.write(accounts.create("a@example.com"))
    await database.write(accounts.set_password_hash(account.id, "a\0b"))
    assert (await database.read(accounts.by_id(account.id))).password_hash == "a\ufffdb"


def test_both_databases_have_the_same_migrations() -> None:
    names = [
        [(step.number, step.name) for step in sql.migrations(dialect)] for dialect in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]


def test_both_databases_have_the_same_tables_and_columns(tmp_path: Path) -> None:
    results: list[dict[str, tuple[str, ...]]] = []
    for backend in backends.DATABASES:
        folder = tmp_path / backend
        folder.mkdir()
        url = backends.database_url(folder, backend)
        databases.keeper(url, folder).migrate(sql.latest(backend))
        with databases.snapshot(url, folder) as reader:
            results.append({name: tuple(sorted(columns)) for name, columns in reader.tables()})
    assert results[0] == results[1]
