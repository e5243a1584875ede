"""Budgets of keys, members, teams and organizations, and rate limits of keys, for all APIs.

If the principal of a request has budgets, `ledger.hold` counts the amount against all of them in the
transaction of the hold. The hold contains their ids, so that amounts that are not charged are returned to
each budget. Budget days and months are in UTC. Rates use the generic cell rate algorithm, which stores one
number per key: in this server's memory, or in the database if servers share it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.keys import Budget, Principal
from sixfold.core.clock import DAY_US, HOUR_US, SECOND_US
from sixfold.core.database import Database, Query, Rows, Transaction, Value, many, now, one

_LOG = logging.getLogger("sixfold.limits")
_LEASE_SECONDS = 0.4
# A lease is at most this fraction of a minute.
_LEASE_PARTS = 20
# The lowest limit, in requests or tokens per minute, for which cost is leased.
_LEASED_FROM = 300
_MAX_KEYS = 100_000
_MINUTE_US = 60 * SECOND_US
_NO_LIMIT = 2**62
# Length of the period's name, which determines its kind.
_LENGTHS = {"day": len("2026-11-20"), "month": len("2026-11")}
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
    exceeded = [unit for unit, limit in max_spent.items() if amount > limit]
    if not exceeded:
        rows = yield Query("key_spend_add", {"key_id": budget.id, "amount": amount, **max_spent})
        updated = {len(row["period"]) for row in rows}
        exceeded = [unit for unit, length in _LENGTHS.items() if length not in updated]
    if exceeded:
        raise (yield from _exceeded(budget, exceeded[0], amount))


def _spend_shared(payer: Payer, amount: int) -> Transaction[None]:
    """Count in one statement, so that a refused request does not write; other requests may run with it."""
    budgets = [{"id": budget.id, **_limits(budget)} for budget in sorted(payer.budgets)]
    document = msgspec.json.encode(budgets).decode()
    if (yield Query("budgets_spend", {"budgets": document, "amount": amount})):
        return
    epoch_us = yield from now()
    for budget in payer.budgets:
        for unit, limit in _limits(budget).items():
            if (yield from _spent(budget.id, unit, epoch_us)) + amount > limit:
                raise (yield from _exceeded(budget, unit, amount))


def _limits(budget: Budget) -> dict[str, int]:
    return {"day": _limit(budget.day), "month": _limit(budget.month)}


def _exceeded(budget: Budget, unit: str, amount: int) -> Transaction[errors.BudgetExceeded]:
    limit, epoch_us = _limits(budget)[unit], (yield from now())
    remaining = limit - (yield from _spent(budget.id, unit, epoch_us))
    name = f"{_owner_of(budget)} budget of {money.format_usd(limit)} USD per {unit}"
    state = f"has {money.format_usd(remaining)} USD left; this request needs {money.format_usd(amount)} USD"
    return errors.BudgetExceeded(
        f"{name} {state if remaining > 0 else 'is used up'}", retry_after=_until_next(epoch_us, unit)
    )


def _owner_of(budget: Budget) -> str:
    return _OWNERS.get(budget.id.partition("_")[0], "This key's")


def change_spending(spent: Mapping[Payer, int], unspent: Mapping[tuple[str, int], int]) -> Query:
    """Return a query that counts `spent` against budgets and subtracts `unspent`, by budget and time.

    The query does not change the row of a period whose budget would be exceeded.
    """
    rows: list[dict[str, Value]] = []
    for (budget_id, held_at), amount in sorted(unspent.items()):
        if amount:
            rows.append({"key_id": budget_id, "at": held_at, "amount": -amount, "day": 0, "month": 0})
    amounts = Counter[Budget]()
    for payer, amount in spent.items():
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
    spent = {len(row["period"]): int(row["amount"]) for row in rows if row["period"] is not None}
    budgets = {"day": budget.day, "month": budget.month}
    return min(
        (limit - spent.get(_LENGTHS[unit], 0) for unit, limit in budgets.items() if limit is not None),
        default=_NO_LIMIT,
    )


def spent_now(budget_ids: Sequence[str]) -> Transaction[dict[str, tuple[int, int]]]:
    """Return the spending of the current day and month in micro-dollars, by budget id."""
    day, month = _periods((yield from now()))
    rows = yield from many(
        "budgets_spent", ids=msgspec.json.encode(budget_ids).decode(), day=day, month=month
    )
    spent: dict[str, tuple[int, int]] = dict.fromkeys(budget_ids, (0, 0))
    for row in rows:
        in_day, in_month = spent[row["key_id"]]
        is_day = len(row["period"]) == _LENGTHS["day"]
        spent[row["key_id"]] = (row["amount"], in_month) if is_day else (in_day, row["amount"])
    return spent


def _spent(budget_id: str, unit: str, epoch_us: int) -> Transaction[int]:
    """Return the spending of a key, member, team or organization in the day or month of `epoch_us`."""
    period = _periods(epoch_us)[list(_LENGTHS).index(unit)]
    row = yield from one("key_spent", key_id=budget_id, period=period)
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


@functools.lru_cache(maxsize=8)
def _period_names(day_number: int) -> tuple[str, str]:
    day = datetime.fromtimestamp(day_number * DAY_US / SECOND_US, UTC).date().isoformat()
    return day, day[:7]


def _until_next(epoch_us: int, unit: str) -> int:
    """Return the seconds until the next day or month."""
    moment = datetime.fromtimestamp(epoch_us / SECOND_US, UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    following = midnight + timedelta(days=1)
    if unit == "month":
        # From the first day on, 32 days always end in the next month.
        following = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return max(1, math.ceil((following - moment).total_seconds()))


class RateLeft(NamedTuple):
    """The remaining part of a key's rate, and the seconds until the full rate is available again."""

    amount: int
    reset_seconds: float


class RateLimits(Protocol):
    """A rate limit per key and minute; a key may use it at once or spread over the minute."""

    async def spend(self, key: str, per_minute: int, amount: int = 1) -> None:
        """Count `amount`; raises `TooManyRequests` if it exceeds the rate."""
        ...

    async def add(self, key: str, per_minute: int, amount: int) -> None:
        """Count an amount that is known only after the request; this delays later requests."""
        ...

    async def left(self, key: str, per_minute: int) -> RateLeft:
        """Return the remaining rate without counting a request."""
        ...


def rates(database: Database, kind: str, *, shared: bool) -> RateLimits:
    """Return rate limits in memory or, if `shared`, in the database for all of its servers."""
    return SharedRates(database, kind) if shared else OwnRates(time.monotonic, kind)


class OwnRates:
    """Rate limits in this server's memory; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], kind: str = "requests") -> None:
        self._clock = clock
        self._kind = kind
        # The time in µs, by key, at which the rate has caught up with all requests of the key.
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

    async def left(self, key: str, per_minute: int) -> RateLeft:
        return _left(per_minute, self._due.get(key, 0) - int(self._clock() * SECOND_US))

    def _set(self, key: str, moment: int, due: int) -> None:
        if len(self._due) >= _MAX_KEYS and key not in self._due:
            self._evict(moment)
        self._due[key] = due

    def _evict(self, moment: int) -> None:
        """Drop keys without a debt, which count as new, and the half with smaller debts if most have one."""
        owing = [(key, due) for key, due in self._due.items() if due > moment]
        if len(owing) >= _MAX_KEYS // 2:
            owing = sorted(owing, key=itemgetter(1))[len(owing) // 2 :]
        self._due = dict(owing)


class SharedRates:
    """Rate limits in the database, which all servers share, measured by the database's clock.

    Requests of a key that arrive while earlier ones are being counted share one transaction. For a busy key,
    a server leases cost in advance: as much as the key uses in `_LEASE_SECONDS`, at most `1 / _LEASE_PARTS`
    of a minute. The server returns the unused rest after twice that time. Therefore all servers together
    never exceed the limit, and requests are refused too early by at most the leased share. Limits below
    `_LEASED_FROM` per minute are not leased and remain exact.
    """

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._kind = kind
        self._leases: dict[str, _RateLease] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def spend(self, key: str, per_minute: int, amount: int = 1) -> None:
        share = _share(per_minute, amount, self._kind)
        lease = self._leases.get(key)
        if lease is None or not lease.take(share.cost):
            await self._count(key, share, required=False)

    async def add(self, key: str, per_minute: int, amount: int) -> None:
        lease = self._leases.get(key)
        cost = _step(per_minute) * amount
        if lease is None or not lease.take(cost):
            await self._count(key, _RateShare(per_minute, cost, 0, self._kind), required=True)

    async def left(self, key: str, per_minute: int) -> RateLeft:
        row = await self._database.read(one("key_rate_ahead", key_id=key, kind=self._kind), snapshot=False)
        lease = self._leases.get(key)
        unused = 0 if lease is None else lease.balance
        return _left(per_minute, (0 if row is None else int(row["ahead"])) - unused)

    async def _count(self, key: str, share: _RateShare, *, required: bool) -> None:
        lease = self._leases.setdefault(key, _RateLease())
        waiter = _RateWaiter(share, required, asyncio.get_running_loop().create_future())
        lease.waiters.append(waiter)
        if not lease.is_counting:
            lease.is_counting = True
            self._start(self._count_waiters(key, lease))
        await waiter.counted

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Marks the exception as retrieved; the waiters have raised it.
            task.exception()

    async def _count_waiters(self, key: str, lease: _RateLease) -> None:
        waiters: list[_RateWaiter] = []
        try:
            while lease.waiters:
                waiters, lease.waiters = lease.waiters, []
                ahead = lease.demand(waiters)
                counted = await self._database.write(_count(key, self._kind, waiters, ahead), durable=False)
                lease.balance += counted.leased
                for waiter, refusal in zip(waiters, counted.refusals, strict=True):
                    waiter.end(refusal)
        except Exception as error:
            for waiter in (*waiters, *lease.waiters):
                waiter.end(error)
            lease.waiters.clear()
            raise
        finally:
            lease.is_counting = False
            asyncio.get_running_loop().call_later(2 * _LEASE_SECONDS, self._expire, key, lease)

    def _expire(self, key: str, lease: _RateLease) -> None:
        is_renewed = time.monotonic() - lease.renewed_at < 2 * _LEASE_SECONDS
        if is_renewed or lease.is_counting or self._leases.get(key) is not lease:
            return
        unused, lease.balance = lease.balance, 0
        del self._leases[key]
        if unused:
            self._start(self._return(key, unused))

    async def _return(self, key: str, cost: int) -> None:
        try:
            await self._database.write(_return(key, self._kind, cost), durable=False)
        except errors.StoreFailed as error:
            # The limit remains lower until the leased cost has been earned.
            _LOG.warning("an unused share of a rate limit was not returned", extra={"reason": str(error)})


class _RateWaiter(NamedTuple):
    share: _RateShare
    # The cost is counted even if the limit is exceeded.
    required: bool
    counted: asyncio.Future[None]

    def end(self, error: Exception | None) -> None:
        if self.counted.done():
            return
        if error is None:
            self.counted.set_result(None)
        else:
            self.counted.set_exception(error)


class _RateLease(msgspec.Struct, eq=False):
    """The cost in µs that one server has counted in advance for a key."""

    balance: int = 0
    used: int = 0
    renewed_at: float = 0.0
    is_counting: bool = False
    waiters: list[_RateWaiter] = []

    def take(self, cost: int) -> bool:
        """Use `cost` of the balance; return False if it is too low or other requests are waiting for it."""
        if self.waiters or cost > self.balance:
            return False
        self.balance -= cost
        self.used += cost
        return True

    def demand(self, waiters: Sequence[_RateWaiter]) -> int:
        """Return the cost to count in advance: recent use of the key, projected over the life of a lease."""
        moment = time.monotonic()
        elapsed, used = moment - self.renewed_at, self.used
        self.renewed_at, self.used = moment, sum(waiter.share.cost for waiter in waiters)
        per_minute = min(waiter.share.per_minute for waiter in waiters)
        if elapsed > 2 * _LEASE_SECONDS or per_minute < _LEASED_FROM:
            return 0
        return min(int(used * _LEASE_SECONDS / max(elapsed, 0.001)), _MINUTE_US // _LEASE_PARTS)


class _RateCount(NamedTuple):
    """The result of counting: the leased cost, and an error or None for each waiter."""

    leased: int
    refusals: list[errors.TooManyRequests | None]


def sweep() -> Transaction[None]:
    """Delete rates of keys that were not used in the last hour."""
    yield Query("key_rate_sweep", {"life": HOUR_US})


class _RateShare(msgspec.Struct, frozen=True):
    """The cost of a request, and the time by which a key may get ahead of its rate, both in µs."""

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


def _left(per_minute: int, ahead: int) -> RateLeft:
    step = _step(per_minute)
    amount = (_MINUTE_US + step // 2 - max(ahead, 0)) // step
    return RateLeft(max(0, min(amount, per_minute)), max(0, ahead) / SECOND_US)


def _count(key: str, kind: str, waiters: Sequence[_RateWaiter], ahead: int) -> Transaction[_RateCount]:
    """Count all waiters and `ahead`; if that exceeds the limit, count only the first waiters that fit."""
    params = {"key_id": key, "kind": kind}
    added = sum(waiter.share.cost for waiter in waiters if waiter.required)
    if added:
        yield Query("key_rate_add", {**params, "cost": added})
    shares = [waiter.share for waiter in waiters if not waiter.required]
    if not shares:
        return _RateCount(0, [None] * len(waiters))
    cost, most = sum(share.cost for share in shares), min(share.max_ahead for share in shares)
    for leased in (ahead, 0) if ahead else (0,):
        if (yield Query("key_rate_spend", {**params, "cost": cost + leased, "most": most})):
            return _RateCount(leased, [None] * len(waiters))
    # Repeat until no other server has counted between the read and the write.
    while True:
        row = yield from one("key_rate_ahead", **params)
        fits, refusals = _fitting(waiters, 0 if row is None else int(row["ahead"]))
        if not fits or (yield Query("key_rate_spend", {**params, "cost": fits, "most": most})):
            return _RateCount(0, refusals)


def _fitting(waiters: Sequence[_RateWaiter], ahead: int) -> tuple[int, list[errors.TooManyRequests | None]]:
    """Return the cost of the first waiters that fit, and an error or None for each waiter."""
    fits, refusals = 0, list[errors.TooManyRequests | None]()
    for waiter in waiters:
        is_over = not waiter.required and ahead + fits + waiter.share.cost > waiter.share.max_ahead
        refusals.append(waiter.share.error(ahead + fits) if is_over else None)
        if not is_over and not waiter.required:
            fits += waiter.share.cost
    return fits, refusals


def _return(key: str, kind: str, cost: int) -> Transaction[None]:
    yield Query("key_rate_return", {"key_id": key, "kind": kind, "cost": cost})
