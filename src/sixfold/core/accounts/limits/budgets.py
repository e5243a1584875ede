"""Budgets of keys, members, teams and organizations, for all APIs.

If the principal of a request has budgets, `ledger.hold` counts the amount against all of them in the
transaction of the hold. The hold contains their ids, so that amounts that are not charged are returned to
each budget. Budget days and months are in UTC.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.keys import Budget, Principal
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Query, Rows, Transaction, Value, encode_json, many, now, one

PeriodUnit = Literal["day", "month"]
_NO_LIMIT = 2**62
# The keys are prefixes of budget ids.
_OWNERS = {"key": "This key's", "member": "This member's", "team": "The team's", "acct": "This account's"}


class Payer(NamedTuple):
    """A key and its budgets in micro-dollars, and the budgets that it shares with other keys.

    `key_id` is the `limit_id` of its principal. It is empty for a principal without a key, to which only the
    shared budgets apply.
    """

    key_id: str
    budget_day: int | None = None
    budget_month: int | None = None
    shared: tuple[Budget, ...] = ()

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """All budgets that count the payer's spending, starting with those of the key."""
        if not self.key_id:
            return self.shared
        return (Budget(self.key_id, self.budget_day, self.budget_month), *self.shared)

    @property
    def counted(self) -> str:
        """The ids of the payer's budgets, separated by spaces, as stored with a hold."""
        return " ".join((self.key_id, *(budget.id for budget in self.shared))).strip()


def payer_of(principal: Principal) -> Payer | None:
    """Return the payer for a principal whose spending is counted, otherwise None."""
    scope, key_id = principal.scope, principal.limit_id
    has_budget = key_id is not None and (scope.budget_day is not None or scope.budget_month is not None)
    if not has_budget and not principal.budgets:
        return None
    return Payer(key_id or "", scope.budget_day, scope.budget_month, principal.budgets)


def spend(payer: Payer, amount: int) -> Transaction[None]:
    """Count `amount` against all budgets of a payer or none; raises `BudgetExceeded`."""
    if payer.shared:
        yield from _spend_shared(payer, amount)
        return
    budget = payer.budgets[0]
    max_spent = _limits(budget)
    exceeded: list[PeriodUnit] = [unit for unit, limit in max_spent.items() if amount > limit]
    if not exceeded:
        rows = yield Query("key_spend_add", {"key_id": budget.id, "amount": amount, **max_spent})
        updated = {_unit_of(row["period"]) for row in rows}
        exceeded = [unit for unit in max_spent if unit not in updated]
    if exceeded:
        raise (yield from _exceeded(budget, exceeded[0], amount))


def _spend_shared(payer: Payer, amount: int) -> Transaction[None]:
    """Count in one statement, so that a refused request does not write; other requests may run with it."""
    budgets = [{"id": budget.id, **_limits(budget)} for budget in sorted(payer.budgets)]
    document = encode_json(budgets)
    if (yield Query("budgets_spend", {"budgets": document, "amount": amount})):
        return
    epoch_us = yield from now()
    for budget in payer.budgets:
        for unit, limit in _limits(budget).items():
            if (yield from _spent(budget.id, unit, epoch_us)) + amount > limit:
                raise (yield from _exceeded(budget, unit, amount))


def _limits(budget: Budget) -> dict[PeriodUnit, int]:
    return {"day": _limit(budget.day), "month": _limit(budget.month)}


def _exceeded(budget: Budget, unit: PeriodUnit, amount: int) -> Transaction[errors.BudgetExceeded]:
    limit, epoch_us = _limits(budget)[unit], (yield from now())
    remaining = limit - (yield from _spent(budget.id, unit, epoch_us))
    name = f"{_owner_of(budget)} budget of {money.format_usd(limit)} USD per {unit}"
    state = f"has {money.format_usd(remaining)} USD left; this request needs {money.format_usd(amount)} USD"
    return errors.BudgetExceeded(
        f"{name} {state if remaining > 0 else 'is used up'}", retry_after=_until_next(epoch_us, unit)
    )


def _owner_of(budget: Budget) -> str:
    return _OWNERS.get(budget.id.partition("_")[0], "This key's")


def change_spending(spending: Mapping[Payer, int], unspent: Mapping[tuple[str, int], int]) -> Query:
    """Return a query that counts `spending` against budgets and subtracts `unspent`, by budget and time.

    The query does not change the row of a period whose budget would be exceeded.
    """
    rows: list[dict[str, Value]] = []
    for (budget_id, held_at), amount in sorted(unspent.items()):
        if amount:
            rows.append({"key_id": budget_id, "at": held_at, "amount": -amount, "day": 0, "month": 0})
    amounts = Counter[Budget]()
    for payer, amount in spending.items():
        for budget in payer.budgets:
            amounts[budget] += amount
    for budget, amount in amounts.items():
        day, month = _limit(budget.day), _limit(budget.month)
        rows.append({"key_id": budget.id, "at": None, "amount": amount, "day": day, "month": month})
    rows.sort(key=lambda row: str(row["key_id"]))
    return Query("key_spend_change", {}, rows, expected=2 * len(rows))


def _limit(budget: int | None) -> int:
    return _NO_LIMIT if budget is None else budget


def unspent(payer: Payer) -> Transaction[int]:
    """Return the remaining amount of a payer's budgets in micro-dollars: the least of all days and months."""
    lowest = _NO_LIMIT
    for budget in payer.budgets:
        rows = yield Query("key_spent_now", {"key_id": budget.id})
        lowest = min(lowest, unspent_of(budget, rows))
    return lowest


def unspent_of(budget: Budget, rows: Rows) -> int:
    """Return a budget's remaining micro-dollars; `rows` contain each `period` and the spent `amount`."""
    spending = {_unit_of(row["period"]): int(row["amount"]) for row in rows if row["period"] is not None}
    budgets: dict[PeriodUnit, int | None] = {"day": budget.day, "month": budget.month}
    return min(
        (limit - spending.get(unit, 0) for unit, limit in budgets.items() if limit is not None),
        default=_NO_LIMIT,
    )


def spent_now(budget_ids: Sequence[str]) -> Transaction[dict[str, tuple[int, int]]]:
    """Return the spending of the current day and month in micro-dollars, by budget id."""
    day, month = _periods((yield from now()))
    rows = yield from many("budgets_spent", ids=encode_json(budget_ids), day=day, month=month)
    spending: dict[str, tuple[int, int]] = dict.fromkeys(budget_ids, (0, 0))
    for row in rows:
        in_day, in_month = spending[row["key_id"]]
        is_day = row["period"] == day
        spending[row["key_id"]] = (row["amount"], in_month) if is_day else (in_day, row["amount"])
    return spending


def _spent(budget_id: str, unit: PeriodUnit, epoch_us: int) -> Transaction[int]:
    """Return the spending of a key, member, team or organization in the day or month of `epoch_us`."""
    day, month = _periods(epoch_us)
    row = yield from one("key_spent", key_id=budget_id, period=day if unit == "day" else month)
    return 0 if row is None else int(row["amount"])


def restore(counted: str, held_at: int, amount: int) -> Transaction[None]:
    """Subtract `amount`, which was held at `held_at` and not charged, from the budgets that counted it."""
    day, month = _periods(held_at)
    for budget_id in sorted(counted.split()):
        yield Query("key_spend_return", {"key_id": budget_id, "day": day, "month": month, "amount": amount})


def current_periods(epoch_us: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the names of the day and month of `epoch_us`, each with its start in epoch µs."""
    day, month = _periods(epoch_us)
    first = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
    return (day, epoch_us // DAY_US * DAY_US), (month, int(first.timestamp()) * SECOND_US)


def _periods(epoch_us: int) -> tuple[str, str]:
    return _period_names(epoch_us // DAY_US)


def _unit_of(period: str) -> PeriodUnit:
    """Return the unit of a period's name: `2026-11-20` is a day, and `2026-11` a month."""
    return "month" if period.count("-") == 1 else "day"


@functools.lru_cache(maxsize=8)
def _period_names(day_number: int) -> tuple[str, str]:
    day = datetime.fromtimestamp(day_number * DAY_US / SECOND_US, UTC).date().isoformat()
    return day, day[:7]


def _until_next(epoch_us: int, unit: PeriodUnit) -> int:
    """Return the seconds until the next day or month."""
    moment = datetime.fromtimestamp(epoch_us / SECOND_US, UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    following = midnight + timedelta(days=1)
    if unit == "month":
        # From the first day on, 32 days always end in the next month.
        following = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return max(1, math.ceil((following - moment).total_seconds()))


def format_budgets(day: int | None, month: int | None) -> str:
    """Return the description of budgets in the log of an account."""
    amounts = (("day", day), ("month", month))
    texts = (f"{money.format_usd(amount)} USD per {unit}" for unit, amount in amounts if amount is not None)
    return ", ".join(texts) or "none"
