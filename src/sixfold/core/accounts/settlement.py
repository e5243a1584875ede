"""Money before and after a run: held for it if the account may run at all, and given back if it has to be."""

from __future__ import annotations

from sixfold import errors
from sixfold.core.accounts import ledger
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Query, Transaction, one


def hold(account_id: str, hold_id: str, amount: int, payer: Payer | None = None) -> Transaction[None]:
    """Set a price aside, which may be 0; raises `InsufficientCredits`, of an account below zero too."""
    if amount:
        yield from ledger.hold(account_id, hold_id, amount, payer)
    else:
        yield from require_not_below_zero(account_id)


def require_not_below_zero(account_id: str) -> Transaction[None]:
    """Raise `InsufficientCredits` for an account that owes money: it runs nothing, not even what is free."""
    if (yield from one("account_below_zero", id=account_id)) is not None:
        raise errors.InsufficientCredits


def refund(hold_id: str, entry: ledger.LedgerEntry) -> Transaction[int]:
    """Give back what was captured of a hold, once; gives the amount, 0 when there is nothing to give."""
    captured = yield from one("transfer_of_hold", hold_id=hold_id)
    if captured is None or (yield from one("transfer_by_id", id=f"refund:{hold_id}")) is not None:
        return 0
    account_id, amount = str(captured["debit"]), int(captured["amount"])
    yield Query("ledger_post", {"account_id": ledger.REVENUE, "amount": -amount})
    yield Query("ledger_post", {"account_id": account_id, "amount": amount})
    yield ledger.transfer(f"refund:{hold_id}", (ledger.REVENUE, account_id), amount, entry, None)
    held = yield from one("hold_by_id", id=hold_id)
    if held is not None:
        yield from ledger.uncount(held, amount)
    return amount
