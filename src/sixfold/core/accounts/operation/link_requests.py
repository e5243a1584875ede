"""Requests of users for a new sign-in link, which the operator creates or dismisses.

An account has at most one request. It ends when a link is created, when the user signs in, when the operator
dismisses it, or after `LIFE_DAYS`.
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


def submit(email: str) -> Transaction[None]:
    """Record a request of the account with this address; do nothing if there is no such account."""
    for row in (yield Query("link_request_begin", {"email": email, "again_us": _AGAIN_US})):
        yield from audit_log.note(row["id"], "link.request")


def recent() -> Transaction[tuple[Row, ...]]:
    """Return the newest open requests: id and e-mail address of the account, and the time of the request."""
    return tuple((yield Query("link_requests", {"life_us": LIFE_DAYS * DAY_US, "limit": _MAX_LISTED})))


def dismiss(actor: Principal, account_id: str) -> Transaction[None]:
    """End the request of an account without creating a link; raises `NotFound`."""
    account = yield from customers.find(account_id)
    yield Query("link_request_end", {"id": account.id})
    yield actions.note(actor, "account.link_dismiss", account.id)
