"""Ledger queries: the entries of an account, its spending by day and model, and the consistency checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypedDict

import msgspec

from sixfold.core import money, pagination
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import ChargeSchema
from sixfold.core.clock import DAY_US, rfc3339
from sixfold.core.database import Query, Row, Transaction, many, now, one

# The latest time that a cursor may contain.
_END_OF_TIME = 10**18 - 1


class LedgerPage(msgspec.Struct, frozen=True):
    """A page of an account's entries, newest first; `next_cursor` is None on the last page.

    The last entry is the closing balance of archived charges, if charges were archived.
    """

    entries: tuple[Row, ...]
    next_cursor: str | None


def page(account_id: str, limit: int, cursor: str | None) -> Transaction[LedgerPage]:
    """Return at most `limit` entries of an account; `cursor` is the `next_cursor` of the previous page.

    Raises `BadRequest` for an invalid cursor.
    """
    before_at, before_id = _parse_cursor(cursor)
    rows = yield Query(
        "ledger_page",
        {"account_id": account_id, "before_at": before_at, "before_id": before_id, "limit": limit + 1},
    )
    entries = tuple(rows[:limit])
    has_more = len(rows) > limit
    closing = None if has_more else (yield from one("closing_entry", account_id=account_id))
    if closing is not None and len(entries) < limit:
        return LedgerPage((*entries, closing), None)
    has_more = has_more or closing is not None
    return LedgerPage(
        entries, pagination.pair_cursor(entries[-1]["created_at"], entries[-1]["id"]) if has_more else None
    )


class LedgerEntrySchema(TypedDict):
    """A ledger entry as JSON; amounts are decimal strings in USD."""

    id: str
    created_at: str
    amount_usd: str
    kind: str
    description: str
    request_id: str | None
    charge: ChargeSchema | None


def to_json(entry: Row) -> LedgerEntrySchema:
    """Return a ledger entry as JSON, with `charge` formatted as by `charges.to_json`."""
    return {
        "id": entry["id"],
        "created_at": rfc3339(entry["created_at"]),
        "amount_usd": money.format_usd(entry["amount"]),
        "kind": entry["kind"],
        "description": entry["description"],
        "request_id": entry["request_id"],
        "charge": charges.to_json(charges.decode(entry["charge"])),
    }


def _parse_cursor(cursor: str | None) -> tuple[int, str]:
    at, entry_id = pagination.pair_of(cursor) or (str(_END_OF_TIME), "")
    if not at.isdecimal() or not at.isascii() or len(at) > 18:
        raise pagination.InvalidCursor
    return int(at), entry_id


# -- spending ----------------------------------------------------------------------------------------

# The beginning of the list price at the end of a description, as in `receipt.entry`.
_LIST_PRICE = " (list price "
# The string that follows the model in an entry's description, by the entry's kind.
_SUFFIXES = {"chat": " by ", "charge": " by ", "session": ": minute "}


class Spending(msgspec.Struct, frozen=True):
    """Spending in micro-dollars by day (start in epoch µs, UTC, oldest first) and by model, highest first."""

    days: Mapping[int, Mapping[str, int]]
    models: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.models.values())


def spending(account_id: str, days: int) -> Transaction[Spending]:
    """Return the spending of the last `days` days, including today."""
    today = (yield from now()) // DAY_US
    first = today - days + 1
    rows = yield from many("spending", account_id=account_id, since=first * DAY_US)
    spent: dict[int, Counter[str]] = {day: Counter() for day in range(first, today + 1)}
    for row in rows:
        # A new day may have begun between the two queries.
        if row["day"] in spent:
            spent[row["day"]][model_of(row["kind"], row["description"])] += row["micros"]
    models: Counter[str] = Counter()
    for day in spent.values():
        models.update(day)
    return Spending({day * DAY_US: by_model for day, by_model in spent.items()}, dict(models.most_common()))


def model_of(kind: str, description: str) -> str:
    """Return the model that the description of an entry names."""
    if kind == "refund":
        # The reason for the refund follows, which may contain colons.
        return description.partition(": ")[0]
    suffix, text = _SUFFIXES.get(kind), description.partition(_LIST_PRICE)[0]
    return text if suffix is None else text.rpartition(suffix)[0] or text


# -- consistency -------------------------------------------------------------------------------------

# The checks of `verify`: the name of a query that returns violations, and the sentence for each violation.
CHECKS: Mapping[str, str] = {
    "ledger_drift_posted": "balance differs from the sum of its entries",
    "ledger_drift_held": "held amount differs from the pending holds",
    "ledger_overdrawn": "balance is below zero",
    "ledger_holds_without_transfer": "captured hold and entry differ",
    "ledger_predictions_unsettled": "states of prediction and hold contradict each other",
    "ledger_refunds_with_results": "charge was refunded, but the result is still available",
    "ledger_children_unpaid": "workflow was not paid, but the result of this part is still available",
    "ledger_parts_before_payment": "result is available, but its parent is not paid",
    "ledger_sessions_unsettled": "states of session and billing intervals contradict each other",
}


def verify() -> Transaction[tuple[str, ...]]:
    """Check the invariants of the ledger; return one sentence for each violation."""
    violations: list[str] = []
    total = yield from one("ledger_sum_posted")
    if total is not None and total["total"] != 0:
        violations.append(f"the sum of all balances is {total['total']} micro-dollars instead of 0")
    for name, sentence in CHECKS.items():
        rows = yield Query(name, {})
        violations += [f"{row['id']}: {sentence}" for row in rows]
    return tuple(violations)
