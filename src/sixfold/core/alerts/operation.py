"""Operators' view of the cost alerts of all accounts; each change is recorded."""

from __future__ import annotations

import msgspec

from sixfold import errors
from sixfold.core import money, pagination
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.database import Row, Transaction, many, one


class AlertPage(msgspec.Struct, frozen=True):
    """A page of alerts with the `email` of each account, newest first."""

    alerts: tuple[Row, ...]
    next_cursor: str | None


def page(limit: int, cursor: str | None) -> Transaction[AlertPage]:
    """Return at most `limit` alerts of all accounts; raises `BadRequest` for an invalid cursor."""
    rows = yield from many("alerts_of_all", before_id=pagination.id_before(cursor, "alert_"), limit=limit + 1)
    entries = tuple(rows[:limit])
    return AlertPage(entries, str(entries[-1]["id"]) if len(rows) > limit else None)


def create(actor: Principal, account_id: str, alert: CostAlert) -> Transaction[Row]:
    """Insert an alert of an account, and return its row; raises `NotFound` and `Conflict`."""
    account = yield from customers.find(account_id)
    row = yield from alerts.create(account.id, alert, by_operator=True)
    yield actions.note(actor, "alert.create", account.id, after=_described(row))
    return {**row, "email": account.email}


def delete(actor: Principal, alert_id: str) -> Transaction[None]:
    """Delete an alert of any account; raises `NotFound`."""
    row = yield from one("alert_by_id", id=alert_id)
    if row is None:
        raise errors.NotFound(f"The alert {alert_id[:100]!r} was not found")
    yield from alerts.delete(str(row["account_id"]), alert_id, with_operators=True)
    yield actions.note(actor, "alert.delete", str(row["account_id"]), _described(row))


def _described(row: Row) -> dict[str, str]:
    threshold = f"{money.format_usd(row['threshold'])} USD per {row['period']}"
    of_key = {"key": str(row["key_id"])} if row["key_id"] else {}
    return {"threshold": threshold, **of_key, "receiver": actions.url_origin(str(row["url"]))}
