"""Writing of archive segments, and erasure of accounts from them.

A segment is recorded before its file is stored, and sealed in the transaction that deletes its records, so
each record is either in the database or in the archive. A file that was replaced, or whose segment was not
sealed, is `staged`, and the next sweep deletes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from sixfold.core.account_data.archive import segments
from sixfold.core.account_data.archive.segments import FORMAT, Segment, SegmentHeader, SegmentLine
from sixfold.core.database import Database, Query, Transaction, TransactionConflict, many, one
from sixfold.core.failpoints import Failpoints
from sixfold.core.media import blob_keys
from sixfold.core.media.ports import BlobStore

_BATCH = 50


class SegmentPlan(msgspec.Struct, frozen=True):
    """The content of a segment to write; `check` returns whether its records are unchanged."""

    kind: str
    lines: Sequence[SegmentLine]
    first_id: str
    last_id: str
    until: int
    delete: Transaction[bool]


class ArchiveTotals(msgspec.Struct):
    """Counters for Prometheus: segments and bytes written, and lines erased."""

    segments: int = 0
    size: int = 0
    erased: int = 0


class ArchiveWriter(msgspec.Struct):
    """Writes segments to a blob store; only the server with the lease of the sweep may use it."""

    database: Database
    blobs: BlobStore
    failpoints: Failpoints = msgspec.field(default_factory=Failpoints)
    totals: ArchiveTotals = msgspec.field(default_factory=ArchiveTotals)

    async def write(self, plan: SegmentPlan) -> bool:
        """Archive the records of a plan and delete them; return False if they have changed meanwhile."""
        head = await self.database.read(one("archive_head"))
        number, previous = (int(head["number"]) + 1, str(head["hash"])) if head else (1, "")
        header = SegmentHeader(FORMAT, number, plan.kind, previous)
        segment = await asyncio.to_thread(segments.build, header, plan.lines)
        key = blob_keys.blob_key(segment.data)
        try:
            await self.database.write(_open(plan, segment, key))
        except TransactionConflict:
            # Another server has taken the lease and the number.
            return False
        self.failpoints.hit("archive.opened")
        await self.blobs.put(key, segment.data)
        self.failpoints.hit("archive.stored")
        try:
            sealed = await self.database.write(_seal(plan, segment, key))
        except _RecordsChanged:
            sealed = False
        if not sealed:
            await self.discard_staged()
            return False
        self.failpoints.hit("archive.sealed")
        self.totals.segments += 1
        self.totals.size += len(segment.data)
        return True

    async def discard_staged(self) -> None:
        """Delete the files of segments that were not sealed, and files that were replaced."""
        while rows := await self.database.read(many("archive_staged", limit=_BATCH)):
            for row in rows:
                await self.blobs.delete(str(row["staged"]))
                query = "archive_discard" if row["blob"] is None else "archive_unstage"
                await self.database.write(many(query, number=int(row["number"]), staged=str(row["staged"])))

    async def erase(self) -> int:
        """Erase the records of erased accounts from all segments; return the number of records."""
        total = 0
        while rows := await self.database.read(many("archive_erasing", limit=_BATCH)):
            total += await self._erase(
                int(rows[0]["number"]), rows[0]["blob"], [r["account_id"] for r in rows]
            )
        return total

    async def _erase(self, number: int, blob: str, account_ids: Sequence[str]) -> int:
        data = await self.blobs.get(blob)
        segment = await asyncio.to_thread(segments.parse, data)
        erased, count = await asyncio.to_thread(segments.erase, segment, frozenset(account_ids))
        key = blob_keys.blob_key(erased.data)
        if count and not await self.database.write(
            many("archive_stage", number=number, blob=blob, staged=key)
        ):
            await self.discard_staged()
            return 0
        if count:
            self.failpoints.hit("erase.staged")
            await self.blobs.put(key, erased.data)
            self.failpoints.hit("erase.stored")
        await self.database.write(_replace(number, (blob, key), (len(erased.data), count), account_ids))
        self.failpoints.hit("erase.replaced")
        await self.discard_staged()
        self.totals.erased += count
        return count


class _RecordsChanged(Exception):
    """A record has changed since it was read; the transaction is rolled back."""


def _open(plan: SegmentPlan, segment: Segment, key: str) -> Transaction[None]:
    yield Query(
        "archive_open",
        {
            "number": segment.header.number,
            "kind": plan.kind,
            "hash": segment.hash,
            "staged": key,
            "records": len(segment.lines),
            "size": len(segment.data),
            "first_id": plan.first_id,
            "last_id": plan.last_id,
            "until": plan.until,
        },
    )


def _seal(plan: SegmentPlan, segment: Segment, key: str) -> Transaction[bool]:
    number = segment.header.number
    if not (yield Query("archive_seal", {"number": number, "staged": key})):
        return False
    if not (yield from plan.delete):
        raise _RecordsChanged
    accounts = sorted({line.account for line in segment.lines if line.account})
    if accounts:
        rows = [{"account_id": account, "segment": number} for account in accounts]
        yield Query("archive_account_insert", {}, rows)
    return True


def _replace(
    number: int, keys: tuple[str, str], sizes: tuple[int, int], account_ids: Sequence[str]
) -> Transaction[None]:
    """Replace the first key with the second; `sizes` are the bytes of the new file and the erased records."""
    params: dict[str, Any] = {"number": number, "blob": keys[0], "staged": keys[1]}
    if sizes[1]:
        replaced = yield Query("archive_replace", {**params, "size": sizes[0], "erased": sizes[1]})
        if not replaced:
            return
    rows = [{"account_id": account, "segment": number} for account in account_ids]
    yield Query("archive_account_erased", {}, rows)
