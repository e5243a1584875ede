"""Cache of recent balances, used to defer the hold of calls that the account can clearly afford.

A hold that is written before the server is called costs a transaction and a wait. If the account and the
key's budgets have four times the amount, the hold is written while the server works, or with the end of the
call. Only the call to the server relies on the cache: nothing is passed on to the caller before the hold or
the charge is written, and the ledger refuses what does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import msgspec

from sixfold.core.accounts import limits
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, Transaction, one
from sixfold.core.shared_reads import SharedReads

# One part of the remaining credit may be reserved from the cache.
_PARTS = 4
_TTL_SECONDS = 0.1
_MAX_ENTRIES = 1024
# The balance of accounts that need no credit.
_UNLIMITED = 2**62


class _CachedCredit(msgspec.Struct):
    """The micro-dollars that may still be reserved, and the clock time at which the entry expires."""

    remaining: int
    expires_at: float


class CreditCache:
    """Cached shares of accounts' credit and keys' budgets.

    `deferred_amount` returns the total of an account's deferred holds, `clock` monotonic seconds.
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
        """Reserve `amount` (micro-dollars) and return whether it fits; None if the cache has expired.

        After None, call `refresh_and_reserve`.
        """
        account = self._current(account_id)
        if account is None:
            return None
        if account.remaining < amount:
            return False
        if payer is not None:
            budget = self._current(payer)
            if budget is None:
                return None
            if budget.remaining < amount:
                return False
            budget.remaining -= amount
        account.remaining -= amount
        return True

    async def refresh_and_reserve(self, account_id: str, payer: Payer | None, amount: int) -> bool:
        """Read the balances that have expired, then return what `try_reserve` returns."""
        await self._refresh(account_id, account_id, lambda: _available(account_id))
        if payer is not None:
            await self._refresh(payer, account_id, lambda: limits.unspent(payer))
        return bool(self.try_reserve(account_id, payer, amount))

    def _current(self, name: Hashable) -> _CachedCredit | None:
        share = self._shares.get(name)
        return share if share is not None and self._clock() <= share.expires_at else None

    async def _refresh(
        self, name: Hashable, account_id: str, balance: Callable[[], Transaction[int]]
    ) -> None:
        if self._current(name) is None:
            await self._reads.get(name, lambda: self._read(name, account_id, balance()))

    async def _read(self, name: Hashable, account_id: str, balance: Transaction[int]) -> None:
        read = await self._database.read(balance, snapshot=False)
        remaining = read - self._deferred_amount(account_id)
        if len(self._shares) >= _MAX_ENTRIES:
            self._shares.clear()
        self._shares[name] = _CachedCredit(remaining // _PARTS, self._clock() + _TTL_SECONDS)


def _available(account_id: str) -> Transaction[int]:
    row = yield from one("account_by_id", id=account_id)
    if row is None:
        return 0
    return _UNLIMITED if row["kind"] != "customer" else int(row["posted"]) - int(row["held"])
