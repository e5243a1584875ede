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
    """A charge without an earlier hold: `amount`, at most `max_amount`."""

    account_id: str
    hold_id: str
    max_amount: int
    amount: int
    entry: ledger.LedgerEntry
    payer: Payer | None = None


def hold_all(requests: Sequence[HoldRequest]) -> Transaction[int]:
    """Reserve every amount or none, and return the transaction's time in epoch µs.

    Raises `InsufficientCredits` or `BudgetExceeded` if the sum of all requests does not fit.
    """
    if any(each.amount <= 0 for each in requests):
        raise ledger.LedgerError("the amount of a hold must be positive")
    by_account, by_payer = _sums(requests)
    yield Query("hold_insert", {}, [_hold_row(each) for each in requests])
    for payer, amount in by_payer.items():
        yield from limits.spend(payer, amount)
    for account_id, amount in by_account.items():
        if not (yield Query("ledger_reserve", {"account_id": account_id, "amount": amount})):
            raise errors.InsufficientCredits
    return (yield from now())


def _sums(requests: Iterable[HoldRequest | DirectCharge]) -> tuple[Counter[str], Counter[Payer]]:
    """Return the amounts per account and per key with a budget."""
    by_account, by_payer = Counter[str](), Counter[Payer]()
    for each in requests:
        by_account[each.account_id] += each.amount
        if each.payer is not None:
            by_payer[each.payer] += each.amount
    return by_account, by_payer


def _hold_row(request: HoldRequest) -> dict[str, Value]:
    key_id = request.payer.key_id if request.payer is not None else None
    return {
        "id": request.hold_id,
        "account_id": request.account_id,
        "amount": request.amount,
        "key_id": key_id,
        "about": request.about,
    }


def capture_all(captures: Sequence[Capture]) -> Transaction[None]:
    """End all of the pending holds or none; raises `LedgerError` as `ledger.capture` does."""
    rows = [_capture_row(capture) for capture in captures]
    result = yield Query("hold_end_each", {}, rows)
    if result[0]["changed"] != len(captures) or any(each.amount > each.held for each in captures):
        raise ledger.LedgerError(
            "a hold is not pending, has another amount, or is less than the amount to capture"
        )
    held, charged = Counter[str](), Counter[str]()
    # By key and day: what its budgets get back.
    unspent = Counter[tuple[str, int]]()
    for capture in captures:
        held[capture.account_id] += capture.held
        charged[capture.account_id] += capture.amount
        if capture.key_id is not None:
            unspent[capture.key_id, capture.held_at // DAY_US] += capture.held - capture.amount
    for account_id, amount in held.items():
        params = {"account_id": account_id, "amount": amount, "captured": charged[account_id]}
        yield Query("ledger_settle", params)
    if total := charged.total():
        yield Query("ledger_post", {"account_id": ledger.REVENUE, "amount": total})
        yield Query("transfer_of_each", {}, [row for row in rows if row["captured"]])
    for (key_id, day), amount in unspent.items():
        if amount:
            yield from limits.restore(key_id, day * DAY_US, amount)


def charge_all(charges: Sequence[DirectCharge]) -> Transaction[None]:
    """Charge all amounts or none; raises `InsufficientCredits` or `BudgetExceeded`.

    Each charge is stored as a hold that is captured at once. The balance must cover the actual amounts, not
    their maximums.
    """
    if any(not 0 < each.amount <= each.max_amount for each in charges):
        raise ledger.LedgerError("the amount of a charge must be positive and at most its maximum")
    by_account, by_payer = _sums(charges)
    for payer, amount in by_payer.items():
        yield from limits.spend(payer, amount)
    for account_id, amount in by_account.items():
        if not (yield Query("ledger_spend", {"account_id": account_id, "amount": amount})):
            raise errors.InsufficientCredits
    rows = [_charge_row(each) for each in charges]
    yield Query("hold_insert_captured", {}, rows)
    yield Query("transfer_of_each", {}, rows)
    yield Query("ledger_post", {"account_id": ledger.REVENUE, "amount": by_account.total()})


def _charge_row(charge: DirectCharge) -> dict[str, Value]:
    key_id = charge.payer.key_id if charge.payer is not None else None
    capture = Capture(charge.account_id, charge.hold_id, charge.max_amount, charge.amount, charge.entry)
    return {**_capture_row(capture), "key_id": key_id}


def _capture_row(capture: Capture) -> dict[str, Value]:
    kind, description, request_id, itemized = capture.entry
    return {
        "id": capture.hold_id,
        "account_id": capture.account_id,
        "amount": capture.held,
        "state": "captured" if capture.amount > 0 else "released",
        "captured": capture.amount,
        "credit": ledger.REVENUE,
        "kind": kind,
        "description": description,
        "request_id": request_id,
        "charge": itemized,
    }
