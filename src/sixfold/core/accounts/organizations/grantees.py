"""The recipients of shared objects: accounts, organizations and teams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.database import Transaction, many, one

FIELDS = frozenset({"with", "team_id"})
_MAX_TEXT = 200


class Grantee(NamedTuple):
    """A recipient: an account, by e-mail address or name, or a team; both are empty without a recipient."""

    name: str = ""
    team_id: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Grantee:
        """Parse the fields `with` and `team_id` of a request; raises `InvalidInput`."""
        for name in sorted(FIELDS):
            value = fields.get(name, "")
            if not isinstance(value, str) or len(value) > _MAX_TEXT:
                raise errors.InvalidInput.of(
                    name, f"{name} must be a string of at most {_MAX_TEXT} characters"
                )
        if fields.get("with") and fields.get("team_id"):
            raise errors.InvalidInput.of("with", "with and team_id cannot be combined: send only one of them")
        return cls(fields.get("with", "").strip().lower(), fields.get("team_id", ""))


NOBODY = Grantee()


def teams_of_person(person_id: str) -> Transaction[tuple[tuple[str, str], ...]]:
    """Return the id and name of each team with which a user may share objects."""
    rows: list[tuple[str, str]] = []
    for each in (yield from many("organizations_of", person_id=person_id)):
        team_rows = yield from teams.of_account(each["account_id"])
        rows += [(team.id, f"{team.name} of {each['name']}") for team in team_rows]
    return tuple(rows)


def check(account_id: str, grantee: Grantee) -> Transaction[None]:
    """Check that an account may share with a grantee.

    The result is the same for an e-mail address without an account, whose user gets access with an account:
    otherwise a user could find out which addresses have one. Raises `NotFound` for an unknown organization
    and for a team of an organization to which the account does not belong, and `Conflict` for the account
    itself and its own teams.
    """
    if not grantee.team_id:
        recipient = yield from one("account_by_email", email=grantee.name)
        if recipient is not None and recipient["id"] == account_id:
            raise errors.Conflict("An account cannot share with itself: choose another account")
        if recipient is None and not accounts.is_email(grantee.name):
            raise errors.NotFound(
                f"{grantee.name[:100]} not found: send the e-mail address of a user or the name of an "
                "organization"
            )
        return
    row = yield from one("team_owner", id=grantee.team_id)
    if row is not None and row["account_id"] == account_id:
        raise errors.Conflict("The members of this organization already have access: choose another team")
    if row is None or (yield from members.of_person(row["account_id"], account_id)) is None:
        raise errors.NotFound(f"Team {grantee.team_id[:60]} not found in an organization of this account")
