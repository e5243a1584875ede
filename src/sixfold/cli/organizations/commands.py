"""`organization`, `member` and `team`: the operator manages any organization, also while the server runs."""

from __future__ import annotations

import argparse
from typing import Any

from sixfold import errors
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core import money
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.organizations import invitations, members, organizations, teams
from sixfold.core.accounts.organizations.invitations import Inviter, NewInvitation
from sixfold.core.accounts.organizations.members import Member
from sixfold.core.accounts.organizations.teams import Team
from sixfold.core.database import Transaction, Value


def create(arguments: argparse.Namespace) -> None:
    name = arguments.name

    def work() -> Transaction[str]:
        owner = yield from accounts.by_email(arguments.owner)
        return (yield from organizations.create(owner.id, name)).id

    _print_record(
        arguments, {"organization_id": _write(arguments, work()), "name": name}, f"{name} is created"
    )


def show(arguments: argparse.Namespace) -> None:
    record = database_access.read(database_access.settings_of(arguments), _record(arguments.organization))
    if arguments.json:
        put_json(record)
        return
    paint = TerminalStyle()
    paint.rows(
        [
            ("organization", f"{paint.bold(record['name'])}  {paint.dim(record['organization_id'])}"),
            ("balance", f"{record['balance_usd']} USD"),
            ("budget", _budget_text(record)),
        ]
    )
    _member_table(paint, record["members"])
    if record["teams"]:
        rows = [(team["name"], str(team["members"]), _budget_text(team)) for team in record["teams"]]
        paint.table(("team", "members", "budget"), rows)


def list_members(arguments: argparse.Namespace) -> None:
    record = database_access.read(database_access.settings_of(arguments), _record(arguments.organization))
    if arguments.json:
        put_json({"members": record["members"]})
    else:
        _member_table(TerminalStyle(), record["members"])


def budget(arguments: argparse.Namespace) -> None:
    changes = _budget_changes(arguments)

    def work() -> Transaction[None]:
        account = yield from _organization(arguments.organization)
        day, month = (changes.get(name, getattr(account, name)) for name in ("budget_day", "budget_month"))
        yield from organizations.set_budgets(account.id, day, month)

    _write(arguments, work())
    _print_record(
        arguments, {"organization": arguments.organization}, f"The budget of {arguments.organization} is set"
    )


def transfer(arguments: argparse.Namespace) -> None:
    def work() -> Transaction[None]:
        member = yield from _member(arguments.organization, arguments.email)
        yield from organizations.transfer(member.account_id, member.id, arguments.name)

    _write(arguments, work())
    _print_record(arguments, {"owner": arguments.email}, f"{arguments.email} owns the organization now")


def add(arguments: argparse.Namespace) -> None:
    def work() -> Transaction[Member]:
        account = yield from _organization(arguments.organization)
        person = yield from accounts.by_email(arguments.email)
        team_id = yield from _team_id(account.id, arguments.team)
        return (yield from members.add(account.id, person.id, arguments.role, "operator", team_id))

    member = _write(arguments, work())
    _print_record(
        arguments, {"member_id": member.id}, f"{member.email} is a member of {arguments.organization} now"
    )


def invite(arguments: argparse.Namespace) -> None:
    def work() -> Transaction[NewInvitation]:
        account = yield from _organization(arguments.organization)
        team_id = yield from _team_id(account.id, arguments.team)
        email = arguments.email or ""
        return (
            yield from invitations.create(account.id, Inviter(account.email), arguments.role, email, team_id)
        )

    new = _write(arguments, work())
    url = f"{server_lock.link_origin(database_access.settings_of(arguments))}/invitation?token={new.token}"
    _print_record(arguments, {"url": url}, f"{url}  (valid once, within {invitations.DAYS} days)")


def change(arguments: argparse.Namespace) -> None:
    changed = _budgets(arguments)

    def work() -> Transaction[None]:
        member = yield from _member(arguments.organization, arguments.email)
        changes: dict[str, Value] = {**changed}
        if arguments.role:
            changes["role"] = arguments.role
        if arguments.team:
            name = None if arguments.team == "none" else arguments.team
            changes["team_id"] = yield from _team_id(member.account_id, name)
        yield from members.change(member.account_id, member.id, **changes)

    _write(arguments, work())
    _print_record(arguments, {"member": arguments.email}, f"{arguments.email} is changed")


def remove(arguments: argparse.Namespace) -> None:
    def work() -> Transaction[None]:
        member = yield from _member(arguments.organization, arguments.email)
        yield from members.remove(member.account_id, member.id)

    _write(arguments, work())
    _print_record(
        arguments,
        {"removed": arguments.email},
        f"{arguments.email} is removed, with its sessions, programs and keys in {arguments.organization}",
    )


def create_team(arguments: argparse.Namespace) -> None:
    changes = _budgets(arguments)

    def work() -> Transaction[Team]:
        account = yield from _organization(arguments.organization)
        day, month = changes.get("budget_day"), changes.get("budget_month")
        return (yield from teams.create(account.id, arguments.team, day, month))

    _print_record(
        arguments, {"team_id": _write(arguments, work()).id}, f"The team {arguments.team} is created"
    )


def budget_team(arguments: argparse.Namespace) -> None:
    changes = _budget_changes(arguments)

    def work() -> Transaction[None]:
        account = yield from _organization(arguments.organization)
        team_id = yield from _team_id(account.id, arguments.team)
        yield from teams.change(account.id, str(team_id), **changes)

    _write(arguments, work())
    _print_record(arguments, {"team": arguments.team}, f"The budget of {arguments.team} is set")


def remove_team(arguments: argparse.Namespace) -> None:
    def work() -> Transaction[None]:
        account = yield from _organization(arguments.organization)
        team_id = yield from _team_id(account.id, arguments.team)
        yield from teams.remove(account.id, str(team_id))

    _write(arguments, work())
    _print_record(arguments, {"removed": arguments.team}, f"The team {arguments.team} is removed")


def key_team(arguments: argparse.Namespace) -> None:
    changes = _budgets(arguments)

    def work() -> Transaction[NewKey]:
        account = yield from _organization(arguments.organization)
        team_id = yield from _team_id(account.id, arguments.team)
        scope = KeyLimits(budget_day=changes.get("budget_day"), budget_month=changes.get("budget_month"))
        key_rights = scope.default_rights & rights.OF_ROLE["member"]
        return (yield from keys.create(account.id, scope, granted=key_rights, holder=Holder(None, team_id)))

    key = _write(arguments, work())
    _print_record(arguments, {"id": key.id, "api_key": key.api_key}, f"{key.api_key}  (shown this once)")


# -- helpers -------------------------------------------------------------------------------------


def _write(arguments: argparse.Namespace, transaction: Transaction[Any]) -> Any:
    return database_access.write(database_access.settings_of(arguments), transaction)


def _print_record(arguments: argparse.Namespace, record: dict[str, Any], text: str) -> None:
    if arguments.json:
        put_json(record)
    else:
        TerminalStyle().line(f"  {text}")


def _organization(name: str) -> Transaction[Account]:
    try:
        return (yield from accounts.by_email(name))
    except errors.NotFound:
        if "@" in name:
            raise
        raise errors.NotFound(
            f"Organization {name} not found: create it with "
            f"`sixfold organization create {name} --owner EMAIL`"
        ) from None


def _member(organization: str, email: str) -> Transaction[Member]:
    account, person = (yield from _organization(organization)), (yield from accounts.by_email(email))
    member = yield from members.of_person(account.id, person.id)
    if member is None:
        raise errors.NotFound(f"{email} is not a member of {organization}")
    return member


def _team_id(account_id: str, name: str | None) -> Transaction[str | None]:
    if name is None:
        return None
    for team in (yield from teams.of_account(account_id)):
        if team.name == name:
            return team.id
    raise errors.NotFound(f"Team {name} not found: create it with `sixfold team create`")


def _budget_changes(arguments: argparse.Namespace) -> dict[str, int | None]:
    if changes := _budgets(arguments):
        return changes
    raise CommandError("Specify --budget-day, --budget-month or both, such as --budget-month 50")


def _budgets(arguments: argparse.Namespace) -> dict[str, int | None]:
    """Return the budgets in the arguments in micro-dollars, with None for `none`, which removes a budget."""
    budgets: dict[str, int | None] = {}
    for name in ("budget_day", "budget_month"):
        text = getattr(arguments, name)
        if text is None:
            continue
        try:
            budgets[name] = None if text == "none" else money.parse_usd(text)
        except ValueError as error:
            raise CommandError(f"--{name.replace('_', '-')}: {error}") from None
        if not 0 <= (budgets[name] or 0) <= organizations.MAX_BUDGET:
            raise CommandError(
                f"--{name.replace('_', '-')}: {text} USD is not a valid budget, such as 50 or none"
            )
    return budgets


def _record(organization: str) -> Transaction[dict[str, Any]]:
    account = yield from _organization(organization)
    member_rows, own_teams = (
        (yield from members.of_account(account.id)),
        (yield from teams.of_account(account.id)),
    )
    ids = [
        account.id,
        *(member_row.id for member_row in member_rows),
        *(own_team.id for own_team in own_teams),
    ]
    spending = yield from budgets.spent_now(ids)
    owner = [{"id": account.id, "email": account.email, "role": "owner", "team": None}]
    return {
        "organization_id": account.id,
        "name": account.email,
        "balance_usd": money.format_usd(account.posted),
        **_budget_record(account, spending[account.id]),
        "members": (owner if account.has_sign_in else [])
        + [
            {
                "id": member_row.id,
                "email": member_row.email,
                "role": member_row.role,
                "team": member_row.team,
                **_budget_record(member_row, spending[member_row.id]),
            }
            for member_row in member_rows
        ],
        "teams": [
            {
                "id": own_team.id,
                "name": own_team.name,
                "members": own_team.members,
                **_budget_record(own_team, spending[own_team.id]),
            }
            for own_team in own_teams
        ],
    }


def _budget_record(each: Any, spending: tuple[int, int]) -> dict[str, Any]:
    return {
        "budget_day_usd": None if each.budget_day is None else money.format_usd(each.budget_day),
        "budget_month_usd": None if each.budget_month is None else money.format_usd(each.budget_month),
        "spent_day_usd": money.format_usd(spending[0]),
        "spent_month_usd": money.format_usd(spending[1]),
    }


def _budget_text(record: dict[str, Any]) -> str:
    # The keys of members and teams count their spending without a budget, other keys do not.
    units = ("day", "month")
    is_limited = any(record.get(f"budget_{unit}_usd") is not None for unit in units)
    if not is_limited and all(record.get(f"spent_{unit}_usd", "0.00") == "0.00" for unit in units):
        return ""
    return "; ".join(
        f"{record[f'spent_{unit}_usd']} of {record[f'budget_{unit}_usd'] or 'unlimited'} USD this {unit}"
        for unit in units
    )


def _member_table(paint: TerminalStyle, records: list[dict[str, Any]]) -> None:
    rows = [
        (record["email"], record["role"], record["team"] or "", _budget_text(record)) for record in records
    ]
    paint.table(("member", "role", "team", "budget"), rows)
