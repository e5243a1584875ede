"""Holds before a run, which may be free, and refunds after it."""

from __future__ import annotations

from sixfold import errors
from sixfold.core.accounts import ledger
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Query, Transaction, one


def hold(account_id: str, hold_id: str, amount: int, payer: Payer | None = None) -> Transaction[None]:
    """Hold a price, which may be 0; raises `InsufficientCredits`, also if the balance is below zero."""
    if amount:
        yield from ledger.hold(account_id, hold_id, amount, payer)
    else:
        yield from require_not_below_zero(account_id)


def require_not_below_zero(account_id: str) -> Transaction[None]:
    """Raise `InsufficientCredits` if the balance is negative, which prevents free runs as well."""
    if (yield from one("account_below_zero", id=account_id)) is not None:
        raise errors.InsufficientCredits


def refund(hold_id: str, entry: ledger.LedgerEntry) -> Transaction[int]:
    """Refund the captured amount of a hold, once; returns the amount, or 0 if there is none."""
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
