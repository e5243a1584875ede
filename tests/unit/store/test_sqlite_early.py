"""What may be seen early: its writer alone waits for the disk, and is told where that fails."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, journal, ledger
from sixfold.core.accounts.ledger import Entry
from sixfold.core.database import Database, many, one
from sixfold.core.relay.requestlog import Call, Ending
from sixfold.core.relay.till import Till
from sixfold.store import sqlite
from sixfold.store.sqlite import SqliteDatabase
from tests import databases

GIFT = Entry("credit", "test")


class Disk:
    """One that takes its time: `free` lets it end, `asked` is set once it was told to flush."""

    def __init__(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()
        self.error: OSError | None = None
        self.flushed = 0
        self._flush = sqlite._sync

    def __call__(self, file: int) -> None:
        """Flush, when it may."""
        self.asked.set()
        assert self.free.wait(30)
        if self.error is not None:
            raise self.error
        self._flush(file)
        self.flushed += 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    slow = Disk()
    monkeypatch.setattr(sqlite, "_sync", slow)
    return slow


@pytest.fixture
async def database(tmp_path: Path, disk: Disk) -> AsyncIterator[Database]:
    async with databases.on("sqlite", tmp_path) as opened:
        yield opened
        disk.free.set()


async def _posted(database: Database, account_id: str) -> int:
    row: Any = await database.read(one("account_by_id", id=account_id))
    return int(row["posted"])


async def test_others_see_it_and_write_on_while_its_writer_waits_for_the_disk(
    database: Database, disk: Disk
) -> None:
    account_id = (await database.write(accounts.create("a@example.com"))).id
    writing = asyncio.create_task(database.write(ledger.deposit(account_id, 5, GIFT), early=True))
    assert await asyncio.to_thread(disk.asked.wait, 30)
    assert await _posted(database, account_id) == 5
    await database.write(ledger.deposit(account_id, 2, GIFT), durable=False)
    await database.write(ledger.deposit(account_id, 1, GIFT))
    assert await _posted(database, account_id) == 8
    assert not writing.done()
    disk.free.set()
    await writing
    assert disk.flushed == 1


async def test_it_stands_where_the_disk_refuses_it_and_its_writer_is_told(
    database: Database, disk: Disk
) -> None:
    account_id = (await database.write(accounts.create("a@example.com"))).id
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.free.set()
    with pytest.raises(errors.StoreFailed):
        await database.write(ledger.deposit(account_id, 5, GIFT), early=True)
    disk.error = None
    await database.write(ledger.deposit(account_id, 5, GIFT), early=True)
    assert await _posted(database, account_id) == 10
    assert await database.read(journal.verify()) == ()


async def test_what_is_refused_needs_no_disk(database: Database, disk: Disk) -> None:
    with pytest.raises(errors.InsufficientCredits):
        await database.write(ledger.hold("nobody", "hold_a", 5), early=True)
    assert not disk.asked.is_set()


async def test_closing_waits_for_those_who_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    async with databases.on("sqlite", tmp_path) as database:
        writing = asyncio.create_task(database.write(accounts.create("a@example.com"), early=True))
        assert await asyncio.to_thread(disk.asked.wait, 30)
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        assert not closing.done()
        disk.free.set()
        assert (await writing).id.startswith("acct_")
        await closing


async def test_a_database_in_memory_has_no_disk_to_wait_for(disk: Disk) -> None:
    database = SqliteDatabase(":memory:")
    await database.write(accounts.create("a@example.com"), early=True)
    await database.close()
    assert not disk.asked.is_set()


def _call(account_id: str) -> Call:
    return Call(ids.new("req"), account_id, None, "chat", "m", "s/m", streamed=False, held=10)


async def test_a_call_begins_while_another_that_has_ended_waits_for_the_disk(
    database: Database, disk: Disk
) -> None:
    account_id = (await database.write(accounts.create("a@example.com", credit=100))).id
    till, first, second = Till(database), _call(account_id), _call(account_id)
    await till.begin(first, None)
    ended = till.end(first, Ending("succeeded", cost=3))
    assert await asyncio.to_thread(disk.asked.wait, 30)
    await till.begin(second, None)
    assert not ended.done()
    disk.free.set()
    await ended
    assert await _posted(database, account_id) == 97


async def test_a_beginning_that_is_being_booked_for_nobody_is_ended_once_it_is(
    database: Database, disk: Disk
) -> None:
    account_id = (await database.write(accounts.create("a@example.com", credit=25))).id
    till, free = Till(database), threading.Event()
    disk.free.set()

    def holds_up() -> Any:
        assert free.wait(30)
        return (yield from many("relay_orphans", holder="", before=0))

    held_up = asyncio.create_task(database.write(holds_up()))
    calls = [_call(account_id) for _ in range(3)]  # one too many: they are booked apart, after all together
    beginning = [asyncio.create_task(till.begin(call, None)) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)  # the writer has them
    for task in beginning:
        task.cancel()
    await asyncio.wait(beginning)
    free.set()
    await held_up
    await till.drain()
    row: Any = await database.read(one("account_by_id", id=account_id))
    assert (row["posted"], row["held"]) == (25, 0)
    page = await database.read(
        many(
            "relay_page",
            account_id=account_id,
            before="~",
            model="",
            state="failed",
            key_id="",
            pattern="%",
            limit=9,
        )
    )
    assert [row["error"] for row in page] == ["Nobody waited"] * 2
    assert await database.read(journal.verify()) == ()
