"""The audit log, with an entry for each login, key, plan change, export and similar action on an account."""

from __future__ import annotations

import msgspec

from sixfold.core import ids, pagination
from sixfold.core.database import Query, Row, Transaction


class AuditPage(msgspec.Struct, frozen=True):
    """A page of audit log entries, newest first; `next_cursor` is None on the last page."""

    entries: tuple[Row, ...]
    next_cursor: str | None


def note(account_id: str, action: str, detail: str = "") -> Transaction[None]:
    """Append an entry in the caller's transaction."""
    entry = {"id": ids.new("aud"), "account_id": account_id, "action": action, "detail": detail}
    yield Query("audit_insert", entry)


def page(account_id: str, limit: int, cursor: str | None) -> Transaction[AuditPage]:
    """Return at most `limit` entries of an account; `cursor` is the `next_cursor` of the previous page.

    Raises `BadRequest` for an invalid cursor.
    """
    params = {"account_id": account_id, "before": pagination.id_before(cursor), "limit": limit + 1}
    rows = yield Query("audit_page", params)
    entries = tuple(rows[:limit])
    return AuditPage(entries, str(entries[-1]["id"]) if len(rows) > limit else None)
