"""Archiving of the charges of closed periods; `ledger verify` starts from the closing balances.

A charge is archived with its hold when the prediction or session that it paid for has been deleted. Deposits,
payments and refunds stay in the database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sixfold.core.account_data.archive import segments
from sixfold.core.account_data.archive.segments import SegmentLine
from sixfold.core.account_data.archive.writer import ArchiveWriter, SegmentPlan
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, many

KIND = "ledger"
BATCH = 500
# Columns without personal data, which remain after the erasure of an account.
_BOOKED = ("id", "debit", "credit", "amount", "hold_id", "kind", "created_at", "held", "held_at")
_TEXTS = ("id", "description", "request_id", "charge", "key_id")
Place = tuple[int, str]
Balances = Mapping[str, tuple[int, int]]


class LedgerArchive:
    """Archives charges in chronological order; each sweep continues where the previous one stopped."""

    def __init__(self, writer: ArchiveWriter) -> None:
        self._writer = writer
        self._database = writer.database
        self._place: Place = (-1, "")

    def restart(self) -> None:
        """Start over with the oldest charge, as predictions that kept charges may have been deleted."""
        self._place = (-1, "")

    async def sweep_batch(self, before: int) -> int | None:
        """Archive charges before a time; return their number, or None at the end.

        A batch that is not full waits until its first charge has been due for a day.
        """
        at, name = self._place
        page = many("archive_charges_page", after_at=at, after_id=name, before=before, limit=BATCH)
        rows = await self._database.read(page)
        due = [row for row in rows if row["due"]]
        if not rows or (len(rows) < BATCH and due and due[0]["created_at"] > before - DAY_US):
            return None
        count = await self._archive([str(row["id"]) for row in due]) if due else 0
        self._place = (int(rows[-1]["created_at"]), str(rows[-1]["id"]))
        return count

    async def _archive(self, ids: Sequence[str]) -> int:
        rows = [dict(row) for row in await self._database.read(_charges(ids))]
        if not rows:
            return 0
        balances = closed_by(rows, await self._database.read(_balances(rows)))
        plan = SegmentPlan(
            KIND,
            _lines(rows, balances),
            str(rows[0]["id"]),
            str(rows[-1]["id"]),
            int(rows[-1]["created_at"]),
            _delete(ids, rows, balances),
        )
        return len(rows) if await self._writer.write(plan) else 0


def closed_by(rows: Sequence[Row], before: Balances) -> Balances:
    """Return the balance and the number of entries of each account after these charges."""
    after = dict(before)
    for row in rows:
        for account, amount in ((row["credit"], row["amount"]), (row["debit"], -row["amount"])):
            balance, entries = after.get(account, (0, 0))
            after[account] = (balance + amount, entries + 1)
    return after


def _lines(rows: Sequence[Mapping[str, Any]], balances: Balances) -> list[SegmentLine]:
    lines: list[SegmentLine] = []
    for row in rows:
        lines.append(segments.line_of("transfer", row["debit"], {name: row[name] for name in _BOOKED}))
        lines.append(segments.line_of("transfer_text", row["debit"], {name: row[name] for name in _TEXTS}))
    for account, (balance, entries) in sorted(balances.items()):
        lines.append(segments.line_of("closing", account, {"balance": balance, "entries": entries}))
    return lines


def _charges(ids: Sequence[str]) -> Transaction[Sequence[Row]]:
    return (yield from many("archive_charges", ids=json.dumps(ids)))


def _balances(rows: Sequence[Row]) -> Transaction[Balances]:
    accounts = sorted({row[side] for row in rows for side in ("debit", "credit")})
    balances = yield from many("closing_balances", ids=json.dumps(accounts))
    return {row["account_id"]: (int(row["balance"]), int(row["entries"])) for row in balances}


def _delete(ids: Sequence[str], rows: Sequence[Mapping[str, Any]], balances: Balances) -> Transaction[bool]:
    if [dict(row) for row in (yield from _charges(ids))] != rows:
        return False
    yield Query("archive_charge_delete", {}, [{"id": row["id"]} for row in rows])
    yield Query("archive_hold_delete", {}, [{"id": row["hold_id"]} for row in rows])
    closings = [
        {"account_id": account, "balance": balance, "entries": entries}
        for account, (balance, entries) in sorted(balances.items())
    ]
    yield Query("closing_balance_set", {}, closings)
    return True
