"""The arguments of `guardrail`, `logging` and `alert`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# argparse's class for a set of commands is private.
Group = Any


def add(commands: Group, group: Callable[..., Group], report: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands to the parser; `group` and `report` make their parsers."""
    guardrail = group(commands, "guardrail", "mask and check the requests and responses of gateway calls")
    setting = report(
        guardrail, "set", "gateway.guardrails:set_guardrail", "set the guardrail of an account or a key"
    )
    setting.add_argument("email", metavar="EMAIL")
    _add_key(setting)
    setting.add_argument(
        "--mask", metavar="A,B", help="mask these in requests: secrets, emails, cards (default: none)"
    )
    setting.add_argument("--mask-responses", action="store_true", help="mask them in responses as well")
    setting.add_argument("--hook", metavar="URL", help="an endpoint that allows, changes or blocks calls")
    setting.add_argument(
        "--stages",
        metavar="A,B",
        default="request",
        help="the messages that the hook checks: request, response",
    )
    setting.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="the timeout for the hook's response (default: 5)",
    )
    setting.add_argument(
        "--on-failure",
        choices=("block", "allow"),
        default="block",
        help="block or allow a call if the hook fails (default: block)",
    )
    listing = report(
        guardrail, "list", "gateway.guardrails:list_guardrails", "list the guardrails of an account"
    )
    listing.add_argument("email", metavar="EMAIL")
    removal = report(guardrail, "remove", "gateway.guardrails:remove_guardrail", "remove a guardrail")
    removal.add_argument("email", metavar="EMAIL")
    _add_key(removal)
    _add_alerts(commands, group, report)
    _add_logging(commands, group, report)


def _add_logging(
    commands: Group, group: Callable[..., Group], report: Callable[..., argparse.ArgumentParser]
) -> None:
    contents = group(commands, "logging", "log requests and responses of an account's calls")
    days = report(
        contents,
        "set",
        "gateway.content_log:set_logging",
        "log requests and responses for DAYS days; 0 disables the log",
    )
    days.add_argument("email", metavar="EMAIL")
    days.add_argument("days", metavar="DAYS", type=int)
    state = report(
        contents, "show", "gateway.content_log:show_logging", "show whether requests and responses are logged"
    )
    state.add_argument("email", metavar="EMAIL")


def _add_alerts(
    commands: Group, group: Callable[..., Group], report: Callable[..., argparse.ArgumentParser]
) -> None:
    alert = group(commands, "alert", "send a webhook when spending reaches a threshold")
    create = report(
        alert, "create", "gateway.alerts:create_alert", "create a cost alert for an account or a key"
    )
    create.add_argument("email", metavar="EMAIL")
    create.add_argument("usd", metavar="USD", help="the threshold")
    create.add_argument("url", metavar="URL", help="where to send the webhook")
    create.add_argument(
        "--per", choices=("day", "month"), default="month", help="the period in UTC (default: month)"
    )
    _add_key(create)
    listing = report(alert, "list", "gateway.alerts:list_alerts", "list the cost alerts of an account")
    listing.add_argument("email", metavar="EMAIL")
    removal = report(alert, "delete", "gateway.alerts:delete_alert", "delete a cost alert")
    removal.add_argument("email", metavar="EMAIL")
    removal.add_argument("id", metavar="ID", help="the ID of the alert, such as alert_06g…")


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="ID", default="", help="the ID of a key (default: the account)")
