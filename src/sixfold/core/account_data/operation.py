"""Operators' deletion of accounts and its cancellation; each is recorded."""

from __future__ import annotations

from sixfold import errors
from sixfold.core.account_data import deletion
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.clock import rfc3339
from sixfold.core.database import Transaction


def close(actor: Principal, account_id: str, days: float, confirmation: str) -> Transaction[int]:
    """Close an account for `days` and return the time of its erasure (epoch µs).

    `confirmation` is its e-mail address or name. If its user has closed the account, the user can no longer
    cancel that.

    Raises `NotFound`, `BadRequest` for another confirmation, `Forbidden` for the operator's account, and
    `Conflict` for an account that an operator has closed or whose user owns an organization.
    """
    account = yield from customers.find(account_id)
    if confirmation.strip().lower() != account.email:
        raise errors.BadRequest(
            f"Enter {account.email} to delete this account (got {confirmation[:80]!r}): nothing was changed"
        )
    if account.closing_at and account.closed_by_operator:
        raise errors.Conflict(
            f"The account is already closed: it will be erased on {_date(account.closing_at)}"
        )
    erased_at = yield from deletion.close(account, days, by_operator=True)
    yield actions.note(actor, "account.close", account.id, after={"erased_at": rfc3339(erased_at)})
    return erased_at


def keep(actor: Principal, account_id: str) -> Transaction[None]:
    """Reopen a closed account; raises `NotFound`, and `Conflict` for an account that is not closed."""
    account = yield from customers.find(account_id)
    if not account.closing_at:
        raise errors.Conflict("The account is not closed")
    yield from deletion.reopen(account.id, by_operator=True)
    yield actions.note(actor, "account.keep", account.id, before={"erased_at": rfc3339(account.closing_at)})


def _date(moment: int) -> str:
    return (rfc3339(moment) or "")[:10]
