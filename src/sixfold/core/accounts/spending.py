"""An account's spending by day and model, from its ledger entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.clock import DAY_US
from sixfold.core.database import Row, Transaction, many, now

# Text that follows the model in an entry's description, by the entry's kind.
_BEHIND = {"chat": " by ", "session": ": minute ", "refund": ": "}


@dataclass(frozen=True, slots=True)
class Spending:
    """Micro-dollars by day (its start in epoch µs, UTC, oldest first) and by model, highest first."""

    days: Mapping[int, Mapping[str, int]]
    models: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.models.values())


def of(account_id: str, days: int) -> Transaction[Spending]:
    """Return the spending of the last `days` days including today."""
    today = (yield from now()) // DAY_US
    first = today - days + 1
    rows = yield from many("spending", account_id=account_id, since=first * DAY_US)
    spent: dict[int, Counter[str]] = {day: Counter() for day in range(first, today + 1)}
    for row in rows:
        # A day outside the range began between the two queries.
        if row["day"] in spent:
            spent[row["day"]][_model(row)] += row["micros"]
    models: Counter[str] = Counter()
    for day in spent.values():
        models.update(day)
    return Spending({day * DAY_US: found for day, found in spent.items()}, dict(models.most_common()))


def _model(row: Row) -> str:
    description, behind = str(row["description"]), _BEHIND.get(row["kind"])
    return description if behind is None else description.rpartition(behind)[0] or description
