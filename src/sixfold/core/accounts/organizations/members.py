"""Members of an organization: users with a role, a team and budgets.

Each member has a key without a secret: all runs that the user starts in a browser are attributed to that key.
When a membership ends, the member's sessions, OAuth grants and keys in this organization end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, audit_log, keys, rights
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.rights import Role
from sixfold.core.database import Query, Row, Transaction, Value, many, one

MAX_MEMBERS = 1000
Source = Literal["founder", "invitation", "operator", "groups"]
_ENDS_OF_ADMIN = (
    "invitations_end_member",
    "shared_folders_end_member",
    "alerts_end_member",
    "hooks_end_member",
)


class Member(msgspec.Struct, frozen=True):
    """A member; amounts are in micro-dollars.

    `person_id` is the account with which the user signs in.
    """

    id: str
    account_id: str
    person_id: str
    email: str
    role: Role
    team_id: str | None
    team: str | None
    key_id: str
    source: str
    budget_day: int | None
    budget_month: int | None
    created_at: int

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """The budgets per day and month."""
        return self.budget_day, self.budget_month

    @classmethod
    def of(cls, row: Row) -> Member:
        """Build a member from a database row."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})


def of_account(account_id: str) -> Transaction[tuple[Member, ...]]:
    """Return the members of an organization, oldest first, without the sign-in of the account itself."""
    return tuple(Member.of(row) for row in (yield from many("members_of", account_id=account_id)))


def find(account_id: str, member_id: str) -> Transaction[Member]:
    """Return a member of an organization; raises `NotFound`."""
    row = yield from one("member_by_id", account_id=account_id, id=member_id)
    if row is None:
        raise errors.NotFound(f"Member {member_id[:60]} not found")
    return Member.of(row)


def of_person(account_id: str, person_id: str) -> Transaction[Member | None]:
    """Return the membership of a user in an organization, or None."""
    row = yield from one("member_of_person", account_id=account_id, person_id=person_id)
    return None if row is None else Member.of(row)


def add(
    account_id: str, person_id: str, role: Role, source: Source, team_id: str | None = None
) -> Transaction[Member]:
    """Make a user a member; raises `Conflict` for a member, or above `MAX_MEMBERS`.

    A former member keeps their id and budgets, so that leaving does not reset their spending.
    """
    account, person = (yield from accounts.by_id(account_id)), (yield from accounts.by_id(person_id))
    if account.is_operator:
        raise errors.Forbidden("The operator's account cannot have members: create an organization for them")
    if person_id == account_id:
        raise errors.Conflict(f"{person.email} owns this organization")
    if not person.has_sign_in:
        raise errors.BadRequest(f"{person.email} is an organization: only a user can be a member")
    yield from require_team(account_id, team_id)
    count = yield from one("members_count", account_id=account_id)
    if count is not None and count["total"] >= MAX_MEMBERS:
        raise errors.Conflict(f"An organization may have at most {MAX_MEMBERS} members: remove one first")
    key = keys.NewKey(ids.new("key"), ids.secret("sf"))
    former = yield from one("former_member_take", account_id=account_id, person_id=person_id)
    row: Row = former or {"id": ids.new("member"), "budget_day": None, "budget_month": None}
    member_id = str(row["id"])
    inserted = yield Query(
        "member_insert",
        {
            **row,
            "account_id": account_id,
            "person_id": person_id,
            "role": role,
            "team_id": team_id,
            "key_id": key.id,
            "source": source,
        },
    )
    if not inserted:
        raise errors.Conflict(f"{person.email} is already a member")
    holder = keys.Holder(member_id, team_id)
    yield keys.insert(account_id, key, holder, hint="", scope="{}", rights=rights.encode(rights.STANDARD))
    yield from audit_log.note(account_id, "member.add", f"{person.email}, {role}")
    return (yield from find(account_id, member_id))


def change(account_id: str, member_id: str, **changes: Value) -> Transaction[Member]:
    """Change the `role`, `team_id`, `budget_day` or `budget_month` of a member; other fields do not change.

    The member's keys move with the member to another team. Objects that require the admin role end when the
    member loses the role. Raises `NotFound`, and `Forbidden` for the owner's role.
    """
    before = yield from find(account_id, member_id)
    role = changes.get("role", before.role)
    if role != before.role and "owner" in (role, before.role):
        raise errors.Forbidden("The owner's role cannot be changed here: transfer the organization instead")
    names = ("role", "team_id", "budget_day", "budget_month")
    values = {name: changes.get(name, getattr(before, name)) for name in names}
    yield from require_team(account_id, values["team_id"])
    yield Query("member_change", {"id": member_id, "account_id": account_id, **values})
    if values["team_id"] != before.team_id:
        yield Query("member_keys_move", {"member_id": member_id, "team_id": values["team_id"]})
    if role != before.role:
        yield from audit_log.note(account_id, "member.role", f"{before.email}, {role}")
    if (before.role, role) == ("admin", "member"):
        yield from _end_admin(account_id, member_id)
    after = yield from find(account_id, member_id)
    if after.team_id != before.team_id:
        yield from audit_log.note(account_id, "member.team", f"{after.email}, {after.team_id or 'none'}")
    if after.limits != before.limits:
        text = budgets.format_budgets(*after.limits)
        yield from audit_log.note(account_id, "member.budgets", f"{after.email}, {text}")
    return after


def _end_admin(account_id: str, member_id: str) -> Transaction[None]:
    """End the objects that only an admin may create: invitations, shared folders, cost alerts and hooks."""
    for query in _ENDS_OF_ADMIN:
        yield Query(query, {"account_id": account_id, "member_id": member_id})


def remove(account_id: str, member_id: str) -> Transaction[None]:
    """End a membership with its sessions, OAuth grants, keys, shares, and objects created as an admin.

    Raises `NotFound`, and `Forbidden` for the owner.
    """
    member = yield from find(account_id, member_id)
    if not (yield Query("member_remove", {"id": member_id, "account_id": account_id})):
        raise errors.Forbidden("The owner cannot be removed: transfer the organization first")
    names = ("id", "account_id", "person_id", "budget_day", "budget_month")
    yield Query("former_member_put", {name: getattr(member, name) for name in names})
    yield Query("member_keys_revoke", {"member_id": member_id})
    yield from keys.end_derived()
    yield Query("member_grants_end", {"member_id": member_id})
    yield Query("shares_end_member", {"account_id": account_id, "member_id": member_id})
    yield from _end_admin(account_id, member_id)
    yield Query("member_sessions_end", {"account_id": account_id, "person_id": member.person_id})
    yield from audit_log.note(account_id, "member.remove", member.email)


def require_team(account_id: str, team_id: Value) -> Transaction[None]:
    """Raise `NotFound` for a team of another organization."""
    if team_id is not None and (yield from one("team_by_id", account_id=account_id, id=team_id)) is None:
        raise errors.NotFound(f"Team {str(team_id)[:60]} not found")
