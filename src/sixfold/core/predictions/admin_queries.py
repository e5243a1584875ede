"""Queries of the admin pages about the requests of all accounts.

They never read the inputs and outputs of predictions, which are private to their accounts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter

import msgspec

from sixfold.core import ids, pagination
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, many, now

_LAST_ID = "~"
_FAILURES, _TOP_ACCOUNTS = 20, 10
# Separates the two ids in a cursor; ids do not contain it.
_SEPARATOR = "."


class RunFilter(msgspec.Struct, frozen=True):
    """A filter of the request list; empty fields match all requests. `text` matches any displayed field."""

    text: str = ""
    state: str = ""


class QueueStatus(msgspec.Struct, frozen=True):
    """Running and waiting predictions, oldest first."""

    running: Sequence[Row]
    waiting: Sequence[Row]


class StorageTotals(msgspec.Struct, frozen=True):
    """Stored files by kind, and the accounts with the most bytes."""

    kinds: Sequence[Row]
    top_accounts: Sequence[Row]


def queue(limit: int) -> Transaction[QueueStatus]:
    """Return at most `limit` running and `limit` waiting predictions."""
    running = yield from many("admin_running", limit=limit)
    return QueueStatus(running, (yield from many("admin_waiting", limit=limit)))


def failures() -> Transaction[Sequence[Row]]:
    """Return the failures of the last 24 hours by model, the most frequent first."""
    since = (yield from now()) - DAY_US
    first_prediction, first_call = ids.earliest("pred", since), ids.earliest("req", since)
    failed = [*(yield from many("admin_failures", since=first_prediction, limit=_FAILURES))]
    failed += yield from many("admin_failed_calls", since=first_call, limit=_FAILURES)
    return sorted(failed, key=itemgetter("total"), reverse=True)[:_FAILURES]


def storage() -> Transaction[StorageTotals]:
    kinds = yield from many("admin_storage")
    return StorageTotals(kinds, (yield from many("admin_keepers", limit=_TOP_ACCOUNTS)))


def requests(
    filters: RunFilter, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Row, ...], str | None]]:
    """Return predictions and calls of all accounts, newest first, and the cursor of the next page.

    Raises `InvalidCursor`.
    """
    before = _parse_cursor(cursor)
    pages: list[Sequence[Row]] = []
    for name, last in zip(("admin_predictions", "admin_calls"), before, strict=True):
        params = {
            "before": last,
            "state": filters.state,
            "pattern": pagination.contains_pattern(filters.text.lower()),
            "limit": limit + 1,
        }
        pages.append((yield Query(name, params)))
    merged = list(heapq.merge(*pages, key=itemgetter("created_at"), reverse=True))
    entries = tuple(merged[:limit])
    if len(merged) <= limit:
        return entries, None
    entry_ids = {row["id"] for row in entries}
    positions = [
        next((str(row["id"]) for row in reversed(page) if row["id"] in entry_ids), last)
        for page, last in zip(pages, before, strict=True)
    ]
    return entries, _SEPARATOR.join(positions)


def _parse_cursor(cursor: str | None) -> tuple[str, str]:
    if not cursor:
        return _LAST_ID, _LAST_ID
    prediction, separator, call = cursor.partition(_SEPARATOR)
    if not separator or _SEPARATOR in call or not prediction or not call:
        raise pagination.InvalidCursor
    return prediction, call
