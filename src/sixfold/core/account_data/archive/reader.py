"""Reading of the archive: verification of its hash chain and closing balances, and search for records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from sixfold.core.account_data.archive import ledger, segments
from sixfold.core.account_data.archive.ledger import Balances
from sixfold.core.account_data.archive.segments import Segment, SegmentDamaged, SegmentLine
from sixfold.core.database import Database, Row, many
from sixfold.core.media import blob_keys
from sixfold.core.media.ports import BlobStore

_PAGE = 200
# Files that are read concurrently: an object store is slow, but serves many requests at the same time.
_AT_ONCE = 8


class ArchiveCheck(msgspec.Struct):
    """The result of a check: the counts, the hash of the last segment, and one sentence for each error."""

    segments: int = 0
    records: int = 0
    charges: int = 0
    head: str = ""
    faults: list[str] = []


class ArchiveReader:
    """Reads the segments of the archive from the blob store."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    async def rows(self) -> AsyncIterator[Row]:
        """Yield the row of each segment, oldest first."""
        after = 0
        while page := await self._database.read(many("archive_segments", after=after, limit=_PAGE)):
            for row in page:
                yield row
            after = int(page[-1]["number"])

    async def read(self, row: Row) -> Segment:
        """Return the segment of a row; raises `SegmentDamaged`, also if its file is missing or differs."""
        try:
            data = await self._blobs.get(str(row["blob"]))
        except KeyError as error:
            raise SegmentDamaged("its file is missing") from error
        return await asyncio.to_thread(_checked, data, row)

    async def verify(self, kind: str = "") -> ArchiveCheck:
        """Check the chain of all segments, and the files of the segments of a kind (default: all).

        The closing balances must be the sums of the archived charges and equal the balances in the database.
        """
        check, balances = ArchiveCheck(), dict[str, tuple[int, int]]()
        batch: list[Row] = []
        async for row in self.rows():
            batch.append(row)
            if len(batch) == _AT_ONCE:
                await self._check(batch, kind, check, balances)
                batch = []
        await self._check(batch, kind, check, balances)
        await self._check_closings(check, balances)
        return check

    async def _check(
        self, rows: list[Row], kind: str, check: ArchiveCheck, balances: dict[str, tuple[int, int]]
    ) -> None:
        files = await asyncio.gather(*(self._header(row, kind) for row in rows))
        for row, file in zip(rows, files, strict=True):
            check.segments += 1
            check.records += int(row["records"])
            name = f"archive segment {row['number']}"
            if isinstance(file, SegmentDamaged):
                check.faults.append(f"{name}: {file}")
            elif file is not None:
                if file.header.previous != check.head:
                    check.faults.append(f"{name}: it does not continue the previous segment")
                if row["kind"] == ledger.KIND:
                    check.charges += _add(file, balances, name, check.faults)
            check.head = str(row["hash"])

    async def _header(self, row: Row, kind: str) -> Segment | SegmentDamaged | None:
        if kind not in ("", row["kind"]):
            return None
        try:
            return await self.read(row)
        except SegmentDamaged as damage:
            return damage

    async def _check_closings(self, check: ArchiveCheck, balances: Balances) -> None:
        after, stored = "", dict[str, tuple[int, int]]()
        while page := await self._database.read(many("closing_balances_page", after=after, limit=_PAGE)):
            stored |= {row["account_id"]: (int(row["balance"]), int(row["entries"])) for row in page}
            after = str(page[-1]["account_id"])
        for account in sorted(stored.keys() | balances.keys()):
            if stored.get(account) != balances.get(account):
                check.faults.append(f"{account}: the closing balance differs from the archived charges")
        if total := sum(balance for balance, _ in stored.values()):
            check.faults.append(f"the sum of all closing balances is {total} micro-dollars instead of 0")

    async def of_account(self, account_id: str) -> AsyncIterator[list[SegmentLine]]:
        """Yield an account's lines in each segment, or one line with the name of an unreadable segment."""
        after = 0
        params = {"account_id": account_id, "limit": _PAGE}
        while page := await self._database.read(many("archive_of_account", after=after, **params)):
            for row in page:
                try:
                    lines = (await self.read(row)).lines
                except SegmentDamaged as damage:
                    lines = [
                        segments.line_of("damaged", account_id, {"id": row["number"], "error": str(damage)})
                    ]
                yield [line for line in lines if line.account == account_id]
            after = int(page[-1]["number"])

    async def find(self, record_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the archived rows of a record, such as a prediction with its parts and files, or a charge."""
        async for row in self.rows():
            is_charge = row["kind"] == ledger.KIND
            if not is_charge and not row["first_id"] <= record_id <= row["last_id"]:
                continue
            for line in (await self.read(row)).lines:
                if record_id in _names(line.row):
                    yield {"segment": int(row["number"]), "table": line.table, "row": line.row}


def _names(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("id", "parent_id", "prediction_id", "hold_id"))


def _checked(data: bytes, row: Row) -> Segment:
    if blob_keys.blob_key(data) != row["blob"]:
        raise SegmentDamaged("the content of its file does not match its hash")
    segment = segments.parse(data)
    header = segment.header
    if (segment.hash, header.number, header.kind) != (row["hash"], row["number"], row["kind"]):
        raise SegmentDamaged("its records do not match the hash in the database")
    return segment


def _add(segment: Segment, balances: dict[str, tuple[int, int]], name: str, faults: list[str]) -> int:
    """Add the charges of a segment to the balances, and compare them with the closing lines.

    Return the number of charges, and append a sentence to `faults` for each difference.
    """
    charges = [line.row for line in segment.lines if line.table == "transfer"]
    balances |= ledger.closed_by(charges, balances)
    for line in segment.lines:
        closing = (line.row.get("balance"), line.row.get("entries"))
        if line.table == "closing" and balances.get(line.account) != closing:
            faults.append(f"{name}: the closing balance of {line.account} differs from its charges")
    return len(charges)
