"""The argument parser of `organization`, `member` and `team`."""

from __future__ import annotations

from sixfold.cli.parsers.command_parser import CommandGroup, CommandParser

_WHERE = "organizations.commands"
_ORGANIZATION = "the name of the organization, or the e-mail address of an account"


def add(commands: CommandGroup) -> None:
    _organization(commands.group("organization", "manage organizations, which own a balance"))
    _member(commands.group("member", "manage the members of an organization"))
    _team(commands.group("team", "manage the teams of an organization"))


def _organization(group: CommandGroup) -> None:
    create = group.report("create", f"{_WHERE}:create", "create an organization without credit")
    create.argument("name", "NAME", "2 to 39 lower-case letters, digits and hyphens")
    create.argument("--owner", "EMAIL", "the account of the owner", required=True)
    show = group.report("show", f"{_WHERE}:show", "show an organization with its members, teams and budgets")
    show.argument("organization", "ORG", _ORGANIZATION)
    budget = group.report("budget", f"{_WHERE}:budget", "set the budgets of an organization")
    budget.argument("organization", "ORG", _ORGANIZATION)
    _budgets(budget)
    transfer = group.report("transfer", f"{_WHERE}:transfer", "make a member the owner")
    transfer.argument("organization", "ORG", _ORGANIZATION)
    transfer.argument("email", "EMAIL", "the e-mail address of the new owner")
    transfer.argument("--name", "NAME", "the new name of a personal account", default="")


def _member(group: CommandGroup) -> None:
    listing = group.report("list", f"{_WHERE}:list_members", "list the members with their budgets")
    listing.argument("organization", "ORG", _ORGANIZATION)
    for name, summary in (
        ("add", "make an existing account a member"),
        ("invite", "print a link that makes a person a member"),
    ):
        new = group.report(name, f"{_WHERE}:{name}", summary)
        new.argument("organization", "ORG", _ORGANIZATION)
        new.argument("email", "EMAIL", nargs="?" if name == "invite" else None)
        new.add_argument("--role", choices=("member", "admin"), default="member")
        new.argument("--team", "TEAM", "the name of a team")
    change = group.report("change", f"{_WHERE}:change", "change the role, team or budgets of a member")
    change.argument("organization", "ORG", _ORGANIZATION)
    change.argument("email", "EMAIL")
    change.add_argument("--role", choices=("member", "admin"))
    change.argument("--team", "TEAM", "the name of a team, or none")
    _budgets(change)
    remove = group.report("remove", f"{_WHERE}:remove", "end a membership with its sessions and keys at once")
    remove.argument("organization", "ORG", _ORGANIZATION)
    remove.argument("email", "EMAIL")


def _team(group: CommandGroup) -> None:
    for name, summary in (
        ("create", "create a team"),
        ("budget", "set the budgets of a team"),
        ("remove", "remove a team and revoke its own keys"),
        ("key", "create a key of a team"),
    ):
        parser = group.report(name, f"{_WHERE}:{name}_team", summary)
        parser.argument("organization", "ORG", _ORGANIZATION)
        parser.argument("team", "TEAM", "the name of the team")
        if name != "remove":
            _budgets(parser)


def _budgets(parser: CommandParser) -> None:
    parser.argument("--budget-day", "USD", "spending limit per day, or none")
    parser.argument("--budget-month", "USD", "spending limit per month, or none")
