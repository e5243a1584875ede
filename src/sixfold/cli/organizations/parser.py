"""The argument parser of `organization`, `member` and `team`, which does not import the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# argparse's class for a set of commands is private.
Group = Any
_WHERE = "organizations.commands"
_ORGANIZATION = "the name of the organization, or the e-mail address of an account"


def add(
    commands: Group,
    new_group: Callable[[Group, str, str], Group],
    command: Callable[..., argparse.ArgumentParser],
) -> None:
    _organization(new_group(commands, "organization", "manage organizations, which own a balance"), command)
    _member(new_group(commands, "member", "manage the members of an organization"), command)
    _team(new_group(commands, "team", "manage the teams of an organization"), command)


def _organization(group: Group, command: Callable[..., argparse.ArgumentParser]) -> None:
    create = command(group, "create", f"{_WHERE}:create", "create an organization without credit")
    create.add_argument("name", metavar="NAME", help="2 to 39 lower-case letters, digits and hyphens")
    create.add_argument("--owner", metavar="EMAIL", required=True, help="the account of the owner")
    show = command(
        group, "show", f"{_WHERE}:show", "show an organization with its members, teams and budgets"
    )
    show.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    budget = command(group, "budget", f"{_WHERE}:budget", "set the budgets of an organization")
    budget.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    _budgets(budget)
    transfer = command(group, "transfer", f"{_WHERE}:transfer", "make a member the owner")
    transfer.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    transfer.add_argument("email", metavar="EMAIL", help="the e-mail address of the new owner")
    transfer.add_argument("--name", metavar="NAME", default="", help="the new name of a personal account")


def _member(group: Group, command: Callable[..., argparse.ArgumentParser]) -> None:
    listing = command(group, "list", f"{_WHERE}:list_members", "list the members with their spending")
    listing.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    for name, summary in (
        ("add", "make an existing account a member"),
        ("invite", "print a link that makes a person a member"),
    ):
        new = command(group, name, f"{_WHERE}:{name}", summary)
        new.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
        new.add_argument("email", metavar="EMAIL", nargs="?" if name == "invite" else None)
        new.add_argument("--role", choices=("member", "admin"), default="member")
        new.add_argument("--team", metavar="TEAM", help="the name of a team")
    change = command(group, "change", f"{_WHERE}:change", "change the role, team or budgets of a member")
    change.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    change.add_argument("email", metavar="EMAIL")
    change.add_argument("--role", choices=("member", "admin"))
    change.add_argument("--team", metavar="TEAM", help="the name of a team, or none")
    _budgets(change)
    remove = command(
        group, "remove", f"{_WHERE}:remove", "end a membership with its sessions and keys at once"
    )
    remove.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
    remove.add_argument("email", metavar="EMAIL")


def _team(group: Group, command: Callable[..., argparse.ArgumentParser]) -> None:
    for name, summary in (
        ("create", "create a team"),
        ("budget", "set the budgets of a team"),
        ("remove", "remove a team and revoke its own keys"),
        ("key", "create a key of a team"),
    ):
        parser = command(group, name, f"{_WHERE}:{name}_team", summary)
        parser.add_argument("organization", metavar="ORG", help=_ORGANIZATION)
        parser.add_argument("team", metavar="TEAM", help="the name of the team")
        if name != "remove":
            _budgets(parser)


def _budgets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget-day", metavar="USD", help="spending limit per day, or none")
    parser.add_argument("--budget-month", metavar="USD", help="spending limit per month, or none")
