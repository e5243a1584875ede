"""Contract of every Database: atomic, isolated, durable if requested, and exact about failure."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts, audit_log, ledger, ledger_batches, ledger_queries
from sixfold.core.database import Database, Query, Transaction, TransactionConflict, Value, many, now, one
from tests.harness import databases


@pytest.fixture(params=databases.BACKENDS)
def opener(request: pytest.FixtureRequest) -> databases.Opener:
    return databases.OPENERS[request.param]


@pytest.fixture
async def database(opener: databases.Opener, tmp_path: Path) -> AsyncIterator[Database]:
    async with opener(tmp_path, None) as opened_database:
        yield opened_database


def _audit(number: int) -> Query:
    return Query("audit_insert", {"id": f"a{number}", "account_id": None, "action": "t", "detail": ""})


def _write(*numbers: int, fail: bool = False) -> Transaction[int]:
    for number in numbers:
        yield _audit(number)
    if fail:
        raise RuntimeError("no")
    return len(numbers)


def _balance(account_id: str) -> Transaction[int]:
    row = yield from one("account_by_id", id=account_id)
    assert row is not None
    return int(row["posted"])


async def test_write_returns_the_value_of_its_transaction(database: Database) -> None:
    assert await database.write(_write(1, 2)) == 2


async def test_read_sees_a_committed_write(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", credit=5))
    assert await database.read(_balance(account.id)) == 5


async def test_report_runs_in_a_thread_and_sees_committed_writes(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", credit=5))
    threads: list[int] = []

    def report(*, fail: bool = False) -> Transaction[int]:
        threads.append(threading.get_ident())
        balance = yield from _balance(account.id)
        threads.append(threading.get_ident())
        if fail:
            raise RuntimeError("no")
        return balance

    assert await database.read(report(), in_thread=True) == 5
    with pytest.raises(RuntimeError, match="no"):
        await database.read(report(fail=True), in_thread=True)
    assert len(threads) == 4
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("size", [100, 2**20 + 1])
async def test_large_row_is_read_outside_the_event_loop(
    database: Database, opener: databases.Opener, size: int
) -> None:
    account = await database.write(accounts.create("a@example.com", credit=5))
    page: dict[str, Value] = {"account_id": account.id, "limit": 1, "bytes": 1}
    await database.write(audit_log.note(account.id, "test", "x" * size))
    first = await database.read(one("export_audit", after="", **page))
    assert first is not None
    # The ids of entries of the same millisecond have any order.
    after = "" if first["action"] == "test" else str(first["id"])
    threads: list[int] = []

    def read() -> Transaction[int]:
        yield from now()
        threads.append(threading.get_ident())
        row = yield from one("export_audit", after=after, **page)
        threads.append(threading.get_ident())
        assert row is not None
        return len(row["detail"])

    loop, is_sqlite = threading.get_ident(), opener is databases.OPENERS["sqlite"]
    for snapshot in (False, True, False):
        threads.clear()
        assert await database.read(read(), snapshot=snapshot) == size
        assert threads[0] == loop
        assert (threads[1] != loop) == (is_sqlite and size > 2**20 and not snapshot)


async def test_large_row_does_not_wait_for_a_report(database: Database, opener: databases.Opener) -> None:
    """On PostgreSQL, only the code of a transaction runs in a thread, but not its statements."""
    account = await database.write(accounts.create("a@example.com", credit=5))
    await database.write(audit_log.note(account.id, "test", "x" * (2**20 + 1)))
    begun, release = threading.Event(), threading.Event()

    def report() -> Transaction[bool]:
        yield from now()
        begun.set()
        return release.wait(60)

    def rows() -> Transaction[int]:
        found = yield from many("export_audit", account_id=account.id, after="", limit=9, bytes=2**30)
        return len(found)

    reporting = asyncio.create_task(database.read(report(), in_thread=True))
    assert await asyncio.to_thread(begun.wait, 60)
    try:
        async with asyncio.timeout(60):
            for in_thread in {False, opener is databases.OPENERS["sqlite"]}:
                assert await database.read(rows(), snapshot=False, in_thread=in_thread) > 0
        assert not reporting.done()
    finally:
        release.set()
    assert await reporting


async def test_failed_transaction_is_rolled_back(database: Database) -> None:
    with pytest.raises(RuntimeError, match="no"):
        await database.write(_write(1, 2, fail=True))
    assert await database.write(_write(1, 2)) == 2


async def test_failed_transaction_does_not_affect_concurrent_ones(database: Database) -> None:
    jobs = [database.write(_write(number, fail=number % 3 == 0)) for number in range(90)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [isinstance(result, RuntimeError) for result in results] == [n % 3 == 0 for n in range(90)]
    assert await database.write(_write(*range(0, 90, 3))) == 30


async def test_constraint_violation_is_a_catchable_conflict(database: Database) -> None:
    def twice() -> Transaction[str]:
        yield _audit(1)
        try:
            yield _audit(1)
        except TransactionConflict:
            return "caught"
        return "not seen"

    with pytest.raises(TransactionConflict):
        await database.write(_write(7, 7))
    assert await database.write(twice()) == "caught"


async def test_query_runs_per_parameter_and_returns_change_counts(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com", credit=50))
    holds = [ledger_batches.HoldRequest(account.id, f"hold{number}", number) for number in (1, 2, 3)]
    assert await database.write(ledger_batches.book(holds=holds)) > 0

    def end(*names: str) -> Transaction[int]:
        same = {"account_id": account.id, "state": "released", "captured": 0}
        response = yield Query(
            "hold_end_each", {}, [{"id": f"hold{n}", "amount": int(n), **same} for n in names]
        )
        return int(response[0]["changed"])

    assert await database.write(end("1", "7", "3")) == 2
    assert await database.write(end("1", "2", "3")) == 1


async def test_conflict_rolls_back_its_own_transaction_only(database: Database) -> None:
    def many_audits() -> Transaction[None]:
        yield _audit(1)
        yield Query("audit_insert", {}, [_audit(number).params for number in (2, 3, 2)])

    results = await asyncio.gather(
        database.write(_write(8)),
        database.write(many_audits()),
        database.write(_write(9)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, TransactionConflict, int]
    assert await database.write(_write(1, 2, 3)) == 3


async def test_committed_data_survives_reopening(opener: databases.Opener, tmp_path: Path) -> None:
    async with opener(tmp_path, None) as first:
        account = await first.write(accounts.create("a@example.com", credit=9))
    async with opener(tmp_path, None) as second:
        assert await second.read(_balance(account.id)) == 9


async def test_close_completes_accepted_writes(opener: databases.Opener, tmp_path: Path) -> None:
    async with opener(tmp_path, None) as first:
        pending = [asyncio.ensure_future(first.write(_write(number))) for number in range(50)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*pending) == [1] * 50


async def test_the_clock_of_the_database_is_bound_to_every_query(
    opener: databases.Opener, tmp_path: Path
) -> None:
    async with opener(tmp_path, lambda: 1_234_567) as database:
        row = await database.read(one("clock"))
        assert row is not None
        assert row["now"] == 1_234_567


def _moments(number: int) -> Transaction[list[int]]:
    """Return the times that a transaction with writes reads repeatedly."""
    messages = [(yield from now())]
    yield _audit(number)
    return [*messages, (yield from now()), (yield from now())]


async def test_each_transaction_of_a_group_commit_has_its_own_time(
    opener: databases.Opener, tmp_path: Path
) -> None:
    clock = itertools.count(5)
    async with opener(tmp_path, lambda: next(clock)) as database:
        response = await asyncio.gather(*(database.write(_moments(number)) for number in range(40)))
        later = await database.write(_moments(40))
    assert [len(set(moments)) for moments in response] == [1] * 40
    assert [moments[0] for moments in response] == sorted({moments[0] for moments in response})
    assert later[0] > response[-1][0]


async def test_reads_on_one_snapshot_have_one_time(database: Database) -> None:
    def twice() -> Transaction[tuple[int, int]]:
        first = yield from now()
        yield from ledger_queries.verify()
        return first, (yield from now())

    first, second = await database.read(twice())
    assert first == second
    assert (await database.read(twice()))[0] > first


async def test_holds_of_one_group_have_their_own_times(opener: databases.Opener, tmp_path: Path) -> None:
    """PostgreSQL runs them together, with one statement for all."""
    clock = itertools.count(1)
    async with opener(tmp_path, lambda: next(clock)) as database:
        account = await database.write(accounts.create("a@example.com", credit=50))
        names = [f"h{number}" for number in range(10)]
        await asyncio.gather(*(database.write(ledger.hold(account.id, name, 1)) for name in names))
        transactions = [many("hold_end", id=name, state="released", captured=0) for name in names]
        results = [(await database.write(ending))[0]["created_at"] for ending in transactions]
    assert results == sorted(set(results))


async def test_concurrent_deposits_are_all_recorded(database: Database) -> None:
    account = await database.write(accounts.create("a@example.com"))
    entry = ledger.LedgerEntry("credit", "test")
    await asyncio.gather(*(database.write(ledger.deposit(account.id, 3, entry)) for _ in range(200)))
    assert await database.read(_balance(account.id)) == 600
    assert await database.read(ledger_queries.verify()) == ()


async def test_text_in_any_script_is_returned_unchanged(database: Database) -> None:
    text = "Grüße 日本語 \U0001f3a8 'quoted' -- ; DROP TABLE account \x01"
    await database.write(one("idempotency_insert", id=text, body_hash=b"\x00\xff", boot="b"))
    row = await database.read(one("idempotency_get", id=text))
    assert row is not None
    assert (row["id"], bytes(row["body_hash"])) == (text, b"\x00\xff")


async def test_deposit_debits_the_world_account(database: Database) -> None:
    await database.write(accounts.create("a@example.com", credit=5))
    rows = await database.read(
        many("ledger_page", account_id="world", before_at=2**62, before_id="", limit=5)
    )
    assert [row["amount"] for row in rows] == [-5]
    assert await database.read(_balance("world")) == -5
