"""A cache of recent balances, used to defer the holds of calls that an account can clearly afford.

A hold that is written before the server is called costs a transaction and a wait. If the account and all
budgets have four times the amount, the hold is written while the server works, or at the end of the call.
Only the call to the server relies on the cache: the response is not sent to the caller before the hold or the
charge is written, and the ledger refuses amounts that exceed the balance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import msgspec

from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.concurrency.shared_reads import SharedReads
from sixfold.core.database import Database, Query, Rows, Transaction, encode_json

# This fraction (1/n) of the remaining credit may be reserved from the cache.
_PARTS = 4
_TTL_SECONDS = 0.25
_MAX_ENTRIES = 1024
# The balance of accounts that do not need credit.
_UNLIMITED = 2**62


class _CachedCredit(msgspec.Struct):
    """The micro-dollars that may still be reserved, and the clock time at which the entry expires."""

    remaining: int
    expires_at: float


class CreditCache:
    """Cached shares of accounts' credit and of budgets.

    `deferred_amount` returns the total of an account's deferred holds, and `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        deferred_amount: Callable[[str], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._deferred_amount = deferred_amount
        self._clock = clock
        self._shares: dict[Hashable, _CachedCredit] = {}
        self._reads = SharedReads[None]()

    def try_reserve(self, account_id: str, payer: Payer | None, amount: int) -> bool | None:
        """Reserve `amount` (micro-dollars); return whether it is available, or None if the cache has expired.

        After None, call `refresh_and_reserve`.
        """
        account = self._current(account_id)
        if account is None:
            return None
        if account.remaining < amount:
            return False
        budgets: list[_CachedCredit] = []
        for budget in payer.budgets if payer is not None else ():
            share = self._current(budget)
            if share is None:
                return None
            budgets.append(share)
        if any(share.remaining < amount for share in budgets):
            return False
        for share in budgets:
            share.remaining -= amount
        account.remaining -= amount
        return True

    async def refresh_and_reserve(self, account_id: str, payer: Payer | None, amount: int) -> bool:
        """Read the balances that have expired, then return the result of `try_reserve`."""
        await self._reads.get((account_id, payer), lambda: self._refresh(account_id, payer))
        return bool(self.try_reserve(account_id, payer, amount))

    def _current(self, name: Hashable) -> _CachedCredit | None:
        share = self._shares.get(name)
        return share if share is not None and self._clock() <= share.expires_at else None

    async def _refresh(self, account_id: str, payer: Payer | None) -> None:
        rows = await self._database.read(_balances(account_id, payer), snapshot=False)
        self._set(account_id, account_id, _available(rows))
        for budget in payer.budgets if payer is not None else ():
            own = [row for row in rows if row["key_id"] == budget.id]
            self._set(budget, account_id, budgets.unspent_of(budget, own))

    def _set(self, name: Hashable, account_id: str, balance: int) -> None:
        # A read for another key of the account may have set the account's share, part of which may be
        # reserved.
        if self._current(name) is not None:
            return
        if len(self._shares) >= _MAX_ENTRIES:
            self._shares.clear()
        remaining = balance - self._deferred_amount(account_id)
        self._shares[name] = _CachedCredit(remaining // _PARTS, self._clock() + _TTL_SECONDS)


def _balances(account_id: str, payer: Payer | None) -> Transaction[Rows]:
    if payer is None or not payer.shared:
        key_id = payer.key_id if payer is not None else ""
        return (yield Query("credit_now", {"account_id": account_id, "key_id": key_id}))
    ids = encode_json([budget.id for budget in payer.budgets])
    return (yield Query("credit_now_shared", {"account_id": account_id, "ids": ids}))


def _available(rows: Rows) -> int:
    if not rows:
        return 0
    row = rows[0]
    return _UNLIMITED if row["kind"] != "customer" else int(row["posted"]) - int(row["held"])
