"""Budgets and rate limits of API keys, for all APIs.

A request carries its principal. If its key has a budget, `ledger.hold` counts the amount against it in the
transaction of the hold. Budget days and months are in UTC. Rates use the generic cell rate algorithm, which
needs one number per key: in this server's memory, or in the database if several servers share it.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import DAY_US, HOUR_US, SECOND_US
from sixfold.core.database import Database, Query, Transaction, now, one

_MAX_KEYS = 100_000
_MINUTE_US = 60 * SECOND_US
_NO_LIMIT = 2**62
# Length of the period's name, from which its kind follows.
_LENGTHS = {"day": len("2026-11-20"), "month": len("2026-11")}


class Payer(NamedTuple):
    """A key with a budget; amounts in micro-dollars."""

    key_id: str
    budget_day: int | None = None
    budget_month: int | None = None


def payer_of(principal: Principal) -> Payer | None:
    """Return the principal's key if it has a budget, else None."""
    if principal.key_id is None:
        return None
    scope = principal.scope
    if scope.budget_day is None and scope.budget_month is None:
        return None
    return Payer(principal.key_id, scope.budget_day, scope.budget_month)


def spend(payer: Payer, amount: int) -> Transaction[None]:
    """Count `amount` against a key's budgets; raises `BudgetExceeded`."""
    budgets = {"day": payer.budget_day, "month": payer.budget_month}
    max_spent = {unit: _NO_LIMIT if budget is None else budget for unit, budget in budgets.items()}
    exceeded = [unit for unit, limit in max_spent.items() if amount > limit]
    if not exceeded:
        rows = yield Query("key_spend_add", {"key_id": payer.key_id, "amount": amount, **max_spent})
        updated = {len(row["period"]) for row in rows}
        exceeded = [unit for unit, length in _LENGTHS.items() if length not in updated]
    if exceeded:
        unit, epoch_us = exceeded[0], (yield from now())
        left = max_spent[unit] - (yield from _spent(payer.key_id, unit, epoch_us))
        budget = f"This key's budget of {money.format_usd(max_spent[unit])} USD per {unit}"
        state = f"has {money.format_usd(left)} USD left; this request needs {money.format_usd(amount)} USD"
        raise errors.BudgetExceeded(
            f"{budget} {state if left > 0 else 'is used up'}", retry_after=_until_next(epoch_us, unit)
        )


def unspent(payer: Payer) -> Transaction[int]:
    """Return the rest of a key's budgets in micro-dollars: of the day or of the month, whichever is less."""
    epoch_us = yield from now()
    rest = _NO_LIMIT
    for unit, budget in (("day", payer.budget_day), ("month", payer.budget_month)):
        if budget is not None:
            rest = min(rest, budget - (yield from _spent(payer.key_id, unit, epoch_us)))
    return rest


def _spent(key_id: str, unit: str, epoch_us: int) -> Transaction[int]:
    """Return what a key has spent in the day or month of `epoch_us`."""
    period = _periods(epoch_us)[list(_LENGTHS).index(unit)]
    row = yield from one("key_spent", key_id=key_id, period=period)
    return 0 if row is None else int(row["amount"])


def restore(key_id: str, held_at: int, amount: int) -> Transaction[None]:
    """Subtract `amount`, which was held at `held_at` and not charged, from a key's spending."""
    day, month = _periods(held_at)
    yield Query("key_spend_return", {"key_id": key_id, "day": day, "month": month, "amount": amount})


def _periods(epoch_us: int) -> tuple[str, str]:
    return _period_names(epoch_us // DAY_US)


@functools.lru_cache(maxsize=8)
def _period_names(day_number: int) -> tuple[str, str]:
    day = datetime.fromtimestamp(day_number * DAY_US / SECOND_US, UTC).date().isoformat()
    return day, day[:7]


def _until_next(epoch_us: int, unit: str) -> int:
    """Return the seconds until the next day or month."""
    moment = datetime.fromtimestamp(epoch_us / SECOND_US, UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    later = midnight + timedelta(days=1 if unit == "day" else 32)
    following = later if unit == "day" else later.replace(day=1)
    return max(1, math.ceil((following - moment).total_seconds()))


class RateLimits(Protocol):
    """Rate limit per key and minute; a key may use its share at once or spread over the minute."""

    async def spend(self, key: str, per_minute: int, amount: int = 1) -> None:
        """Count `amount`; raises `TooManyRequests` if it exceeds the rate."""
        ...

    async def add(self, key: str, per_minute: int, amount: int) -> None:
        """Count an amount that is known only after the request; it delays later requests."""
        ...


def rates(database: Database, kind: str, *, shared: bool) -> RateLimits:
    """Return rate limits in memory, or `shared` by all servers of a database."""
    return SharedRates(database, kind) if shared else OwnRates(time.monotonic, kind)


class OwnRates:
    """Rate limits in this server's memory; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], kind: str = "requests") -> None:
        self._clock = clock
        self._kind = kind
        # By key: the time, in µs, at which its rate has caught up with all its requests.
        self._due: dict[str, int] = {}

    async def spend(self, key: str, per_minute: int, amount: int = 1) -> None:
        share, moment = _share(per_minute, amount, self._kind), int(self._clock() * SECOND_US)
        ahead = max(self._due.get(key, 0) - moment, 0)
        if ahead + share.cost > share.max_ahead:
            raise share.error(ahead)
        self._set(key, moment, moment + ahead + share.cost)

    async def add(self, key: str, per_minute: int, amount: int) -> None:
        moment = int(self._clock() * SECOND_US)
        self._set(key, moment, max(self._due.get(key, 0), moment) + _step(per_minute) * amount)

    def _set(self, key: str, moment: int, due: int) -> None:
        if len(self._due) >= _MAX_KEYS and key not in self._due:
            self._evict(moment)
        self._due[key] = due

    def _evict(self, moment: int) -> None:
        """Drop keys without a debt, which count as new ones, and the older half if most have one."""
        owing = [(key, due) for key, due in self._due.items() if due > moment]
        self._due = dict(owing if len(owing) < _MAX_KEYS // 2 else owing[len(owing) // 2 :])


class SharedRates:
    """Rate limits in the database, by its clock."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._kind = kind

    async def spend(self, key: str, per_minute: int, amount: int = 1) -> None:
        share = _share(per_minute, amount, self._kind)
        await self._database.write(_spend(key, self._kind, share), durable=False)

    async def add(self, key: str, per_minute: int, amount: int) -> None:
        cost = _step(per_minute) * amount
        await self._database.write(_add(key, self._kind, cost), durable=False)


def sweep() -> Transaction[None]:
    """Delete rates of keys that were not used in the last hour."""
    yield Query("key_rate_sweep", {"life": HOUR_US})


@dataclass(frozen=True, slots=True)
class _RateShare:
    """Cost of a request and how far ahead of its rate a key may get, both in µs."""

    per_minute: int
    cost: int
    max_ahead: int
    kind: str

    def error(self, ahead: int) -> errors.TooManyRequests:
        wait = max(1, math.ceil((ahead + self.cost - _MINUTE_US) / SECOND_US))
        message = f"This key is limited to {self.per_minute} {self.kind} per minute"
        return errors.TooManyRequests(message, retry_after=wait)


@functools.lru_cache(maxsize=1024)
def _share(per_minute: int, amount: int, kind: str) -> _RateShare:
    step = _step(per_minute)
    share = _RateShare(per_minute, step * min(amount, max(per_minute, 1)), _MINUTE_US + step // 2, kind)
    if per_minute <= 0:
        raise share.error(0)
    return share


def _step(per_minute: int) -> int:
    return _MINUTE_US // max(per_minute, 1)


def _spend(key: str, kind: str, share: _RateShare) -> Transaction[None]:
    params = {"key_id": key, "kind": kind}
    if not (yield Query("key_rate_spend", {**params, "cost": share.cost, "most": share.max_ahead})):
        row = yield from one("key_rate_ahead", **params)
        raise share.error(0 if row is None else int(row["ahead"]))


def _add(key: str, kind: str, cost: int) -> Transaction[None]:
    yield Query("key_rate_add", {"key_id": key, "kind": kind, "cost": cost})
