"""Teams: named groups of members and keys within an organization, each with budgets."""

from __future__ import annotations

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log
from sixfold.core.accounts.limits import budgets
from sixfold.core.database import Query, Row, Transaction, Value, many, one

MAX_TEAMS = 200
_MAX_NAME = 60


class Team(msgspec.Struct, frozen=True):
    """A team; budgets are in micro-dollars, or None if unlimited. `members` is the number of members."""

    id: str
    name: str
    budget_day: int | None
    budget_month: int | None
    created_at: int
    members: int

    @classmethod
    def of(cls, row: Row) -> Team:
        """Build a team from a database row."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})


def of_account(account_id: str) -> Transaction[tuple[Team, ...]]:
    return tuple(Team.of(row) for row in (yield from many("teams_of", account_id=account_id)))


def find(account_id: str, team_id: str) -> Transaction[Team]:
    """Return a team of an organization; raises `NotFound`."""
    row = yield from one("team_by_id", account_id=account_id, id=team_id)
    if row is None:
        raise errors.NotFound(f"Team {team_id[:60]} not found")
    return Team.of(row)


def create(account_id: str, name: str, day: int | None = None, month: int | None = None) -> Transaction[Team]:
    """Create a team; raises `Conflict` if the name is taken or the limit `MAX_TEAMS` is reached."""
    if len((yield from of_account(account_id))) >= MAX_TEAMS:
        raise errors.Conflict(f"An organization may have at most {MAX_TEAMS} teams: remove one first")
    team_id, text = ids.new("team"), _name(name)
    values: dict[str, Value] = {"id": team_id, "account_id": account_id, "name": text}
    if not (yield Query("team_insert", {**values, "budget_day": day, "budget_month": month})):
        raise errors.Conflict(f"The team {text} already exists: choose another name")
    yield from audit_log.note(account_id, "team.create", text)
    return (yield from find(account_id, team_id))


def change(account_id: str, team_id: str, **changes: Value) -> Transaction[Team]:
    """Change the `name`, `budget_day` or `budget_month` of a team; other fields do not change.

    Raises `NotFound`, and `Conflict` if the name is taken.
    """
    before = yield from find(account_id, team_id)
    names = ("name", "budget_day", "budget_month")
    values = {name: changes.get(name, getattr(before, name)) for name in names}
    values["name"] = _name(str(values["name"]))
    if not (yield Query("team_change", {"id": team_id, "account_id": account_id, **values})):
        raise errors.Conflict(f"The team {values['name']} already exists: choose another name")
    team = yield from find(account_id, team_id)
    if team.name != before.name:
        yield from audit_log.note(account_id, "team.rename", f"{before.name}, {team.name}")
    if (team.budget_day, team.budget_month) != (before.budget_day, before.budget_month):
        text = budgets.format_budgets(team.budget_day, team.budget_month)
        yield from audit_log.note(account_id, "team.budgets", f"{team.name}, {text}")
    return team


def remove(account_id: str, team_id: str) -> Transaction[None]:
    """Remove a team and revoke its keys; members and their keys remain. Raises `NotFound`."""
    team = yield from find(account_id, team_id)
    removed: dict[str, Value] = {"account_id": account_id, "team_id": team_id}
    yield Query("team_keys_revoke", removed)
    yield Query("team_keys_leave", removed)
    yield Query("team_members_leave", removed)
    yield Query("team_invitations_leave", removed)
    yield Query("shared_folders_end_team", {"team_id": team_id})
    yield Query("shares_end_team", {"team_id": team_id})
    yield Query("team_remove", removed)
    yield from audit_log.note(account_id, "team.remove", team.name)


def _name(text: str) -> str:
    name = " ".join(text.split())
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise errors.BadRequest(f"A team name must have 1 to {_MAX_NAME} printable characters")
    return name
