"""Double-entry ledger: hold an amount for accepted work, then capture or release it.

Each function is a transaction (see `core.database`) that the caller runs inside its own with `yield from`, so
that a prediction and its money change together or not at all. Amounts are in micro-dollars.
"""

from __future__ import annotations

from typing import NamedTuple

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Query, Row, Transaction, one

WORLD = "world"
REVENUE = "revenue"
# In micro-dollars, for each account and for the credit of all accounts; sums must remain within 64 bits.
MAX_BALANCE = 10**18


class LedgerError(Exception):
    """A change that would make the ledger inconsistent; the transaction is rolled back."""


class LedgerEntry(NamedTuple):
    """The reason for a transfer: its kind, a description for users, and the itemized charge as JSON."""

    kind: str
    description: str
    request_id: str | None = None
    charge: str | None = None


def hold(
    account_id: str, hold_id: str, amount: int, payer: Payer | None = None, about: str | None = None
) -> Transaction[None]:
    """Reserve `amount` for a request; raises `InsufficientCredits` if the balance is too low.

    `payer` specifies the budgets that count the amount (raises `BudgetExceeded`). `about` is stored with the
    hold for recovery after a crash.
    """
    if amount <= 0:
        raise LedgerError("the amount of a hold must be positive")
    if payer is not None:
        yield from budgets.spend(payer, min(amount, MAX_BALANCE))
    if amount > MAX_BALANCE or not (
        yield Query("ledger_reserve", {"account_id": account_id, "amount": amount})
    ):
        raise errors.InsufficientCredits
    row = {"id": hold_id, "account_id": account_id, "amount": amount, "about": about}
    yield Query("hold_insert", {**row, "key_id": payer and payer.counted})


def hold_price(account_id: str, hold_id: str, amount: int, payer: Payer | None = None) -> Transaction[None]:
    """Hold a price, which may be 0; raises `InsufficientCredits`, also for a negative balance."""
    if amount:
        yield from hold(account_id, hold_id, amount, payer)
    else:
        yield from require_not_below_zero(account_id)


def require_not_below_zero(account_id: str) -> Transaction[None]:
    """Raise `InsufficientCredits` if the balance is negative, which prevents even free runs."""
    if (yield from one("account_below_zero", id=account_id)) is not None:
        raise errors.InsufficientCredits


def capture(hold_id: str, amount: int, entry: LedgerEntry) -> Transaction[None]:
    """Charge `amount` of a pending hold and release the rest; an `amount` of 0 releases the whole hold."""
    if amount == 0:
        yield from release(hold_id)
        return
    rows = yield Query("hold_end", {"id": hold_id, "state": "captured", "captured": amount})
    if not rows:
        raise LedgerError(f"hold {hold_id} is not pending, or is less than the amount to capture ({amount})")
    account_id, hold_amount = str(rows[0]["account_id"]), int(rows[0]["amount"])
    yield Query("ledger_settle", {"account_id": account_id, "amount": hold_amount, "captured": amount})
    yield Query("ledger_post", {"account_id": REVENUE, "amount": amount})
    yield transfer(f"capture:{hold_id}", (account_id, REVENUE), amount, entry, hold_id)
    yield from _restore_budget(rows[0], hold_amount - amount)


def release(hold_id: str) -> Transaction[None]:
    """Release a pending hold without a charge."""
    rows = yield Query("hold_end", {"id": hold_id, "state": "released", "captured": 0})
    if not rows:
        raise LedgerError(f"hold {hold_id} is not pending")
    account_id, hold_amount = str(rows[0]["account_id"]), int(rows[0]["amount"])
    yield Query("ledger_settle", {"account_id": account_id, "amount": hold_amount, "captured": 0})
    yield from _restore_budget(rows[0], hold_amount)


def refund(hold_id: str, entry: LedgerEntry) -> Transaction[int]:
    """Refund the captured amount of a hold, once; return the amount, or 0 if nothing was captured."""
    captured = yield from one("transfer_of_hold", hold_id=hold_id)
    if captured is None or (yield from one("transfer_by_id", id=f"refund:{hold_id}")) is not None:
        return 0
    account_id, amount = str(captured["debit"]), int(captured["amount"])
    yield Query("ledger_post", {"account_id": REVENUE, "amount": -amount})
    yield Query("ledger_post", {"account_id": account_id, "amount": amount})
    yield transfer(f"refund:{hold_id}", (REVENUE, account_id), amount, entry, None)
    if (hold_row := (yield from one("hold_by_id", id=hold_id))) is not None:
        yield from _restore_budget(hold_row, amount)
    return amount


def _restore_budget(hold_row: Row, amount: int) -> Transaction[None]:
    """Add the part of a hold that was not charged back to the budgets that counted it."""
    if hold_row["key_id"] is not None and amount:
        yield from budgets.restore(str(hold_row["key_id"]), int(hold_row["created_at"]), amount)


def deposit(
    account_id: str,
    amount: int,
    entry: LedgerEntry,
    transfer_id: str | None = None,
    *,
    below_zero: bool = False,
) -> Transaction[None]:
    """Credit an account; withdraw a negative amount.

    If `below_zero` is set, a withdrawal may exceed the available balance.
    """
    if amount == 0:
        raise LedgerError("the amount of a deposit must not be 0")
    source, target = (WORLD, account_id) if amount > 0 else (account_id, WORLD)
    size = abs(amount)
    if below_zero and amount < 0:
        yield Query("account_let_below_zero", {"id": account_id, "amount": size})
    yield Query("ledger_post", {"account_id": source, "amount": -size})
    if not (yield Query("ledger_post", {"account_id": target, "amount": size})):
        raise LedgerError(f"account {target} not found")
    if amount > 0:
        yield Query("account_is_above_zero", {"id": account_id})
    yield transfer(transfer_id or ids.new("txn"), (source, target), size, entry, None)


def transfer(
    transfer_id: str, sides: tuple[str, str], amount: int, entry: LedgerEntry, hold_id: str | None
) -> Query:
    """Return the query that inserts one ledger entry; `sides` are the debited and the credited account."""
    row = {"id": transfer_id, "debit": sides[0], "credit": sides[1], "amount": amount, "hold_id": hold_id}
    return Query("transfer_insert", {**row, **entry._asdict()})
