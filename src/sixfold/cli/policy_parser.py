"""The arguments of `guardrail`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# argparse's class for a set of commands is private.
Group = Any


def add(commands: Group, group: Callable[..., Group], report: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands to the parser; `group` and `report` make their parsers."""
    guardrail = group(commands, "guardrail", "mask and check what gateway calls send and receive")
    setting = report(guardrail, "set", "policy:set_guardrail", "set the guardrail of an account or a key")
    setting.add_argument("email", metavar="EMAIL")
    _add_key(setting)
    setting.add_argument(
        "--mask", metavar="A,B", help="mask these in requests: secrets, emails, cards (default: nothing)"
    )
    setting.add_argument("--mask-responses", action="store_true", help="mask them in responses as well")
    setting.add_argument("--hook", metavar="URL", help="an endpoint that allows, changes or blocks calls")
    setting.add_argument(
        "--stages", metavar="A,B", default="request", help="what the hook checks: request, response"
    )
    setting.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="for the hook's answer (default: 5)"
    )
    setting.add_argument(
        "--on-failure",
        choices=("block", "allow"),
        default="block",
        help="what to do with a call if the hook does not answer (default: block)",
    )
    listing = report(guardrail, "list", "policy:list_guardrails", "list the guardrails of an account")
    listing.add_argument("email", metavar="EMAIL")
    removal = report(guardrail, "remove", "policy:remove_guardrail", "remove a guardrail")
    removal.add_argument("email", metavar="EMAIL")
    _add_key(removal)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="ID", default="", help="the ID of a key (default: the account)")
