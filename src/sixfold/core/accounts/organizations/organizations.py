"""Organizations: creation, budgets and transfer of ownership.

An organization is an account: it owns the balance, ledger, memory, files and runs. Its members are other
accounts, with which users sign in. The personal account of a user is an organization, too; its sign-in acts
as the owner until the organization is transferred.
"""

from __future__ import annotations

import re
import secrets

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.database import Query, Row, Transaction, many, now, one

MAX_OWNED = 20
MAX_BUDGET = 10**15
# Objects that the account's sign-in has created, which end with the membership of the user.
_TAKEN = (
    "keys_take",
    "grants_take",
    "invitations_take",
    "alerts_take",
    "hooks_take",
    "shares_take",
    "shared_folders_take",
)
_HANDLE = re.compile(r"[a-z0-9][a-z0-9-]{0,37}[a-z0-9]")


def create(person_id: str, handle: str) -> Transaction[Account]:
    """Create an organization without credit, owned by a user, and return its account.

    Raises `BadRequest` for an invalid handle, and `Conflict` if the handle is taken or the user owns
    `MAX_OWNED` organizations.
    """
    check_handle(handle)
    rows = yield from many("organizations_of", person_id=person_id)
    if sum(row["role"] == "owner" for row in rows) >= MAX_OWNED:
        raise errors.Conflict(
            f"A user may own at most {MAX_OWNED} organizations: transfer or close one first"
        )
    account_id = yield from _insert(handle)
    yield from audit_log.note(account_id, "account.create", handle)
    yield from members.add(account_id, person_id, "owner", "founder")
    return (yield from accounts.by_id(account_id))


def check_handle(handle: str) -> None:
    """Raise `BadRequest` unless a handle has 2 to 39 lowercase letters, digits and inner hyphens."""
    if not _HANDLE.fullmatch(handle):
        raise errors.BadRequest(
            f"The handle {handle[:60]!r} is not valid: use 2 to 39 lowercase letters, digits and hyphens"
        )


def _insert(name: str) -> Transaction[str]:
    account_id = ids.new("acct")
    values = {"id": account_id, "kind": "customer", "email": name, "can_go_negative": 0}
    if not (yield Query("account_insert", {**values, "author_id": f"user_{secrets.token_hex(16)}"})):
        raise errors.Conflict(f"The name {name} is taken: choose another one")
    return account_id


def of_person(person_id: str) -> Transaction[tuple[Row, ...]]:
    """Return a user's accounts, the personal account first: `account_id`, `name`, `role`, `member_id`."""
    person = yield from accounts.by_id(person_id)
    first: Row = {"account_id": person.id, "name": person.email, "role": "owner", "member_id": None}
    return (first, *(yield from many("organizations_of", person_id=person_id)))


def set_budgets(account_id: str, day: int | None, month: int | None) -> Transaction[Account]:
    """Set the organization's own budgets in micro-dollars; None removes a budget.

    Budgets of the operator remain.
    """
    yield from begin_budgets(account_id, (day, month))
    yield Query("account_set_budgets", {"id": account_id, "budget_day": day, "budget_month": month})
    yield from audit_log.note(account_id, "organization.budgets", budgets.format_budgets(day, month))
    return (yield from accounts.by_id(account_id))


def begin_budgets(account_id: str, amounts: tuple[int | None, int | None]) -> Transaction[None]:
    """Prepare the first budgets of an account: count the amounts that it has paid in this day and month.

    Runs that are not settled yet are counted only if a budget was set when they started.
    """
    account = yield from accounts.by_id(account_id)
    if not account.budgets and amounts != (None, None):
        for period, since in budgets.current_periods((yield from now())):
            yield Query("budget_begin", {"id": account_id, "period": period, "since": since})


def transfer(account_id: str, member_id: str, handle: str = "") -> Transaction[Member]:
    """Make a member the owner, and the previous owner an admin; return the new owner.

    If users can sign in to the account, the sign-in becomes a new account without credit, which becomes an
    admin. The account then has a `handle` instead of an e-mail address. The account's keys, invitations,
    shares and similar objects then belong to that admin, and end with the membership. Raises `NotFound`,
    `BadRequest` for the handle, `Conflict` if it is taken, and `Forbidden` for the operator's account.
    """
    account = yield from accounts.by_id(account_id)
    if account.closing_at is not None:
        raise errors.Conflict("This organization is closed: cancel its deletion first")
    heir = yield from members.find(account_id, member_id)
    if heir.role == "owner":
        raise errors.BadRequest("This member is already the owner")
    if account.has_sign_in:
        yield from _separate_sign_in(account, handle)
    yield Query("member_demote_owner", {"account_id": account_id})
    yield Query("member_promote", {"account_id": account_id, "id": member_id})
    yield from audit_log.note(account_id, "organization.transfer", heir.email)
    return (yield from members.find(account_id, member_id))


def _separate_sign_in(account: Account, handle: str) -> Transaction[None]:
    """Move the sign-in of an account to a new account, which becomes an admin."""
    if account.is_operator:
        raise errors.Forbidden("The operator's account cannot be transferred")
    check_handle(handle)
    if account.password_hash is None and (yield from one("identities_of", account_id=account.id)) is None:
        raise errors.Conflict(
            "Set a password first: after the transfer, you will use it to sign in to a separate account"
        )
    if not (yield Query("account_rename", {"id": account.id, "email": handle})):
        raise errors.Conflict(f"The name {handle} is taken: choose another one")
    person_id = yield from _insert(account.email)
    yield Query("account_set_password", {"id": person_id, "password_hash": account.password_hash})
    params = {"account_id": account.id, "person_id": person_id}
    # A passkey contains the id of its account, so it cannot be moved.
    yield Query("passkeys_remove", {"account_id": account.id})
    yield Query("identities_move", params)
    yield Query("memberships_move", params)
    member = yield from members.add(account.id, person_id, "admin", "founder")
    yield Query("sessions_separate", params)
    for query in _TAKEN:
        yield Query(query, {"account_id": account.id, "member_id": member.id})


def require_none_owned(person_id: str) -> Transaction[None]:
    """Raise `Conflict` if a user owns an organization, which would be left without an owner."""
    for row in (yield from many("organizations_of", person_id=person_id)):
        if row["role"] == "owner":
            raise errors.Conflict(f"You own the organization {row['name']}: transfer or close it first")


def leave_all(person_id: str) -> Transaction[None]:
    """End all memberships of a user; raises `Conflict` if the user owns an organization."""
    yield from require_none_owned(person_id)
    for row in (yield from many("organizations_of", person_id=person_id)):
        yield from members.remove(row["account_id"], row["member_id"])
