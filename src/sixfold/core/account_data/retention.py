"""Retention: records are deleted some days after they were created, by one server at a time and in batches.

The `[retention]` table of the configuration sets the number of days, also for single accounts. Unfinished
runs are kept until they end, a training is kept as long as its model, and a shared run is kept until the
share ends. If `archive` is set, records are archived in the transaction that deletes them. Charges stay in
the ledger, unless `ledger_days` archives them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.account_data import record_kinds
from sixfold.core.account_data.archive import ledger
from sixfold.core.account_data.archive.ledger import LedgerArchive
from sixfold.core.account_data.archive.segments import SegmentDamaged, SegmentLine
from sixfold.core.account_data.archive.writer import ArchiveWriter, SegmentPlan
from sixfold.core.account_data.record_kinds import RecordKind
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Database, Row, Transaction, many, now, one

MAX_DAYS = 36_500
# Reports of usage cover a year, so the ledger must keep more than a year.
MIN_LEDGER_DAYS = 400
_PASS_SECONDS, _WAIT_SECONDS = 3600, 60
# A pass continues where the previous one ended, but every 24th pass checks all records again.
_FULL_PASS = 24
# Rows that are read together, and the pause after each read, in which other transactions run.
BATCH, _PAUSE_SECONDS = 200, 0.02
# Records that are read together for a segment, and the bytes after which the segment ends.
_READ, _SEGMENT_BYTES = 20, 4 << 20
_LEASE, _LEASE_US = "retention", 300 * SECOND_US
_LOG = logging.getLogger("sixfold.retention")
_Days = Mapping[str, int]
_SETTINGS = {f"{kind}_days": kind for kind in record_kinds.KINDS}


class SweepLeaseLost(Exception):
    """Another server has taken the lease of the sweep."""


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The number of days to keep each kind of record; 0 keeps records forever.

    `accounts` overrides it for single accounts, by e-mail address.
    """

    days: _Days = {}
    accounts: Mapping[str, _Days] = {}
    ledger_days: int = 0
    archive: bool = False

    def __bool__(self) -> bool:
        tables = (self.days, *self.accounts.values())
        return bool(self.ledger_days) or any(days for table in tables for days in table.values())


def policy(table: Mapping[str, Any]) -> RetentionPolicy:
    """Parse the `[retention]` table; raises `ValueError` with a one-line message that names the setting."""
    general = dict(table)
    accounts = general.pop("accounts", {})
    archive, ledger_days = general.pop("archive", False), general.pop("ledger_days", 0)
    if not isinstance(accounts, dict):
        raise ValueError("[retention.accounts] must be a table")  # noqa: TRY004 - all that is wrong here is a ValueError
    if not isinstance(archive, bool):
        raise ValueError(f"[retention] archive must be true or false (got {archive!r})")  # noqa: TRY004 - as above
    _check("[retention] ledger_days", ledger_days)
    if 0 < ledger_days < MIN_LEDGER_DAYS:
        raise ValueError(
            f"[retention] ledger_days must be 0 or at least {MIN_LEDGER_DAYS} (got {ledger_days}), because "
            "reports show the charges of a year"
        )
    rows = cast("dict[str, Any]", accounts).items()
    return RetentionPolicy(
        _days("[retention]", general, ("ledger_days", "archive", "accounts")),
        {email: _days(f'[retention.accounts] "{email}"', row) for email, row in rows},
        ledger_days,
        archive,
    )


def _days(where: str, table: Any, others: Sequence[str] = ()) -> _Days:
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table, for example {{ predictions_days = 90 }}")  # noqa: TRY004 - as above
    for name, value in cast("dict[str, Any]", table).items():
        if name not in _SETTINGS:
            # All names end with the same word, so that a similar name would be misleading.
            allowed = ", ".join((*_SETTINGS, *others))
            raise ValueError(f"{where} has an unknown setting {name!r}: use {allowed}")
        _check(f"{where} {name}", value)
    return {_SETTINGS[name]: value for name, value in cast("dict[str, int]", table).items()}


def _check(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DAYS:
        raise ValueError(f"{where} must be a whole number from 0 to {MAX_DAYS} (got {value!r})")


class Retention:
    """Deletes and archives expired records; `removed` counts them by kind."""

    def __init__(self, writer: ArchiveWriter, policy: RetentionPolicy, boot: str) -> None:
        self._database: Database = writer.database
        self._policy = policy
        self.writer = writer
        self._ledger = LedgerArchive(writer)
        self._holder = boot
        # By kind: the time before which all records that may be deleted are deleted.
        self._done: dict[str, int] = {}
        self._passes = 0
        self.removed: Counter[str] = Counter(dict.fromkeys((*record_kinds.KINDS, "ledger", "holds"), 0))

    async def run(self) -> None:
        """Delete expired records once an hour and erase accounts every minute; failures are retried."""
        waited = _PASS_SECONDS
        while True:
            try:
                await self._erase()
                if waited >= _PASS_SECONDS:
                    await self._delete()
                    waited = 0
            except (errors.StoreFailed, OSError, KeyError, SegmentDamaged) as error:
                _LOG.warning("expired records could not be deleted: %s", error)
            except SweepLeaseLost:
                _LOG.info("another server is deleting expired records")
            await asyncio.sleep(_WAIT_SECONDS)
            waited += _WAIT_SECONDS

    async def _erase(self) -> None:
        if not await self._database.read(_work()):
            return
        if erased := await self.erase():
            _LOG.info("erased %d records from the archive", erased)

    async def _delete(self) -> None:
        if not self._policy:
            return
        deleted = await self.sweep(await self._database.read(now()))
        if any(deleted.values()):
            counts = ", ".join(f"{count} {kind}" for kind, count in deleted.items() if count)
            _LOG.info("deleted records that were older than the limits in [retention]: %s", counts)

    @asynccontextmanager
    async def _lease(self) -> AsyncGenerator[None]:
        """Hold the lease of the sweep; raises `SweepLeaseLost` if another server holds it."""
        await self.keep_lease()
        try:
            yield
        finally:
            await self._database.write(many("sweep_lease_end", name=_LEASE, holder=self._holder))

    async def keep_lease(self) -> None:
        """Acquire or renew the lease; raises `SweepLeaseLost`."""
        lease = many("sweep_lease_take", name=_LEASE, holder=self._holder, length=_LEASE_US)
        if not await self._database.write(lease, durable=False):
            raise SweepLeaseLost

    async def erase(self) -> int:
        """Erase the records of erased accounts from the archive, and delete replaced files.

        Return the number of erased records.
        """
        async with self._lease():
            await self.writer.discard_staged()
            return await self.writer.erase()

    async def sweep(self, time_us: int) -> Mapping[str, int]:
        """Delete all records that have expired at a time (epoch µs); return their number by kind."""
        async with self._lease():
            await self.writer.discard_staged()
            return await self._sweep(time_us)

    async def _sweep(self, time_us: int) -> Mapping[str, int]:
        if self._passes % _FULL_PASS == 0:
            self._done.clear()
            self._ledger.restart()
        accounts = await self._accounts()
        deleted = {
            kind: await self._sweep_kind(kind, records, accounts, time_us)
            for kind, records in record_kinds.KINDS.items()
        }
        if self._policy.ledger_days:
            deleted |= await self._sweep_ledger(time_us - self._policy.ledger_days * DAY_US)
        self._passes += 1
        return deleted

    async def _accounts(self) -> Mapping[str, _Days]:
        accounts: dict[str, _Days] = {}
        for email, days in self._policy.accounts.items():
            row = await self._database.read(one("account_by_email", email=email))
            if row is None:
                _LOG.warning("[retention.accounts] %s is not an account of this server", email)
            else:
                accounts[str(row["id"])] = days
        return accounts

    async def _sweep_kind(
        self, kind: str, records: RecordKind, accounts: Mapping[str, _Days], time_us: int
    ) -> int:
        general = self._policy.days.get(kind, 0)
        by_account = {account: days.get(kind, general) for account, days in accounts.items()}
        limits = [days for days in (general, *by_account.values()) if days]
        if not limits:
            return 0
        # Times before which records have expired, by the account's number of days.
        bounds = {days: time_us - days * DAY_US for days in limits}
        total = 0
        for prefix in records.prefixes:
            batch = _Batch(self, kind, records)
            async for row in self._rows(records, prefix, self._done.get(kind, 0), max(bounds.values())):
                bound = bounds.get(by_account.get(row["account_id"], general), 0)
                if row["due"] and row["id"] < ids.earliest(prefix, bound):
                    overdue = row["id"] < ids.earliest(prefix, max(bound - DAY_US, 0))
                    await batch.add(str(row["id"]), overdue=overdue)
            total += await batch.end()
        # A batch that is not full waits for a day.
        self._done[kind] = max(min(bounds.values()) - DAY_US, 0)
        return total

    async def _rows(self, records: RecordKind, prefix: str, since: int, until: int) -> AsyncIterator[Row]:
        after, before = ids.earliest(prefix, since), ids.earliest(prefix, max(until, 0))
        page = {"before": before, "limit": BATCH}
        while rows := await self._database.read(many(records.query, after=after, **page)):
            for row in rows:
                yield row
            after = str(rows[-1]["id"])
            await self.keep_lease()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _sweep_ledger(self, before: int) -> Mapping[str, int]:
        archived = 0
        while (count := await self._ledger.sweep_batch(before)) is not None:
            archived += count
            self.removed[ledger.KIND] += count
            await self.keep_lease()
            await asyncio.sleep(_PAUSE_SECONDS)
        total = 0
        for prefix in record_kinds.HOLDS.prefixes:
            batch = _Batch(self, "holds", record_kinds.HOLDS)
            async for row in self._rows(record_kinds.HOLDS, prefix, self._done.get("holds", 0), before):
                if row["due"]:
                    await batch.add(str(row["id"]))
            total += await batch.end()
        self._done["holds"] = max(before, 0)
        return {ledger.KIND: archived, "holds": total}

    def archives(self, records: RecordKind) -> bool:
        return self._policy.archive and bool(records.contents)

    async def remove(self, kind: str, records: RecordKind, record_ids: Sequence[str]) -> int:
        """Delete records of a kind, and archive them if an archive is configured; return their number."""
        if not self.archives(records):
            await self._database.write(records.delete(record_ids))
            self.removed[kind] += len(record_ids)
            self.writer.failpoints.hit("sweep.deleted")
            return len(record_ids)
        removed = 0
        remaining = list(record_ids)
        while remaining:
            lines, count = await self._read_lines(records, remaining)
            batch, remaining = remaining[:count], remaining[count:]
            until = await self._database.read(now())
            delete = records.delete_unchanged(batch, lines)
            plan = SegmentPlan(kind, lines, batch[0], batch[-1], until, delete)
            if await self.writer.write(plan):
                removed += len(batch)
                self.removed[kind] += len(batch)
        return removed

    async def _read_lines(
        self, records: RecordKind, record_ids: Sequence[str]
    ) -> tuple[list[SegmentLine], int]:
        """Return the lines of the first records up to a size limit, and the number of these records."""
        # Lines in the order in which `delete_unchanged` reads them again.
        count, size = 0, 0
        while count < len(record_ids) and size < _SEGMENT_BYTES:
            part = await self._database.read(records.lines(record_ids[count : count + _READ]))
            size += sum(map(_size, part))
            count = min(count + _READ, len(record_ids))
        return await self._database.read(records.lines(record_ids[:count])), count


class _Batch:
    """Records that are removed together; those to archive wait until the batch is full or one is overdue."""

    def __init__(self, retention: Retention, kind: str, records: RecordKind) -> None:
        self._retention = retention
        self._kind = kind
        self._records = records
        self._waits = retention.archives(records)
        self._ids: list[str] = []
        self._removed = 0

    async def add(self, record_id: str, *, overdue: bool = False) -> None:
        """Add a record, and remove all records when the batch is full."""
        self._ids.append(record_id)
        self._waits = self._waits and not overdue
        if len(self._ids) >= BATCH:
            await self._remove()

    async def end(self) -> int:
        """Remove the remaining records unless they wait; return the total number of removed records."""
        if self._ids and not self._waits:
            await self._remove()
        return self._removed

    async def _remove(self) -> None:
        removing, self._ids = self._ids, []
        self._removed += await self._retention.remove(self._kind, self._records, removing)


def _work() -> Transaction[bool]:
    """Return whether archive files must be deleted, or accounts erased from the archive."""
    for query in ("archive_staged", "archive_erasing"):
        if (yield from many(query, limit=1)):
            return True
    return False


def _size(line: SegmentLine) -> int:
    return sum(len(value) for value in line.row.values() if isinstance(value, str | bytes))
