"""The arguments of `guardrail`, `logging` and `alert`."""

from __future__ import annotations

from sixfold.cli.parsers.command_parser import CommandGroup, CommandParser


def add(commands: CommandGroup) -> None:
    guardrail = commands.group("guardrail", "mask and check the requests and responses of gateway calls")
    setting = guardrail.report(
        "set", "gateway.guardrails:set_guardrail", "set the guardrail of an account or a key"
    )
    setting.argument("email", "EMAIL")
    _add_key(setting)
    setting.argument("--mask", "A,B", "mask these in requests: secrets, emails, cards (default: none)")
    setting.flag("--mask-responses", "mask them in responses as well")
    setting.argument("--hook", "URL", "an endpoint that allows, changes or blocks calls")
    setting.argument(
        "--stages", "A,B", "the messages that the hook checks: request, response", default="request"
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
    listing = guardrail.report(
        "list", "gateway.guardrails:list_guardrails", "list the guardrails of an account"
    )
    listing.argument("email", "EMAIL")
    removal = guardrail.report("remove", "gateway.guardrails:remove_guardrail", "remove a guardrail")
    removal.argument("email", "EMAIL")
    _add_key(removal)
    _add_alerts(commands)
    _add_logging(commands)


def _add_logging(commands: CommandGroup) -> None:
    contents = commands.group("logging", "log requests and responses of an account's calls")
    days = contents.report(
        "set",
        "gateway.content_log:set_logging",
        "log requests and responses for DAYS days; 0 disables the log",
    )
    days.argument("email", "EMAIL")
    days.add_argument("days", metavar="DAYS", type=int)
    state = contents.report(
        "show", "gateway.content_log:show_logging", "show whether requests and responses are logged"
    )
    state.argument("email", "EMAIL")


def _add_alerts(commands: CommandGroup) -> None:
    alert = commands.group("alert", "send a webhook when spending reaches a threshold")
    create = alert.report(
        "create", "gateway.alerts:create_alert", "create a cost alert for an account or a key"
    )
    create.argument("email", "EMAIL")
    create.argument("usd", "USD", "the threshold")
    create.argument("url", "URL", "where to send the webhook")
    create.add_argument(
        "--per", choices=("day", "month"), default="month", help="the period in UTC (default: month)"
    )
    _add_key(create)
    listing = alert.report("list", "gateway.alerts:list_alerts", "list the cost alerts of an account")
    listing.argument("email", "EMAIL")
    removal = alert.report("delete", "gateway.alerts:delete_alert", "delete a cost alert")
    removal.argument("email", "EMAIL")
    removal.argument("id", "ID", "the ID of the alert, such as alert_06g…")


def _add_key(parser: CommandParser) -> None:
    parser.argument("--key", "ID", "the ID of a key (default: the account)", default="")
