"""What whoever runs the server sees of everybody's work: who asked what of whom, and how it ended.

What was in a request and in its answer stays its account's: nothing here reads inputs or outputs.
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
_BETWEEN = "."  # of the two ids in a cursor; no id has it


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which requests are asked for; an empty text takes all. `text` is looked for in all that is shown."""

    text: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What runs and what waits, oldest first."""

    running: Sequence[Row]
    waiting: Sequence[Row]


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The last 24 hours: orders by how they stand, and what failed, the most frequent first."""

    endings: Sequence[Row]
    failures: Sequence[Row]


@dataclass(frozen=True, slots=True)
class StorageTotals:
    """Named files by kind, and the accounts that keep most."""

    kinds: Sequence[Row]
    keepers: Sequence[Row]


def queue(limit: int) -> Transaction[QueueStatus]:
    """At most `limit` of what runs, and of what waits."""
    running = yield from many("admin_running", limit=limit)
    return QueueStatus(running, (yield from many("admin_waiting", limit=limit)))


def day() -> Transaction[DayTotals]:
    """What happened in the last 24 hours."""
    since = (yield from now()) - DAY_US
    orders, calls = ids.earliest("pred", since), ids.earliest("req", since)
    endings = yield from many("admin_endings", since=orders)
    failed = [*(yield from many("admin_failures", since=orders, limit=_FAILURES))]
    failed += yield from many("admin_failed_calls", since=calls, limit=_FAILURES)
    return DayTotals(endings, sorted(failed, key=itemgetter("total"), reverse=True)[:_FAILURES])


def storage() -> Transaction[StorageTotals]:
    """What lies in the store, by name."""
    kinds = yield from many("admin_storage")
    return StorageTotals(kinds, (yield from many("admin_keepers", limit=_KEEPERS)))


def requests(
    wanted: RunFilter, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Row, ...], str | None]]:
    """Orders and calls of all accounts, newest first, and the next page's cursor; raises `BadRequest`."""
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
