"""Rate limits of keys, for all APIs.

Rates use the generic cell rate algorithm, which stores one number per key: in this server's memory, or in the
database if servers share it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from sixfold import errors
from sixfold.core.clock import HOUR_US, SECOND_US
from sixfold.core.database import Database, Query, Transaction, one

_LOG = logging.getLogger("sixfold.limits")
_LEASE_SECONDS = 0.4
# A lease is at most this fraction of a minute.
_LEASE_PARTS = 20
# The lowest limit, in requests or tokens per minute, for which cost is leased.
_LEASED_FROM = 300
MAX_KEYS = 100_000
_MINUTE_US = 60 * SECOND_US


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


def build(database: Database, kind: str, *, shared: bool) -> RateLimits:
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
        if len(self._due) >= MAX_KEYS and key not in self._due:
            self._evict(moment)
        self._due[key] = due

    def _evict(self, moment: int) -> None:
        """Drop keys without a debt, which count as new, and the half with smaller debts if most have one."""
        owing = [(key, due) for key, due in self._due.items() if due > moment]
        if len(owing) >= MAX_KEYS // 2:
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
        """Return what remains of a limit, as of the last count of this server if it is recent."""
        lease = self._leases.get(key)
        if lease is not None and lease.due is not None:
            return _left(per_minute, lease.due - _monotonic_us() - lease.balance)
        row = await self._database.read(one("key_rate_ahead", key_id=key, kind=self._kind), snapshot=False)
        return _left(per_minute, 0 if row is None else int(row["ahead"]))

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
                lease.due = _monotonic_us() + counted.ahead
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
    """The cost in µs that one server has counted in advance for a key.

    `due` is the monotonic time in µs at which the rate has caught up with all requests that were counted.
    """

    balance: int = 0
    due: int | None = None
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
    """The result of counting: the leased cost, and an error or None for each waiter.

    The key is then `ahead` of its rate in µs.
    """

    leased: int
    ahead: int
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
        kind = self.kind.removesuffix("s") if self.per_minute == 1 else self.kind
        message = f"This key is limited to {self.per_minute} {kind} per minute"
        return errors.TooManyRequests(message, retry_after=wait)


@functools.lru_cache(maxsize=1024)
def _share(per_minute: int, amount: int, kind: str) -> _RateShare:
    step = _step(per_minute)
    share = _RateShare(per_minute, step * min(amount, max(per_minute, 1)), _MINUTE_US + step // 2, kind)
    if per_minute <= 0:
        raise share.error(0)
    return share


def _monotonic_us() -> int:
    return int(time.monotonic() * SECOND_US)


def _step(per_minute: int) -> int:
    return _MINUTE_US // max(per_minute, 1)


def _left(per_minute: int, ahead: int) -> RateLeft:
    if ahead <= 0:
        return RateLeft(per_minute, 0.0)
    step = _step(per_minute)
    # A limit of more than one per µs has no steps, and is never reached.
    amount = (_MINUTE_US + step // 2 - ahead) // step if step else per_minute
    return RateLeft(max(0, min(amount, per_minute)), ahead / SECOND_US)


def _count(key: str, kind: str, waiters: Sequence[_RateWaiter], ahead: int) -> Transaction[_RateCount]:
    """Count all waiters and `ahead`; if that exceeds the limit, count only the first waiters that fit."""
    params = {"key_id": key, "kind": kind}
    added, key_ahead = sum(waiter.share.cost for waiter in waiters if waiter.required), 0
    if added:
        key_ahead = int((yield Query("key_rate_add", {**params, "cost": added}))[0]["ahead"])
    shares = [waiter.share for waiter in waiters if not waiter.required]
    if not shares:
        return _RateCount(0, key_ahead, [None] * len(waiters))
    cost, most = sum(share.cost for share in shares), min(share.max_ahead for share in shares)
    for leased in (ahead, 0) if ahead else (0,):
        if rows := (yield Query("key_rate_spend", {**params, "cost": cost + leased, "most": most})):
            return _RateCount(leased, int(rows[0]["ahead"]), [None] * len(waiters))
    # Repeat until no other server has counted between the read and the write.
    while True:
        row = yield from one("key_rate_ahead", **params)
        key_ahead = 0 if row is None else int(row["ahead"])
        fits, refusals = _fitting(waiters, key_ahead)
        if not fits or (yield Query("key_rate_spend", {**params, "cost": fits, "most": most})):
            return _RateCount(0, key_ahead + fits, refusals)


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
