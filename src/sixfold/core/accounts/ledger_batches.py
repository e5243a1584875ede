"""Batches of ledger operations: many holds, captures or charges in one transaction.

Each function processes a list of items as its counterpart in `ledger` processes one item, with one statement
of each kind, and applies either all items or none. If a batch fails, the caller repeats its items one at a
time. Batches of several servers run at the same time and lock budgets, then accounts, each in the order of
their ids, and the revenue last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sixfold import errors
from sixfold.core.accounts import ledger
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.clock import DAY_US
from sixfold.core.database import ChangeRefused, Query, Transaction, Value, finish


class HoldRequest(NamedTuple):
    """The arguments of one hold, as in `ledger.hold`."""

    account_id: str
    hold_id: str
    amount: int
    payer: Payer | None = None
    about: str | None = None


class Capture(NamedTuple):
    """The arguments of one capture; an `amount` of 0 releases the hold.

    `held` is the amount of the hold, and `held_at` is its time in epoch µs. `counted` contains the ids of the
    budgets that counted the hold, separated by spaces.
    """

    account_id: str
    hold_id: str
    held: int
    amount: int
    entry: ledger.LedgerEntry
    counted: str = ""
    held_at: int = 0


class DirectCharge(NamedTuple):
    """A charge of `amount` without an earlier hold; `max_amount` is its maximum."""

    account_id: str
    hold_id: str
    max_amount: int
    amount: int
    entry: ledger.LedgerEntry
    payer: Payer | None = None


def capture_all(captures: Sequence[Capture]) -> Transaction[None]:
    """End all of the pending holds or none; raises `LedgerError` as `ledger.capture` does."""
    yield from book(captures=captures)


def book(
    *,
    holds: Sequence[HoldRequest] = (),
    captures: Sequence[Capture] = (),
    charges: Sequence[DirectCharge] = (),
    records: Query | None = None,
) -> Transaction[int]:
    """Hold, capture and charge all items or none; return the transaction's time in epoch µs.

    Balances must cover all holds and charges before the captures release any amount. `records` is a query
    with `each` that runs before the others. Raises `InsufficientCredits`, `BudgetExceeded` or `LedgerError`.
    """
    _check(holds, captures, charges)
    spending = Counter[Payer]()
    for each in (*holds, *charges):
        if each.payer is not None:
            spending[each.payer] += each.amount
    ends, purchases = (
        [_capture_row(capture) for capture in captures],
        [_charge_row(charge) for charge in charges],
    )
    try:
        return (
            yield from finish(
                *([records] if records is not None else ()),
                Query("hold_insert", {}, [_hold_row(hold) for hold in holds]),
                Query("hold_end_each", {}, ends, expected=len(ends)),
                Query("hold_insert_captured", {}, purchases),
                Query("transfer_of_each", {}, [row for row in (*ends, *purchases) if row["captured"]]),
                budgets.change_spending(spending, _unspent(captures)),
                _balances(holds, captures, charges),
            )
        )
    except ChangeRefused as refused:
        error = _ERRORS[str(refused)]
    if error is errors.BudgetExceeded and len(spending) == 1:
        for payer, amount in spending.items():
            # Nothing has been counted. The following call raises the error with the name of the exceeded
            # budget.
            yield from budgets.spend(payer, amount)
    raise error()


def _not_pending() -> ledger.LedgerError:
    return ledger.LedgerError("a hold is not pending, or has a different amount")


# The error for each query that changes fewer rows than expected.
_ERRORS: Mapping[str, Callable[[], Exception]] = {
    "hold_end_each": _not_pending,
    "key_spend_change": errors.BudgetExceeded,
    "ledger_change": errors.InsufficientCredits,
}


def _check(
    holds: Sequence[HoldRequest], captures: Iterable[Capture], charges: Sequence[DirectCharge]
) -> None:
    if any(hold.amount <= 0 for hold in holds):
        raise ledger.LedgerError("the amount of a hold must be positive")
    amounts = Counter[str]()
    for each in (*holds, *charges):
        amounts[each.account_id] += each.amount
    if any(amount > ledger.MAX_BALANCE for amount in amounts.values()):
        # More than 64 bits cannot be stored.
        raise errors.InsufficientCredits
    if any(capture.amount > capture.held for capture in captures):
        raise ledger.LedgerError("a hold is less than the amount to capture")
    if any(not 0 < charge.amount <= charge.max_amount for charge in charges):
        raise ledger.LedgerError("the amount of a charge must be positive and at most its maximum")


def _unspent(captures: Iterable[Capture]) -> Counter[tuple[str, int]]:
    """Return the amounts to return to budgets, by budget and by the start of the hold's day."""
    unspent = Counter[tuple[str, int]]()
    for capture in captures:
        for budget_id in capture.counted.split():
            unspent[budget_id, capture.held_at // DAY_US * DAY_US] += capture.held - capture.amount
    return unspent


def _balances(
    holds: Iterable[HoldRequest], captures: Iterable[Capture], charges: Iterable[DirectCharge]
) -> Query:
    """Return one change for each account, ordered by account id, with the revenue last."""
    hold_totals, posting_totals, required_totals = Counter[str](), Counter[str](), Counter[str]()
    for hold in holds:
        hold_totals[hold.account_id] += hold.amount
        required_totals[hold.account_id] += hold.amount
    for capture in captures:
        hold_totals[capture.account_id] -= capture.held
        posting_totals[capture.account_id] -= capture.amount
    for charge in charges:
        posting_totals[charge.account_id] -= charge.amount
        required_totals[charge.account_id] += charge.amount
    revenue = -posting_totals.total()
    rows = [
        _balance_row(each, hold_totals[each], posting_totals[each], required_totals[each])
        for each in sorted({*hold_totals, *posting_totals})
    ]
    if revenue:
        rows.append(_balance_row(ledger.REVENUE, 0, revenue, 0))
    return Query("ledger_change", {}, rows, expected=len(rows), sums=("held", "posted", "needed"))


def _balance_row(account_id: str, held: int, posted: int, needed: int) -> dict[str, Value]:
    return {"account_id": account_id, "held": held, "posted": posted, "needed": needed}


def _hold_row(request: HoldRequest) -> dict[str, Value]:
    counted = request.payer.counted if request.payer is not None else None
    return {
        "id": request.hold_id,
        "account_id": request.account_id,
        "amount": request.amount,
        "key_id": counted,
        "about": request.about,
    }


def _charge_row(charge: DirectCharge) -> dict[str, Value]:
    counted = charge.payer.counted if charge.payer is not None else None
    capture = Capture(charge.account_id, charge.hold_id, charge.max_amount, charge.amount, charge.entry)
    return {**_capture_row(capture), "key_id": counted}


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
