"""What was done to an account: a line for each sign-in, key, plan, export and the like."""

from __future__ import annotations

from dataclasses import dataclass

from sixfold.core import ids
from sixfold.core.database import Query, Row, Transaction

_LAST = "~"  # sorts behind every id


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some lines, newest first, and where the next page starts."""

    lines: tuple[Row, ...]
    next_cursor: str | None


def note(account_id: str, action: str, detail: str = "") -> Transaction[None]:
    """Write one line, in the transaction of what it tells of."""
    line = {"id": ids.new("aud"), "account_id": account_id, "action": action, "detail": detail}
    yield Query("audit_insert", line)


def page(account_id: str, limit: int, cursor: str | None) -> Transaction[AuditPage]:
    """An account's lines; `cursor` is what the page before gave."""
    wanted = {"account_id": account_id, "before": cursor or _LAST, "limit": limit + 1}
    rows = yield Query("audit_page", wanted)
    lines = tuple(rows[:limit])
    return AuditPage(lines, str(lines[-1]["id"]) if len(rows) > limit else None)
