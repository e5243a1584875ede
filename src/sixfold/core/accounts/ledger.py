"""Double-entry money: holds when work is accepted, captures with its success, releases otherwise.

Every function is a transaction (see `core.database`) to be run inside the caller's own, so that a
prediction and its money change together or not at all. Amounts are micro-dollars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import limits
from sixfold.core.accounts.limits import Payer
from sixfold.core.clock import DAY_US
from sixfold.core.database import Each, Query, Row, Transaction, now, one

WORLD = "world"
REVENUE = "revenue"


class LedgerFault(Exception):
    """The ledger was asked for something that may never happen; the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Why money moved: what a person reads beside the amount."""

    kind: str
    description: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A hold that is asked for beside others."""

    account_id: str
    hold_id: str
    amount: int
    payer: Payer | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What is to be captured of a hold, beside others; an `amount` of 0 releases it.

    `key_id` is whose budgets it counts against, `held_at` (epoch µs) when it was made.
    """

    account_id: str
    hold_id: str
    held: int
    amount: int
    entry: Entry
    key_id: str | None = None
    held_at: int = 0


def hold(account_id: str, hold_id: str, amount: int, payer: Payer | None = None) -> Transaction[None]:
    """Set `amount` aside; raises `InsufficientCredits` when less is available.

    With a `payer` it counts against that key's budgets, too; raises `BudgetExceeded`.
    """
    if amount <= 0:
        raise LedgerFault("a hold needs a positive amount")
    if payer is not None:
        yield from limits.spend(payer, amount)
    rows = yield Query("ledger_reserve", {"account_id": account_id, "amount": amount})
    if not rows:
        raise errors.InsufficientCredits
    key_id = payer.key_id if payer is not None else None
    yield Query("hold_insert", {"id": hold_id, "account_id": account_id, "amount": amount, "key_id": key_id})


def capture(hold_id: str, amount: int, entry: Entry) -> Transaction[None]:
    """Charge `amount` of a pending hold and give the rest back; capturing 0 releases it."""
    if amount == 0:
        yield from release(hold_id)
        return
    ended = yield Query("hold_end", {"id": hold_id, "state": "captured", "captured": amount})
    if not ended:
        raise LedgerFault(f"hold {hold_id} is not pending, or holds less than is to be captured")
    account_id = str(ended[0]["account_id"])
    held = int(ended[0]["amount"])
    yield Query("ledger_settle", {"account_id": account_id, "amount": held, "captured": amount})
    yield Query("ledger_post", {"account_id": REVENUE, "amount": amount})
    yield _transfer(f"capture:{hold_id}", (account_id, REVENUE), amount, entry, hold_id)
    yield from _uncount(ended[0], held - amount)


def release(hold_id: str) -> Transaction[None]:
    """Give a pending hold back, whole."""
    ended = yield Query("hold_end", {"id": hold_id, "state": "released", "captured": 0})
    if not ended:
        raise LedgerFault(f"hold {hold_id} is not pending")
    account_id, held = str(ended[0]["account_id"]), int(ended[0]["amount"])
    yield Query("ledger_settle", {"account_id": account_id, "amount": held, "captured": 0})
    yield from _uncount(ended[0], held)


def _uncount(hold_row: Row, amount: int) -> Transaction[None]:
    """Give a key's budgets back what was held for it and not charged."""
    if hold_row["key_id"] is not None and amount:
        yield from limits.give_back(str(hold_row["key_id"]), int(hold_row["created_at"]), amount)


def hold_all(wanted: Sequence[Wanted]) -> Transaction[int]:
    """Set every amount aside or none: raises what `hold` raises where all of them do not fit together.

    Gives the moment of it.
    """
    if any(each.amount <= 0 for each in wanted):
        raise LedgerFault("a hold needs a positive amount")
    of_account, of_key = Counter[str](), Counter[Payer]()
    for each in wanted:
        of_account[each.account_id] += each.amount
        if each.payer is not None:
            of_key[each.payer] += each.amount
    yield Each("hold_insert", [_hold_row(each) for each in wanted])
    for payer, amount in of_key.items():
        yield from limits.spend(payer, amount)
    for account_id, amount in of_account.items():
        if not (yield Query("ledger_reserve", {"account_id": account_id, "amount": amount})):
            raise errors.InsufficientCredits
    return (yield from now())


def _hold_row(wanted: Wanted) -> dict[str, str | int | None]:
    key_id = wanted.payer.key_id if wanted.payer is not None else None
    return {
        "id": wanted.hold_id,
        "account_id": wanted.account_id,
        "amount": wanted.amount,
        "key_id": key_id,
    }


def capture_all(charges: Sequence[Charge]) -> Transaction[None]:
    """End many pending holds, all of them or none; raises `LedgerFault` as `capture` does."""
    states = ("released", "captured")
    told = yield Each(
        "hold_end_each",
        [
            {
                "id": charge.hold_id,
                "account_id": charge.account_id,
                "amount": charge.held,
                "state": states[charge.amount > 0],
                "captured": charge.amount,
            }
            for charge in charges
        ],
    )
    if told[0]["changed"] != len(charges) or any(charge.amount > charge.held for charge in charges):
        raise LedgerFault("a hold is not pending, or holds another amount or less than is to be captured")
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
        yield Query("ledger_post", {"account_id": REVENUE, "amount": total})
        yield Each("transfer_insert", [_capture_row(charge) for charge in charges if charge.amount])
    for (key_id, day), amount in unspent.items():
        if amount:
            yield from limits.give_back(key_id, day * DAY_US, amount)


def _capture_row(charge: Charge) -> dict[str, str | int | None]:
    sides = (charge.account_id, REVENUE)
    return _transfer_row(f"capture:{charge.hold_id}", sides, charge.amount, charge.entry, charge.hold_id)


def refund(hold_id: str, entry: Entry) -> Transaction[int]:
    """Give back what was captured of a hold, once; gives the amount, 0 when there is nothing to give."""
    captured = yield from one("transfer_of_hold", hold_id=hold_id)
    if captured is None or (yield from one("transfer_by_id", id=f"refund:{hold_id}")) is not None:
        return 0
    account_id, amount = str(captured["debit"]), int(captured["amount"])
    yield Query("ledger_post", {"account_id": REVENUE, "amount": -amount})
    yield Query("ledger_post", {"account_id": account_id, "amount": amount})
    yield _transfer(f"refund:{hold_id}", (REVENUE, account_id), amount, entry, None)
    return amount


def deposit(account_id: str, amount: int, entry: Entry, transfer_id: str | None = None) -> Transaction[None]:
    """Credit an account from the world outside; a negative amount takes it back."""
    if amount == 0:
        raise LedgerFault("a deposit needs an amount")
    source, target = (WORLD, account_id) if amount > 0 else (account_id, WORLD)
    size = abs(amount)
    yield Query("ledger_post", {"account_id": source, "amount": -size})
    posted = yield Query("ledger_post", {"account_id": target, "amount": size})
    if not posted:
        raise LedgerFault(f"there is no account {target}")
    yield _transfer(transfer_id or ids.new("txn"), (source, target), size, entry, None)


def _transfer(
    transfer_id: str, sides: tuple[str, str], amount: int, entry: Entry, hold_id: str | None
) -> Query:
    return Query("transfer_insert", _transfer_row(transfer_id, sides, amount, entry, hold_id))


def _transfer_row(
    transfer_id: str, sides: tuple[str, str], amount: int, entry: Entry, hold_id: str | None
) -> dict[str, str | int | None]:
    return {
        "id": transfer_id,
        "debit": sides[0],
        "credit": sides[1],
        "amount": amount,
        "hold_id": hold_id,
        "kind": entry.kind,
        "description": entry.description,
        "request_id": entry.request_id,
    }
