"""Queries of the admin pages about the requests of all accounts.

They never read the inputs and outputs of predictions, which are private to their accounts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from sixfold import errors
from sixfold.core import ids
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, many, now

_LAST_ID = "~"
_FAILURES, _KEEPERS = 20, 10
# Separates the two ids in a cursor; ids do not contain it.
_BETWEEN = "."


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter of the request list; empty fields match everything. `text` matches any displayed field."""

    text: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Running and waiting predictions, oldest first."""

    running: Sequence[Row]
    waiting: Sequence[Row]


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The last 24 hours: predictions by state, and failures by frequency."""

    endings: Sequence[Row]
    failures: Sequence[Row]


@dataclass(frozen=True, slots=True)
class StorageTotals:
    """Stored files by kind, and the accounts with the most bytes."""

    kinds: Sequence[Row]
    keepers: Sequence[Row]


def queue(limit: int) -> Transaction[QueueStatus]:
    """Return at most `limit` running and `limit` waiting predictions."""
    running = yield from many("admin_running", limit=limit)
    return QueueStatus(running, (yield from many("admin_waiting", limit=limit)))


def day() -> Transaction[DayTotals]:
    """Return the totals of the last 24 hours."""
    since = (yield from now()) - DAY_US
    orders, calls = ids.earliest("pred", since), ids.earliest("req", since)
    endings = yield from many("admin_endings", since=orders)
    failed = [*(yield from many("admin_failures", since=orders, limit=_FAILURES))]
    failed += yield from many("admin_failed_calls", since=calls, limit=_FAILURES)
    return DayTotals(endings, sorted(failed, key=itemgetter("total"), reverse=True)[:_FAILURES])


def storage() -> Transaction[StorageTotals]:
    """Return the totals of stored files."""
    kinds = yield from many("admin_storage")
    return StorageTotals(kinds, (yield from many("admin_keepers", limit=_KEEPERS)))


def requests(
    wanted: RunFilter, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Row, ...], str | None]]:
    """Return predictions and gateway calls of all accounts, newest first, and the next page's cursor.

    Raises `BadRequest` for an invalid cursor.
    """
    before = _parsed(cursor)
    escaped = wanted.text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pages: list[Sequence[Row]] = []
    for name, last in zip(("admin_predictions", "admin_calls"), before, strict=True):
        params = {"before": last, "state": wanted.state, "pattern": f"%{escaped}%", "limit": limit + 1}
        pages.append((yield Query(name, params)))
    merged = list(heapq.merge(*pages, key=itemgetter("created_at"), reverse=True))
    shown = tuple(merged[:limit])
    if len(merged) <= limit:
        return shown, None
    kept = {row["id"] for row in shown}
    places = [
        next((str(row["id"]) for row in reversed(page) if row["id"] in kept), last)
        for page, last in zip(pages, before, strict=True)
    ]
    return shown, _BETWEEN.join(places)


def _parsed(cursor: str | None) -> tuple[str, str]:
    if not cursor:
        return _LAST_ID, _LAST_ID
    order, dot, call = cursor.partition(_BETWEEN)
    if not dot or _BETWEEN in call or not order or not call:
        raise errors.BadRequest("Invalid cursor")
    return order, call
