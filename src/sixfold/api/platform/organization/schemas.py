"""The JSON of organizations, with amounts in USD as strings and times as in RFC 3339."""

from __future__ import annotations

from typing import Literal, TypedDict

from sixfold.core import money
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.organizations.invitations import Invitation
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.accounts.organizations.teams import Team
from sixfold.core.clock import rfc3339
from sixfold.core.database import Row

RoleName = Literal["owner", "admin", "member"]
Spent = tuple[int, int]


class BudgetSchema(TypedDict):
    """Budgets, null if unlimited, and the amounts spent in this day and month (UTC)."""

    budget_day_usd: str | None
    budget_month_usd: str | None
    spent_day_usd: str
    spent_month_usd: str


class OrganizationSchema(TypedDict):
    """An organization; only its owner and admins see the budget."""

    organization_id: str
    name: str
    role: RoleName
    member_id: str | None
    members: int
    budget: BudgetSchema | None


class OrganizationChoiceSchema(TypedDict):
    """An organization for which a user may act."""

    organization_id: str
    name: str
    role: RoleName
    member_id: str | None


class MemberSchema(TypedDict):
    """A member; `budget` is null unless the caller is this member or an admin."""

    id: str
    email: str
    role: RoleName
    team_id: str | None
    team: str | None
    source: str
    created_at: str | None
    budget: BudgetSchema | None


class TeamSchema(TypedDict):
    """A team."""

    id: str
    name: str
    members: int
    created_at: str
    budget: BudgetSchema


class InvitationSchema(TypedDict):
    """An open invitation; without an e-mail address, any account may accept it."""

    id: str
    email: str
    role: RoleName
    team_id: str | None
    team: str | None
    invited_by: str
    created_at: str
    expires_at: str


class NewInvitationSchema(InvitationSchema):
    """A new invitation; token and URL are returned only here."""

    token: str
    url: str


class OrganizationKeySchema(TypedDict):
    """A key of the organization, of a member or a team, without its secret."""

    id: str
    name: str
    hint: str
    member_id: str | None
    team_id: str | None
    rights: list[str]
    services: list[str]
    collections: list[str]
    rpm: int | None
    tpm: int | None
    budget_day_usd: str | None
    budget_month_usd: str | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class NewOrganizationKeySchema(TypedDict):
    """A new key; its secret is returned only here."""

    id: str
    api_key: str


def budget(day: int | None, month: int | None, spending: Spent) -> BudgetSchema:
    """Return budgets, with the amounts spent."""
    return {
        "budget_day_usd": _usd(day),
        "budget_month_usd": _usd(month),
        "spent_day_usd": money.format_usd(spending[0]),
        "spent_month_usd": money.format_usd(spending[1]),
    }


def owner(account: Account) -> MemberSchema:
    """Return the user who signs in as the account itself."""
    return {
        "id": account.id,
        "email": account.email,
        "role": "owner",
        "team_id": None,
        "team": None,
        "source": "founder",
        "created_at": None,
        "budget": None,
    }


def member(each: Member, spending: Spent | None) -> MemberSchema:
    """Return a member, without its budget if `spending` is None."""
    return {
        "id": each.id,
        "email": each.email,
        "role": role_name(each.role),
        "team_id": each.team_id,
        "team": each.team,
        "source": each.source,
        "created_at": rfc3339(each.created_at),
        "budget": None if spending is None else budget(each.budget_day, each.budget_month, spending),
    }


def role_name(role: rights.Role) -> RoleName:
    """Return the name of a role; the sign-in of the account itself has the role of its owner."""
    return "owner" if role == "person" else role


def team(each: Team, spending: Spent) -> TeamSchema:
    return {
        "id": each.id,
        "name": each.name,
        "members": each.members,
        "created_at": rfc3339(each.created_at),
        "budget": budget(each.budget_day, each.budget_month, spending),
    }


def invitation(each: Invitation) -> InvitationSchema:
    return {
        "id": each.id,
        "email": each.email,
        "role": role_name(each.role),
        "team_id": each.team_id,
        "team": each.team,
        "invited_by": each.invited_by,
        "created_at": rfc3339(each.created_at),
        "expires_at": rfc3339(each.expires_at),
    }


def key(row: Row) -> OrganizationKeySchema:
    scope = keys.scope_of(row)
    return {
        "id": row["id"],
        "name": row["name"],
        "hint": row["hint"],
        "member_id": row["member_id"],
        "team_id": row["team_id"],
        "rights": list(rights.names(keys.rights_of(row))),
        "services": list(scope.services),
        "collections": list(scope.collections),
        "rpm": scope.rpm,
        "tpm": scope.tpm,
        "budget_day_usd": _usd(scope.budget_day),
        "budget_month_usd": _usd(scope.budget_month),
        "created_at": rfc3339(row["created_at"]),
        "expires_at": rfc3339(row["expires_at"]),
        "revoked_at": rfc3339(row["revoked_at"]),
    }


def _usd(micros: int | None) -> str | None:
    return None if micros is None else money.format_usd(micros)
