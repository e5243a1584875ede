"""The usage of an account by day, kind, model, key, member, team and tag: requests, tokens and amounts.

Free requests are included. A paid request is attributed to the member and team of its hold, and a free
request to those of its key. Amounts come from the ledger. Free chats, and the tokens of chats, are known only
while the call is in the log.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.ledger_queries import model_of
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Row, Transaction, many, now

USUAL = ("day", "kind", "model", "key")
DIMENSIONS = (*USUAL, "member", "team", "tag")
COUNTS = ("requests", "input_tokens", "output_tokens")
# The columns of the amounts, by their names in the query.
_COST = "spent"
_AMOUNTS: Mapping[str, str] = {"micros": "amount_usd", _COST: "provider_cost_usd"}
# The columns of the query that are added up.
SUMS = (*COUNTS, *_AMOUNTS)
MAX_DAYS = 366
MAX_GROUPS = 100_000


class UsageReport(msgspec.Struct, frozen=True):
    """Rows with the requested dimensions in order, followed by the counts and the amount in USD."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]

    def csv(self) -> str:
        """Return the rows as CSV (RFC 4180) with a header.

        Cells that a spreadsheet would evaluate as formulas are quoted.
        """
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows([_cell(row[name]) for name in self.columns] for row in self.rows)
        return text.getvalue()


class _Holders(NamedTuple):
    """The member and team of each key by its id, and their e-mail address or name by their id."""

    by_key: Mapping[str, tuple[str, str]]
    names: Mapping[str, str]


def report(
    account_id: str,
    days: int,
    dimensions: Sequence[str],
    holder_id: str | None = None,
    *,
    with_costs: bool = False,
) -> Transaction[UsageReport]:
    """Return the usage of the last `days` days including today (UTC), sorted by the dimensions.

    `member` and `team` are an e-mail address and a name, or an id after their removal. If `holder_id` is set,
    only the usage of this member or team is included; `with_costs` adds the costs charged by providers, which
    only operators may see. Raises `BadRequest` if there are more than `MAX_GROUPS` combinations of day, kind,
    model, key and tag.
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
        tagged=int("tag" in dimensions),
        limit=MAX_GROUPS + 1,
    )
    if len(rows) > MAX_GROUPS:
        raise errors.BadRequest(
            f"The report has more than {MAX_GROUPS:,} groups: choose fewer than {days} days"
        )
    groups: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    holders = yield from _holders(account_id)
    for row in rows:
        values, owners = group_values(row, holders)
        if holder_id is None or holder_id in owners:
            groups[tuple(values[name] for name in dimensions)].update({name: int(row[name]) for name in SUMS})
    return table(dimensions, groups, with_costs=with_costs)


def table(
    dimensions: Sequence[str], groups: Mapping[tuple[str, ...], Counter[str]], *, with_costs: bool
) -> UsageReport:
    """Return the report of the groups, whose keys are the values of the dimensions, with their `SUMS`."""
    amounts = {name: column for name, column in _AMOUNTS.items() if with_costs or name != _COST}
    return UsageReport(
        (*dimensions, *COUNTS, *amounts.values()),
        tuple(
            {
                **dict(zip(dimensions, group, strict=True)),
                **{name: totals[name] for name in COUNTS},
                **{column: money.format_usd(totals[name]) for name, column in amounts.items()},
            }
            for group, totals in sorted(groups.items())
        ),
    )


def iso_day(day: int) -> str:
    """Return the date of a day, which is counted from 1970-01-01 (UTC)."""
    return datetime.fromtimestamp(day * DAY_US / SECOND_US, UTC).date().isoformat()


def _holders(account_id: str) -> Transaction[_Holders]:
    rows = yield from many("key_holders", account_id=account_id)
    by_key = {row["id"]: (row["member_id"] or "", row["team_id"] or "") for row in rows}
    names: dict[str, str] = {}
    if by_key:
        names |= {row["id"]: row["email"] for row in (yield from many("members_of", account_id=account_id))}
        names |= {row["id"]: row["name"] for row in (yield from many("teams_of", account_id=account_id))}
    return _Holders(by_key, names)


def group_values(row: Row, holders: _Holders) -> tuple[dict[str, str], tuple[str, str]]:
    """Return the values of the dimensions, and the ids of the member and team."""
    day = iso_day(int(row["day"]))
    kind = "run" if row["kind"] == "charge" else str(row["kind"])
    first = str(row["key_id"] or "").partition(" ")[0]
    key_id = first if first.startswith("key_") else ""
    counted = str(row["counted"] or "").split()
    of_key = holders.by_key.get(key_id, ("", ""))
    member_id, team_id = (
        next(
            (column for column in counted if column.startswith(f"{prefix}_")),
            "" if counted else of_key[index],
        )
        for index, prefix in enumerate(("member", "team"))
    )
    values = {"day": day, "kind": kind, "model": model_of(row["kind"], row["name"]), "key": key_id}
    values["tag"] = row["tag"]
    values["member"] = holders.names.get(member_id, member_id)
    values["team"] = holders.names.get(team_id, team_id)
    return values, (member_id, team_id)


def _cell(value: Any) -> Any:
    # A spreadsheet interprets strings that begin with one of these as formulas, and callers choose model
    # names.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@", "\t", "\r") else value
