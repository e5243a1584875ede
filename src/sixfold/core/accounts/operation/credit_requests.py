"""Requests of users for credit, on servers without card payments; the operator adds credit or dismisses them.

An account has at most one request. It ends when the operator adds credit or dismisses it, or after
`LIFE_DAYS`.
"""

from __future__ import annotations

from sixfold.core.accounts import audit_log
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.clock import DAY_US, HOUR_US
from sixfold.core.database import Query, Row, Transaction

LIFE_DAYS = 7
# A further request within this time changes nothing, so that it adds no entries to the audit log.
_AGAIN_US = HOUR_US
_MAX_LISTED = 50


def submit(account_id: str) -> Transaction[None]:
    """Record that an account asks for credit."""
    for row in (yield Query("credit_request_begin", {"id": account_id, "again_us": _AGAIN_US})):
        yield from audit_log.note(row["id"], "credit.request")


def requested_at(account_id: str) -> Transaction[int | None]:
    """Return the time of the account's open request, or None."""
    rows = yield Query("credit_request", {"id": account_id, "life_us": LIFE_DAYS * DAY_US})
    return next((int(row["credit_requested_at"]) for row in rows), None)


def recent() -> Transaction[tuple[Row, ...]]:
    """Return the newest open requests: id, e-mail address and balance of the account, and the time."""
    return tuple((yield Query("credit_requests", {"life_us": LIFE_DAYS * DAY_US, "limit": _MAX_LISTED})))


def dismiss(actor: Principal, account_id: str) -> Transaction[None]:
    """End the request of an account without adding credit; raises `NotFound`."""
    account = yield from customers.find(account_id)
    yield Query("credit_request_end", {"id": account.id})
    yield actions.note(actor, "account.credit_dismiss", account.id)
