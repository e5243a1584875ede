"""Groups of an OpenID provider mapped to memberships, applied at each sign-in.

A membership that was created for a group follows the user's groups: its role and team change with the groups,
and it ends when the user leaves the last group. A membership from an invitation, and that of the owner, are
never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.database import Transaction, one

_LOG = logging.getLogger("sixfold.organizations")
_MAX_RULES = 1000


class GroupRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The membership that a group grants: the organization's name, and a team's name, created if missing."""

    organization: str
    role: Literal["member", "admin"] = "member"
    team: str = ""


class GroupRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[sign_in]`: the claim of the ID token that contains the groups, and the groups' roles.

    `claim` may be a path such as `realm_access.roles`; `scope` is requested in addition to `openid email`.
    """

    claim: str = "groups"
    scope: str = ""
    groups: Mapping[str, GroupRole] = {}

    def roles_for(self, groups: Sequence[str]) -> dict[str, GroupRole]:
        """Return the role for each organization: the highest one, and the first of equal roles."""
        roles: dict[str, GroupRole] = {}
        for name, rule in self.groups.items():
            if name not in groups:
                continue
            best = roles.get(rule.organization)
            if best is None or (best.role == "member" and rule.role == "admin"):
                roles[rule.organization] = rule
        return roles


def require_unassigned(person: Principal, name: str, rules: GroupRules) -> None:
    """Raise `Forbidden` for the name of an organization that a rule assigns, unless the operator takes it.

    Users of the group join the organization with this name at their sign-in, and its owner sees their work.
    """
    assigned = {rule.organization for rule in rules.groups.values()}
    if name in assigned and not person.is_operator:
        raise errors.Forbidden(
            f"{name} is in [sign_in.groups]: ask the operator to create it with sixfold organization create"
        )


def parse(table: object) -> GroupRules:
    """Parse the table `[sign_in]`; raises `ValueError` with a one-line message."""
    try:
        rules = msgspec.convert(table, GroupRules)
    except msgspec.ValidationError as error:
        raise ValueError(f"[sign_in] is not valid: {error}") from None
    if len(rules.groups) > _MAX_RULES:
        raise ValueError(f"[sign_in.groups] must have at most {_MAX_RULES} groups (got {len(rules.groups)})")
    # Names of organizations are stored in lower case; two spellings are one organization.
    groups = {
        name: msgspec.structs.replace(rule, organization=rule.organization.lower())
        for name, rule in rules.groups.items()
    }
    return msgspec.structs.replace(rules, groups=groups)


def groups_of(claims: Mapping[str, object], claim: str) -> tuple[str, ...] | None:
    """Return the groups in a claim, which is a list or a string; None if the provider did not send it."""
    value: object = claims
    for name in claim.split("."):
        if not isinstance(value, Mapping):
            return None
        fields: Mapping[str, object] = msgspec.convert(value, dict[str, object])
        value = fields.get(name)
    if isinstance(value, str):
        return (value,)
    try:
        return msgspec.convert(value, tuple[str, ...])
    except msgspec.ValidationError:
        return None


def synchronize(person_id: str, groups: Sequence[str] | None, rules: GroupRules) -> Transaction[str]:
    """Apply the rules to a user; return the id of the first organization that a group names, or "".

    Nothing changes if the provider omitted the groups, as some providers do for users with many groups.
    """
    if groups is None:
        return ""
    roles, first = rules.roles_for(groups), ""
    for name in dict.fromkeys(rule.organization for rule in rules.groups.values()):
        row = yield from one("account_by_email", email=name)
        if row is None or row["closing_at"] is not None:
            _LOG.warning("the organization %s in [sign_in.groups] does not exist: create it first", name)
            continue
        account_id, rule = str(row["id"]), roles.get(name)
        if account_id == person_id:
            continue
        member = yield from members.of_person(account_id, person_id)
        if rule is not None:
            try:
                yield from _join(account_id, person_id, member, rule)
            except (errors.Conflict, errors.Forbidden) as error:
                # The user can still sign in to the personal account and to other organizations.
                _LOG.warning(
                    "a member of a group in [sign_in.groups] could not join %s: %s", name, error.message
                )
                continue
            first = first or account_id
        elif member is not None and member.source == "groups" and member.role != "owner":
            yield from members.remove(account_id, member.id)
    return first


def _join(account_id: str, person_id: str, member: Member | None, rule: GroupRole) -> Transaction[None]:
    if member is not None and (member.source != "groups" or member.role == "owner"):
        return
    team_id = yield from _team(account_id, rule.team)
    if member is None:
        yield from members.add(account_id, person_id, rule.role, "groups", team_id)
    elif (member.role, member.team_id) != (rule.role, team_id):
        yield from members.change(account_id, member.id, role=rule.role, team_id=team_id)


def _team(account_id: str, name: str) -> Transaction[str | None]:
    if not name:
        return None
    for team in (yield from teams.of_account(account_id)):
        if team.name == name:
            return team.id
    return (yield from teams.create(account_id, name)).id


def may_create(groups: Sequence[str] | None, rules: GroupRules) -> bool:
    """Return whether an account is created for a new user because a group makes the user a member."""
    return bool(groups) and bool(rules.roles_for(groups or ()))
