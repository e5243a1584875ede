"""`logging`: switch the content log of an account on or off, and show its state."""

from __future__ import annotations

import argparse

from sixfold.cli import database_access
from sixfold.cli.terminal import TerminalStyle, put_json
from sixfold.core.accounts import accounts
from sixfold.core.database import Transaction
from sixfold.core.gateway.content_log import storage as contents


def set_logging(arguments: argparse.Namespace) -> None:
    server_settings = database_access.settings_of(arguments)
    database_access.write(server_settings, _set_days(arguments.email, arguments.days))
    _print_days(arguments, arguments.days)


def _set_days(email: str, days: int) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from contents.set_days(account.id, days)


def show_logging(arguments: argparse.Namespace) -> None:
    server_settings = database_access.settings_of(arguments)
    _print_days(arguments, database_access.read(server_settings, _days_of(arguments.email)))


def _days_of(email: str) -> Transaction[int]:
    account = yield from accounts.by_email(email)
    return (yield from contents.days_of(account.id))


def _print_days(arguments: argparse.Namespace, days: int) -> None:
    if arguments.json:
        put_json({"enabled": days > 0, "days": days})
    else:
        state = f"logged for {days} day{'s' if days > 1 else ''}" if days else "not logged"
        TerminalStyle().line(f"  Calls of {arguments.email} are {state}")
