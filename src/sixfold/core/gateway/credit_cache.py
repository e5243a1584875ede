"""Accounts whose calls are sent before their money is held: those with plenty of credit a moment ago.

A hold that is written before a server is asked costs a transaction of its own, and the wait for it. Where an
account and its key's budgets have four times what is asked for, it is written while the server works, or
with the end of the call. What is trusted is only whether to ask: nothing is passed on to the caller before
the hold, or the charge in its place, is written, and there the ledger refuses what does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import msgspec

from sixfold.core.accounts import limits
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, Transaction, one

_PART = 4  # of what is left, one part may be asked for at once
_SECONDS = 0.1  # that what is left is believed
_MAX_KNOWN = 1024
_UNLIMITED = 2**62  # of an account that is never refused for lack of credit


class _CachedCredit(msgspec.Struct):
    """What may still be asked for, in micro-dollars, until a moment of the clock."""

    left: int
    until: float


class CreditCache:
    """Shares of accounts and of keys' budgets.

    `unwritten` tells what an account was trusted with and is not written yet, `clock` gives seconds that
    never go back.
    """

    def __init__(
        self, database: Database, unwritten: Callable[[str], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._unwritten = unwritten
        self._clock = clock
        self._shares: dict[Hashable, _CachedCredit] = {}

    def try_reserve(self, account_id: str, payer: Payer | None, amount: int) -> bool | None:
        """Whether `amount` (micro-dollars) may be asked for now; it is taken off the shares then.

        None where it is not known any more: `look` tells.
        """
        account = self._known(account_id)
        if account is None:
            return None
        if account.left < amount:
            return False
        if payer is not None:
            budget = self._known(payer)
            if budget is None:
                return None
            if budget.left < amount:
                return False
            budget.left -= amount
        account.left -= amount
        return True

    async def refresh_and_reserve(self, account_id: str, payer: Payer | None, amount: int) -> bool:
        """What `covers` tells, once both shares are known."""
        await self._share(account_id, account_id, _available(account_id))
        if payer is not None:
            await self._share(payer, account_id, limits.unspent(payer))
        return bool(self.try_reserve(account_id, payer, amount))

    def _known(self, name: Hashable) -> _CachedCredit | None:
        share = self._shares.get(name)
        return share if share is not None and self._clock() <= share.until else None

    async def _share(self, name: Hashable, account_id: str, left: Transaction[int]) -> None:
        if self._known(name) is not None:
            return
        found = await self._database.read(left) - self._unwritten(account_id)
        if self._known(name) is not None:  # another looked at the same time
            return
        if len(self._shares) >= _MAX_KNOWN:
            self._shares.clear()
        self._shares[name] = _CachedCredit(found // _PART, self._clock() + _SECONDS)


def _available(account_id: str) -> Transaction[int]:
    row = yield from one("account_by_id", id=account_id)
    if row is None:
        return 0
    return _UNLIMITED if row["kind"] != "customer" else int(row["posted"]) - int(row["held"])
