"""One SQLite file with several writing processes: exact sums, change events, process exits."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.database import many, one
from sixfold.store.process_channel import ProcessChannel
from sixfold.store.sqlite import shared
from sixfold.store.sqlite.shared import SharedSqliteDatabase

_WRITES, _PROCESSES = 200, 3
_CHILD = """
import asyncio, pathlib, sys
from sixfold.core.accounts import ledger
from sixfold.store.process_channel import ProcessChannel
from sixfold.store.sqlite.shared import SharedSqliteDatabase
async def main(folder, account, writes):
    channel = ProcessChannel(folder / "processes")
    channel.open(sys.argv[4])
    database = SharedSqliteDatabase(folder / "sixfold.db", channel)
    entry = ledger.LedgerEntry("deposit", "test")
    deposits = (ledger.deposit(account, 1, entry) for _ in range(writes))
    await asyncio.gather(*map(database.write, deposits))
    await database.close()
    channel.close()
asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


@asynccontextmanager
async def open_database(folder: Path, name: str) -> AsyncIterator[SharedSqliteDatabase]:
    channel = ProcessChannel(folder / "processes")
    channel.open(name)
    database = SharedSqliteDatabase(folder / "sixfold.db", channel)
    try:
        yield database
    finally:
        await database.close()
        channel.close()


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    async with open_database(tmp_path, "parent") as database:
        account = await database.write(accounts.create("a@example.com", credit=0))
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", _CHILD, str(tmp_path), account.id, str(_WRITES), f"child-{number}"
            )
            for number in range(_PROCESSES)
        ]
        assert [await child.wait() for child in children] == [0] * _PROCESSES
        row = await database.read(one("account_by_id", id=account.id))
        assert row is not None
        assert row["posted"] == _WRITES * _PROCESSES
        assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("name", ["first", "second", "unknown"])
async def test_server_lives_while_its_process_does(tmp_path: Path, name: str) -> None:
    living = many("servers_living", boots='["first", "second", "unknown"]', own="first")
    async with open_database(tmp_path, "first") as first:
        async with open_database(tmp_path, "second"):
            boots = {row["boot"] for row in await first.read(living)}
            assert (name in boots) is (name != "unknown")
        rows = await first.read(many("servers_living", boots='["second"]', own="first"))
        assert list(rows) == []


async def test_write_fails_when_the_lock_file_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database(tmp_path, "only") as database:

        def refuse(*_arguments: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        with monkeypatch.context() as patched:
            patched.setattr(shared.fcntl, "flock", refuse)
            with pytest.raises(errors.StoreFailed):
                await database.write(accounts.create("a@example.com"))
        assert (await database.write(accounts.create("a@example.com"))).email == "a@example.com"


async def test_write_waits_for_another_process_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database(tmp_path, "only") as database:
        with (tmp_path / "sixfold.db.lock").open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with monkeypatch.context() as patched:
                patched.setattr(shared, "BUSY_MS", 10)
                writes = [database.write(accounts.create(f"{name}@example.com")) for name in "ab"]
                ends = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(end) for end in ends] == [errors.StoreFailed] * 2
            pending_task = asyncio.create_task(database.write(accounts.create("a@example.com")))
            fcntl.flock(other, fcntl.LOCK_UN)
            assert (await pending_task).email == "a@example.com"
        assert (await database.write(accounts.create("b@example.com"))).email == "b@example.com"
