"""The usage of an account by day, kind, model and key: requests, tokens and amounts, free requests included.

Amounts come from the ledger. The tokens of a chat and free chats are known while its call is in the log.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.ledger_queries import model_of
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Row, Transaction, many, now

DIMENSIONS = ("day", "kind", "model", "key")
COUNTS = ("requests", "input_tokens", "output_tokens")
MAX_DAYS = 366
MAX_GROUPS = 100_000


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Rows with the requested dimensions in their order, then the counts and the amount in USD."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]

    def csv(self) -> str:
        """Return the rows as CSV (RFC 4180) with a header; cells that a spreadsheet would run are quoted."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows([_cell(row[name]) for name in self.columns] for row in self.rows)
        return text.getvalue()


def report(account_id: str, days: int, dimensions: Sequence[str]) -> Transaction[UsageReport]:
    """Return the usage of the last `days` days including today (UTC), sorted by the dimensions.

    Raises `BadRequest` if there are more than `MAX_GROUPS` combinations of day, kind, model and key.
    """
    today = (yield from now()) // DAY_US
    since = (today - days + 1) * DAY_US
    rows = yield from many(
        "usage_report",
        account_id=account_id,
        since=since,
        until=(today + 1) * DAY_US,
        first_call=ids.earliest("req", since),
        first_prediction=ids.earliest("pred", since),
        limit=MAX_GROUPS + 1,
    )
    if len(rows) > MAX_GROUPS:
        raise errors.BadRequest(f"More than {MAX_GROUPS:,} groups: choose fewer than {days} days")
    groups: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        values = _values(row)
        totals = groups.setdefault(tuple(values[name] for name in dimensions), [0, 0, 0, 0])
        for index, name in enumerate((*COUNTS, "micros")):
            totals[index] += int(row[name])
    return UsageReport(
        (*dimensions, *COUNTS, "amount_usd"),
        tuple(
            {
                **dict(zip(dimensions, group, strict=True)),
                **dict(zip(COUNTS, totals, strict=False)),
                "amount_usd": money.format_usd(totals[-1]),
            }
            for group, totals in sorted(groups.items())
        ),
    )


def _values(row: Row) -> dict[str, str]:
    day = datetime.fromtimestamp(int(row["day"]) * DAY_US / SECOND_US, UTC).date().isoformat()
    kind = "run" if row["kind"] == "charge" else str(row["kind"])
    return {"day": day, "kind": kind, "model": model_of(row["kind"], row["name"]), "key": row["key_id"] or ""}


def _cell(value: Any) -> Any:
    # A spreadsheet takes text that begins with one of these for a formula; models are named by callers.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@", "\t", "\r") else value
