"""Batches of ledger operations: many holds, captures or charges in one transaction.

Each function does for a list what its counterpart in `ledger` does for one item, with one statement of each
kind, and applies either all items or none. If a batch fails, the caller repeats its items one at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sixfold import errors
from sixfold.core.accounts import ledger, limits
from sixfold.core.accounts.limits import Payer
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Transaction, Value, now


class HoldRequest(NamedTuple):
    """Arguments of one hold, as in `ledger.hold`."""

    account_id: str
    hold_id: str
    amount: int
    payer: Payer | None = None
    about: str | None = None


class Capture(NamedTuple):
    """Arguments of one capture; an `amount` of 0 releases the hold.

    `held` is the amount of the hold, `held_at` its time in epoch µs, and `key_id` the key whose budgets it
    counted against.
    """

    account_id: str
    hold_id: str
    held: int
    amount: int
    entry: ledger.LedgerEntry
    key_id: str | None = None
    held_at: int = 0


class DirectCharge(NamedTuple):
    """A charge without an earlier hold: `amount`, at most `most`."""

    account_id: str
    hold_id: str
    most: int
    amount: int
    entry: ledger.LedgerEntry
    payer: Payer | None = None


def hold_all(wanted: Sequence[HoldRequest]) -> Transaction[int]:
    """Reserve every amount or none, and return the transaction's time in epoch µs.

    Raises `InsufficientCredits` or `BudgetExceeded` if the sum of all requests does not fit.
    """
    if any(each.amount <= 0 for each in wanted):
        raise ledger.LedgerError("a hold needs a positive amount")
    of_account, of_key = _sums(wanted)
    yield Query("hold_insert", {}, [_hold_row(each) for each in wanted])
    for payer, amount in of_key.items():
        yield from limits.spend(payer, amount)
    for account_id, amount in of_account.items():
        if not (yield Query("ledger_reserve", {"account_id": account_id, "amount": amount})):
            raise errors.InsufficientCredits
    return (yield from now())


def _sums(asked: Iterable[HoldRequest | DirectCharge]) -> tuple[Counter[str], Counter[Payer]]:
    """Return the amounts per account and per key with a budget."""
    of_account, of_key = Counter[str](), Counter[Payer]()
    for each in asked:
        of_account[each.account_id] += each.amount
        if each.payer is not None:
            of_key[each.payer] += each.amount
    return of_account, of_key


def _hold_row(wanted: HoldRequest) -> dict[str, Value]:
    key_id = wanted.payer.key_id if wanted.payer is not None else None
    return {
        "id": wanted.hold_id,
        "account_id": wanted.account_id,
        "amount": wanted.amount,
        "key_id": key_id,
        "about": wanted.about,
    }


def capture_all(charges: Sequence[Capture]) -> Transaction[None]:
    """End all of the pending holds or none; raises `LedgerError` as `ledger.capture` does."""
    rows = [_charge_row(charge) for charge in charges]
    told = yield Query("hold_end_each", {}, rows)
    if told[0]["changed"] != len(charges) or any(charge.amount > charge.held for charge in charges):
        raise ledger.LedgerError(
            "a hold is not pending, or holds another amount or less than is to be captured"
        )
    held, paid, unspent = Counter[str](), Counter[str](), Counter[tuple[str, int]]()
    for charge in charges:
        held[charge.account_id] += charge.held
        paid[charge.account_id] += charge.amount
        if charge.key_id is not None:
            unspent[charge.key_id, charge.held_at // DAY_US] += charge.held - charge.amount
    for account_id, amount in held.items():
        params = {"account_id": account_id, "amount": amount, "captured": paid[account_id]}
        yield Query("ledger_settle", params)
    if total := paid.total():
        yield Query("ledger_post", {"account_id": ledger.REVENUE, "amount": total})
        yield Query("transfer_of_each", {}, [row for row in rows if row["captured"]])
    for (key_id, day), amount in unspent.items():
        if amount:
            yield from limits.give_back(key_id, day * DAY_US, amount)


def charge_all(purchases: Sequence[DirectCharge]) -> Transaction[None]:
    """Charge all amounts or none; raises `InsufficientCredits` or `BudgetExceeded`.

    Each charge is stored as a hold that is captured at once. The balance must cover the actual amounts, not
    their maximums.
    """
    if any(not 0 < each.amount <= each.most for each in purchases):
        raise ledger.LedgerError("a charge needs a positive amount, and no more than was foreseen")
    of_account, of_key = _sums(purchases)
    for payer, amount in of_key.items():
        yield from limits.spend(payer, amount)
    for account_id, amount in of_account.items():
        if not (yield Query("ledger_spend", {"account_id": account_id, "amount": amount})):
            raise errors.InsufficientCredits
    rows = [_purchase_row(each) for each in purchases]
    yield Query("hold_insert_captured", {}, rows)
    yield Query("transfer_of_each", {}, rows)
    yield Query("ledger_post", {"account_id": ledger.REVENUE, "amount": of_account.total()})


def _purchase_row(purchase: DirectCharge) -> dict[str, Value]:
    key_id = purchase.payer.key_id if purchase.payer is not None else None
    held = Capture(purchase.account_id, purchase.hold_id, purchase.most, purchase.amount, purchase.entry)
    return {**_charge_row(held), "key_id": key_id}


def _charge_row(charge: Capture) -> dict[str, Value]:
    kind, description, request_id, itemized = charge.entry
    return {
        "id": charge.hold_id,
        "account_id": charge.account_id,
        "amount": charge.held,
        "state": "captured" if charge.amount > 0 else "released",
        "captured": charge.amount,
        "credit": ledger.REVENUE,
        "kind": kind,
        "description": description,
        "request_id": request_id,
        "charge": itemized,
    }
