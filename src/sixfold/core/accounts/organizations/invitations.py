"""Invitations to an organization: links with a token that one user can accept once."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, audit_log, keys
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.accounts.rights import Role
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, many, now, one

MAX_OPEN = 200
DAYS, MAX_DAYS = 7, 30
_UNKNOWN = "This invitation has been used, was withdrawn or has expired: ask for another one"


class Invitation(msgspec.Struct, frozen=True):
    """An invitation; an empty `email` allows any account to accept it.

    `organization` is the name of the organization.
    """

    id: str
    account_id: str
    organization: str
    email: str
    role: Role
    team_id: str | None
    team: str | None
    invited_by: str
    created_at: int
    expires_at: int

    @classmethod
    def of(cls, row: Row) -> Invitation:
        """Build an invitation from a database row."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})


class Inviter(NamedTuple):
    """The sender of an invitation: a display name, and the member and the key with which it ends."""

    name: str
    member_id: str | None = None
    key_id: str | None = None


class NewInvitation(msgspec.Struct, frozen=True):
    """An invitation with its token, which is not returned anywhere else."""

    invitation: Invitation
    token: str


def create(
    account_id: str,
    inviter: Inviter,
    role: Role,
    email: str = "",
    team_id: str | None = None,
    days: int = DAYS,
) -> Transaction[NewInvitation]:
    """Invite a user; raises `BadRequest`, `NotFound` and `Conflict`."""
    account = yield from accounts.by_id(account_id)
    if account.is_operator:
        raise errors.Forbidden("The operator's account cannot have members: create an organization for them")
    if role not in ("admin", "member"):
        raise errors.BadRequest(f"role must be admin or member (got {role[:40]!r})")
    if not 1 <= days <= MAX_DAYS:
        raise errors.BadRequest(f"An invitation must be valid for 1 to {MAX_DAYS} days (got {days})")
    address = email.strip().lower()
    if address and not accounts.is_email(address):
        raise errors.BadRequest(f"{email[:100]!r} is not an e-mail address")
    yield from members.require_team(account_id, team_id)
    if len((yield from of_account(account_id))) >= MAX_OPEN:
        raise errors.Conflict(f"An organization may have at most {MAX_OPEN} open invitations: withdraw some")
    invitation_id, token = ids.new("invite"), ids.secret("invite")
    yield Query(
        "invitation_insert",
        {
            "id": invitation_id,
            "account_id": account_id,
            "token_hash": keys.hash_of(token),
            "email": address,
            "role": role,
            "team_id": team_id,
            "invited_by": inviter.name,
            "member_id": inviter.member_id,
            "key_id": inviter.key_id,
            "life": days * DAY_US,
        },
    )
    yield from audit_log.note(account_id, "member.invite", f"{address or 'anyone with the link'}, {role}")
    return NewInvitation((yield from find(token)), token)


def of_account(account_id: str) -> Transaction[tuple[Invitation, ...]]:
    """Return the open invitations of an organization, newest first."""
    return tuple(Invitation.of(row) for row in (yield from many("invitations_of", account_id=account_id)))


def find(token: str) -> Transaction[Invitation]:
    """Return the open invitation with a token; raises `NotFound`."""
    row = yield from one("invitation_by_token", token_hash=keys.hash_of(token))
    if row is None:
        raise errors.NotFound(_UNKNOWN)
    return Invitation.of(row)


def accept(token: str, person_id: str) -> Transaction[Member]:
    """Accept an invitation: make the user a member, and end the invitation.

    Raises `NotFound`, `Forbidden` if the invitation is for another e-mail address, and `Conflict` if the user
    is already a member.
    """
    invitation = yield from find(token)
    person = yield from accounts.by_id(person_id)
    if invitation.email and invitation.email != person.email:
        raise errors.Forbidden("This invitation is for another e-mail address: sign in with that account")
    if not (yield Query("invitation_end", {"account_id": invitation.account_id, "id": invitation.id})):
        raise errors.NotFound(_UNKNOWN)
    return (
        yield from members.add(
            invitation.account_id, person_id, invitation.role, "invitation", invitation.team_id
        )
    )


def withdraw(account_id: str, invitation_id: str) -> Transaction[None]:
    """End an invitation of an organization; raises `NotFound`."""
    if not (yield Query("invitation_end", {"account_id": account_id, "id": invitation_id})):
        raise errors.NotFound(f"Invitation {invitation_id[:60]} not found")


def sweep() -> Transaction[int]:
    """Delete expired invitations; return their number."""
    return len((yield Query("invitation_sweep", {"before": (yield from now())})))
