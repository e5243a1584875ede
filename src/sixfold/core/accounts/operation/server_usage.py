"""The usage of all accounts by day, account and model, for the operator: requests, tokens and amounts.

Amounts come from the ledger, as in the report of an account. Free requests, tokens and provider costs are
known only while the requests are stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import usage_report
from sixfold.core.accounts.ledger_queries import model_of
from sixfold.core.accounts.usage_report import UsageReport
from sixfold.core.clock import DAY_US
from sixfold.core.database import Transaction, many, now


def report(days: int, dimensions: Sequence[str]) -> Transaction[UsageReport]:
    """Return the usage of the last `days` days including today (UTC), sorted by the dimensions.

    `account` is the id of an account, and `email` its address or name, which is empty after its erasure.
    Raises `BadRequest` if there are more than `usage_report.MAX_GROUPS` combinations of the dimensions.
    """
    today = (yield from now()) // DAY_US
    since = (today - days + 1) * DAY_US
    rows = yield from many(
        "operator_usage",
        since=since,
        until=(today + 1) * DAY_US,
        first_call=ids.earliest("req", since),
        first_prediction=ids.earliest("pred", since),
        by_account=int("account" in dimensions or "email" in dimensions),
        by_model=int("model" in dimensions),
        limit=usage_report.MAX_GROUPS + 1,
    )
    if len(rows) > usage_report.MAX_GROUPS:
        raise errors.BadRequest(
            f"The report has more than {usage_report.MAX_GROUPS:,} groups: choose fewer than {days} days"
        )
    groups: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in rows:
        values = {
            "day": usage_report.iso_day(int(row["day"])),
            "account": str(row["account_id"]),
            "email": str(row["email"]),
            "model": model_of(row["kind"], row["name"]),
        }
        groups[tuple(values[name] for name in dimensions)].update(
            {name: int(row[name]) for name in usage_report.SUMS}
        )
    return usage_report.table(dimensions, groups, with_costs=True)
