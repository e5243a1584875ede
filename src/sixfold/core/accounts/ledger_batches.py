"""Many holds made, or ended, in one transaction: a statement of each kind for all, or nothing at all.

It is what `ledger` does for one. Whoever has several at hand tries them together here, and each by itself
where that is refused.
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
    """A hold that is asked for beside others."""

    account_id: str
    hold_id: str
    amount: int
    payer: Payer | None = None
    about: str | None = None


class Capture(NamedTuple):
    """What is to be captured of a hold, beside others; an `amount` of 0 releases it.

    `key_id` is whose budgets it counts against, `held_at` (epoch µs) when it was made.
    """

    account_id: str
    hold_id: str
    held: int
    amount: int
    entry: ledger.LedgerEntry
    key_id: str | None = None
    held_at: int = 0


class DirectCharge(NamedTuple):
    """What is to be charged beside others though it was never held: `amount` of at most `most`."""

    account_id: str
    hold_id: str
    most: int
    amount: int
    entry: ledger.LedgerEntry
    payer: Payer | None = None


def hold_all(wanted: Sequence[HoldRequest]) -> Transaction[int]:
    """Set every amount aside or none: raises what `hold` raises where all of them do not fit together.

    Gives the moment of it.
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
    """What is asked of each account, and of each key's budgets."""
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
    """End many pending holds, all of them or none; raises `LedgerError` as `capture` does."""
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
    """Charge all of them or none, each by a hold that ends as it is made; raises what `hold_all` raises.

    What has to fit is what each costs, not what it might have cost.
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
    """A hold that was captured as it was made, and what the journal says of it."""
    key_id = purchase.payer.key_id if purchase.payer is not None else None
    held = Capture(purchase.account_id, purchase.hold_id, purchase.most, purchase.amount, purchase.entry)
    return {**_charge_row(held), "key_id": key_id}


def _charge_row(charge: Capture) -> dict[str, Value]:
    """What ends a hold, and what the journal says of it."""
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
