"""The kinds of records that expire: how they are listed, archived and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sixfold.core.account_data.archive import segments
from sixfold.core.account_data.archive.segments import SegmentLine
from sixfold.core.database import Query, Transaction, many
from sixfold.core.predictions.history import deletion

Delete = Callable[[Sequence[str]], Transaction[None]]


class RecordKind(msgspec.Struct, frozen=True):
    """A kind of record: its id prefixes, the query that lists its records, and their deletion.

    `contents` are the queries that return the rows to archive, by table; a kind without such queries is not
    archived.
    """

    prefixes: tuple[str, ...]
    query: str
    delete: Delete
    contents: Mapping[str, str] = {}

    def lines(self, record_ids: Sequence[str]) -> Transaction[list[SegmentLine]]:
        lines: list[SegmentLine] = []
        for table, query in self.contents.items():
            rows = yield from many(query, ids=json.dumps(record_ids))
            lines += [segments.line_of(table, row["account_id"], row) for row in rows]
        return lines

    def delete_unchanged(self, record_ids: Sequence[str], lines: Sequence[SegmentLine]) -> Transaction[bool]:
        """Delete records; return False if they differ from the lines that were read earlier."""
        if (yield from self.lines(record_ids)) != list(lines):
            return False
        yield from self.delete(record_ids)
        return True


def _by_ids(*queries: str) -> Delete:
    """Return a deletion that passes the ids to the queries as a JSON array."""

    def delete(record_ids: Sequence[str]) -> Transaction[None]:
        for query in queries:
            yield Query(query, {"ids": json.dumps(record_ids)})

    return delete


def _each(*queries: str) -> Delete:
    """Return a deletion that runs the queries once for each id."""

    def delete(record_ids: Sequence[str]) -> Transaction[None]:
        rows: list[dict[str, Any]] = [{"id": record_id} for record_id in record_ids]
        for query in queries:
            yield Query(query, {}, rows)

    return delete


KINDS: Mapping[str, RecordKind] = {
    "predictions": RecordKind(
        ("pred",),
        "retention_predictions",
        deletion.delete_all,
        {"prediction": "archive_predictions", "media": "archive_media"},
    ),
    "media": RecordKind(
        ("pred",), "retention_media", _each("retention_media_expire", "retention_media_uncount")
    ),
    "sessions": RecordKind(
        ("sess",),
        "retention_sessions",
        _by_ids("retention_standings_delete", "retention_sessions_delete"),
        {"session": "archive_sessions"},
    ),
    "calls": RecordKind(
        ("req",), "retention_calls", _each("retention_calls_delete"), {"call": "archive_calls"}
    ),
    "audit": RecordKind(
        ("aud",), "retention_audit", _by_ids("retention_audit_delete"), {"audit": "archive_audit"}
    ),
    "operators": RecordKind(
        ("act",),
        "retention_operators",
        _each("retention_operators_delete"),
        {"operator_action": "archive_operators"},
    ),
}
# Released holds did not move money, so they are deleted without an archive.
HOLDS = RecordKind(("pred", "req", "sess"), "retention_holds", _each("retention_holds_delete"))
