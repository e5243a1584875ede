"""Operators' actions on accounts: invite, credit, suspend, limit; each is recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, money, pagination
from sixfold.core.accounts import accounts, audit_log, idempotency, keys
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey, Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.operation import actions
from sixfold.core.accounts.organizations import organizations
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, now, one

INVITATION_DAYS = 7
MAX_REASON = 200
STARTING_CREDIT = "Starting credit"
# The largest credit of one action, in micro-dollars.
MAX_CREDIT = 10**12


class AccountsPage(msgspec.Struct, frozen=True):
    """A page of accounts, newest first; `next_cursor` is None on the last page."""

    accounts: tuple[Row, ...]
    next_cursor: str | None


class InvitedAccount(msgspec.Struct, frozen=True):
    """An account, and a token that signs in to it once within `INVITATION_DAYS`."""

    account: Account
    token: str


def page(text: str, limit: int, cursor: str | None) -> Transaction[AccountsPage]:
    """Return at most `limit` accounts whose e-mail address contains `text`; raises `BadRequest`."""
    params = {
        "before_id": pagination.id_before(cursor),
        "pattern": pagination.contains_pattern(text.lower()),
        "limit": limit + 1,
    }
    rows = yield Query("operator_accounts", params)
    entries = tuple(rows[:limit])
    return AccountsPage(entries, str(entries[-1]["id"]) if len(rows) > limit else None)


def invite(
    actor: Principal, email: str, credit: int = 0, reason: str = STARTING_CREDIT
) -> Transaction[InvitedAccount]:
    """Create an account for a person, and a sign-in link; raises `BadRequest` and `Conflict`.

    The first sign-in books `credit` micro-dollars, with `reason` in the ledger. If the operator creates a key
    of the account before, that books it.
    """
    if not 0 <= credit <= MAX_CREDIT:
        most = money.format_usd(MAX_CREDIT)
        raise errors.InvalidInput.of("credit_usd", f"credit_usd must be from 0 to {most} USD")
    account = yield from accounts.create(email)
    after = {"credit_usd": money.format_usd(credit)}
    if credit:
        after["reason"] = _reason(reason)
        pending = {"id": account.id, "amount": credit, "reason": after["reason"]}
        yield Query("invitation_credit_set", pending)
    yield actions.note(actor, "account.invite", account.id, after=after)
    token = yield from _link(account)
    return InvitedAccount((yield from accounts.by_id(account.id)), token)


def sign_in_link(actor: Principal, account_id: str) -> Transaction[InvitedAccount]:
    """Create a new sign-in link for an account; raises `NotFound`, and `BadRequest` for an organization."""
    account = yield from find(account_id)
    if not account.has_sign_in:
        raise errors.BadRequest(
            "An organization cannot sign in: invite its members, who sign in with their own accounts"
        )
    yield actions.note(actor, "account.link", account.id)
    return InvitedAccount(account, (yield from _link(account)))


def _link(account: Account) -> Transaction[str]:
    yield Query("link_request_end", {"id": account.id})
    return (yield from login_sessions.new_link(account.id, (yield from now()), INVITATION_DAYS * DAY_US))


def credit(
    actor: Principal, account_id: str, amount: int, reason: str, once: str | None = None
) -> Transaction[Account]:
    """Add `amount` micro-dollars, or withdraw a negative amount, with a reason.

    Raises `InvalidInput`, and `IdempotencyMismatch` for another amount with the same key. `once` is the id of
    a request with an Idempotency-Key. Its repetitions have no effect, also if the server stopped, or lost its
    database, before it stored the response.
    """
    text = _reason(reason)
    if abs(amount) > MAX_CREDIT:
        most = money.format_usd(MAX_CREDIT)
        raise errors.InvalidInput.of("amount_usd", f"amount_usd must be from -{most} to {most} USD")
    before = yield from accounts.by_id(account_id)
    transfer_id = ids.new("txn")
    if once is not None:
        transfer_id, earlier = yield from _credit_of_key(f"credit:{once}")
        if earlier is not None:
            sign = 1 if earlier["credit"] == account_id else -1
            if sign * int(earlier["amount"]) != amount:
                raise errors.IdempotencyMismatch
            return before
    after = yield from accounts.credit(before.email, amount, text, transfer_id)
    balances = [{"balance_usd": money.format_usd(each.posted)} for each in (before, after)]
    yield actions.note(actor, "account.credit", account_id, balances[0], {**balances[1], "reason": text})
    return after


def _credit_of_key(name: str) -> Transaction[tuple[str, Row | None]]:
    """Return the id of the transfer for a use of a key, and the transfer if it exists.

    A key is a new one after its expiry, and each of its uses has a transfer with the next number.
    """
    number, moment, transfer_id = 1, (yield from now()), name
    while (earlier := (yield from one("transfer_by_id", id=transfer_id))) is not None:
        if moment - int(earlier["created_at"]) < idempotency.LIFE_US:
            break
        number += 1
        transfer_id = f"{name}:{number}"
    return transfer_id, earlier


def _reason(reason: str) -> str:
    text = " ".join(reason.split())
    if not text or len(text) > MAX_REASON or not text.isprintable():
        raise errors.InvalidInput.of(
            "reason", f"reason must have 1 to {MAX_REASON} printable characters, which the ledger shows"
        )
    return text


def pending_credit(account_id: str) -> Transaction[Row | None]:
    """Return the `amount` and `reason` of the credit that the account's first sign-in books, or None."""
    return (yield from one("invitation_credit", id=account_id))


def suspend(actor: Principal, account_id: str, *, suspended: bool, reason: str = "") -> Transaction[Account]:
    """Suspend an account, which refuses all requests of its keys and ends its sessions, or restore it.

    Runs that were accepted earlier are completed. Raises `NotFound`, and `BadRequest` for the operator's
    account.
    """
    account = yield from find(account_id)
    if account.is_operator:
        raise errors.BadRequest("The operator's account cannot be suspended")
    if (yield Query("account_suspend", {"id": account_id, "suspended": int(suspended)})):
        action = "account.suspend" if suspended else "account.resume"
        after = {"suspended": suspended, "reason": " ".join(reason.split())[:MAX_REASON]}
        yield actions.note(actor, action, account_id, {"suspended": not suspended}, after)
        yield from audit_log.note(account_id, action)
    return (yield from accounts.by_id(account_id))


def set_budgets(
    actor: Principal, account_id: str, day: int | None, month: int | None
) -> Transaction[Account]:
    """Limit the spending of an account per day and month, in micro-dollars; None removes a limit.

    The owner and the admins of the account cannot change these budgets; the budgets that they set also apply.
    """
    before = yield from find(account_id)
    yield from organizations.begin_budgets(account_id, (day, month))
    yield Query("account_limit", {"id": account_id, "operator_day": day, "operator_month": month})
    yield from audit_log.note(account_id, "account.budgets", budgets.format_budgets(day, month))
    after = yield from accounts.by_id(account_id)
    yield actions.note(actor, "account.budgets", account_id, _budgets(before), _budgets(after))
    return after


def _budgets(account: Account) -> dict[str, Any]:
    limits = {"budget_day_usd": account.operator_day, "budget_month_usd": account.operator_month}
    return {name: None if limit is None else money.format_usd(limit) for name, limit in limits.items()}


def create_key(actor: Principal, account_id: str, name: str, scope: KeyLimits) -> Transaction[NewKey]:
    """Create a key of an account, without the right `operate`; raises `BadRequest` and `NotFound`."""
    yield from find(account_id)
    yield from accounts.accept_invitation(account_id)
    key = yield from keys.create(account_id, scope, holder=Holder(name=name))
    yield actions.note(actor, "key.create", account_id, after={"key": key.id, "name": name})
    return key


def revoke_key(actor: Principal, account_id: str, key_id: str) -> Transaction[None]:
    """Revoke a key of an account; raises `NotFound`."""
    yield from keys.find(account_id, key_id)
    yield from keys.revoke(key_id)
    yield actions.note(actor, "key.revoke", account_id, before={"key": key_id})


def find(account_id: str) -> Transaction[Account]:
    """Return the account of a user or an organization; raises `NotFound`."""
    account = yield from accounts.by_id(account_id)
    if account.kind == "system" or not account.email:
        raise errors.NotFound("Account not found")
    return account
