"""Timelines: dated entries of a page, from its body or from calls. Entries of calls are permanent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, pagination
from sixfold.core.database import Query, Row, Transaction, encode_json, one
from sixfold.core.memory import limits, markdown
from sixfold.core.memory.models import Caller, MemoryPage, TimelineEntry

FOREVER = 2**62
# Maximum number of entries that requests add to one page, and of their characters.
MAX_ADDED, MAX_ADDED_CHARS = 10_000, 8_000_000
# This character sorts after all dates and ids.
_LAST = "~"


def refresh(caller: Caller, pages: Sequence[tuple[MemoryPage, bool]], moment: int) -> Transaction[None]:
    """Update the timeline entries of pages, given as (page, whether it existed before)."""
    page_ids = [page.id for page, there in pages if there]
    old: dict[str, dict[TimelineEntry, str]] = {}
    if page_ids:
        rows = yield Query("timeline_kept", {"account_id": caller.account_id, "ids": encode_json(page_ids)})
        for row in rows:
            old.setdefault(row["page_id"], {})[_entry(row)] = row["id"]
    removed: list[str] = []
    fresh: list[dict[str, Any]] = []
    for page, _ in pages:
        before = old.get(page.id, {})
        in_text = dict.fromkeys(markdown.timeline(page.body))
        removed += [entry_id for entry, entry_id in before.items() if entry not in in_text]
        fresh += [_row(page, entry, "body") for entry in in_text if entry not in before]
    if removed:
        yield Query("timeline_end", {"ids": encode_json(removed), "ended_at": moment})
    yield from _put(caller, fresh, moment)


def add(caller: Caller, page: MemoryPage, entries: Sequence[TimelineEntry], moment: int) -> Transaction[None]:
    """Add entries of calls; raises `TooLarge` for too many on one page, because exports read all of them."""
    if not entries:
        return
    size = yield from one("timeline_added_size", page_id=page.id)
    assert size is not None  # noqa: S101 - an aggregate has a row
    chars = sum(len(entry.summary) + len(entry.detail) + len(entry.source) for entry in entries)
    if int(size["entries"]) + len(entries) > MAX_ADDED or int(size["chars"]) + chars > MAX_ADDED_CHARS:
        raise errors.TooLarge(
            f"Requests may add at most {MAX_ADDED:,} timeline entries of {MAX_ADDED_CHARS:,} characters "
            "in total to a page: add the other entries to another page"
        )
    yield from _put(caller, [_row(page, entry, "api") for entry in entries], moment)


def of_calls(page: MemoryPage) -> Transaction[tuple[TimelineEntry, ...]]:
    """Return the entries that calls added to a page, by date, which exports must include."""
    return (yield from all_of_calls((page,))).get(page.id, ())


def all_of_calls(pages: Sequence[MemoryPage]) -> Transaction[dict[str, tuple[TimelineEntry, ...]]]:
    """Return the entries that calls added to pages, by page id; pages without such entries are absent."""
    by_page: dict[str, list[TimelineEntry]] = {}
    if pages:
        ids_of = encode_json([page.id for page in pages])
        rows = yield Query("timeline_of_calls", {"account_id": pages[0].account_id, "ids": ids_of})
        for row in rows:
            by_page.setdefault(row["page_id"], []).append(_entry(row))
    return {page_id: tuple(page_entries) for page_id, page_entries in by_page.items()}


def add_new(
    caller: Caller, page: MemoryPage, entries: Sequence[TimelineEntry], moment: int
) -> Transaction[None]:
    """Add only the entries that no earlier call has added to the page."""
    existing = set((yield from of_calls(page)))
    yield from add(caller, page, [entry for entry in entries if entry not in existing], moment)


def _put(caller: Caller, rows: Sequence[dict[str, Any]], moment: int) -> Transaction[None]:
    if rows:
        yield Query(
            "timeline_put",
            {
                "account_id": caller.account_id,
                "rows": encode_json(rows),
                "created_by": caller.name,
                "at": moment,
            },
        )


def _row(page: MemoryPage, entry: TimelineEntry, maker: str) -> dict[str, Any]:
    return {
        "id": ids.new("time"),
        "page_id": page.id,
        "maker": maker,
        "date": entry.date,
        "summary": entry.summary,
        "detail": entry.detail,
        "source": entry.source,
    }


def _entry(row: Row) -> TimelineEntry:
    return TimelineEntry(row["date"], row["summary"], row["detail"], row["source"])


class TimelineEvent(msgspec.Struct, frozen=True):
    """A page of a timeline: its entries, newest date first, and the cursor of the next page."""

    entries: tuple[TimelineEntry, ...]
    next_cursor: str | None = None


def of_page(
    page: MemoryPage, limit: int, cursor: str | None = None, moment: int = FOREVER
) -> Transaction[TimelineEvent]:
    """Return the timeline of a page, now or as of an earlier time.

    Raises `InvalidCursor`.
    """
    date, entry_id = pagination.pair_of(cursor) or (_LAST, "")
    rows = yield Query(
        "timeline_list",
        {
            "account_id": page.account_id,
            "page_id": page.id,
            "at": moment,
            "before_date": date,
            "before_id": pagination.id_before(entry_id),
            "limit": limit + 1,
        },
    )
    first = rows[:limit]
    entries = tuple(
        TimelineEntry(row["date"], row["summary"], row["detail"], row["source"], row["created_at"])
        for row in first
    )
    more = len(rows) > limit
    return TimelineEvent(
        entries, pagination.pair_cursor(first[-1]["date"], first[-1]["id"]) if more else None
    )


def validate(date: str, summary: str, detail: str = "", source: str = "") -> TimelineEntry:
    """Validate an entry of a call; raises `InvalidInput`."""
    return TimelineEntry(
        limits.date(date),
        limits.line("summary", summary, limits.SUMMARY_CHARS),
        limits.long_text("detail", detail, limits.DETAIL_CHARS),
        limits.long_text("source", source, limits.SUMMARY_CHARS),
    )
