"""`ledger`: check the invariants, list the entries of an account, and list earnings and costs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sixfold.cli import database_access
from sixfold.cli.database import archive
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core import money
from sixfold.core.account_data.archive.ledger import KIND
from sixfold.core.accounts import accounts, charges, ledger_queries, usage_report
from sixfold.core.accounts.ledger_queries import LedgerPage
from sixfold.core.accounts.usage_report import UsageReport
from sixfold.core.clock import DAY_US, rfc3339
from sixfold.core.database import Transaction
from sixfold.core.predictions import queries as prediction_queries
from sixfold.core.predictions.queries import EngineCost

MAX_DAYS = 3660
MAX_ENTRIES = 1000


def verify(arguments: argparse.Namespace) -> int:
    """Run `ledger verify`: print every fault; return 1 if an invariant is violated."""
    server_settings = database_access.settings_of(arguments)
    check = archive.read(server_settings, lambda reader: reader.verify(KIND))
    faults = (*database_access.read(server_settings, ledger_queries.verify()), *check.faults)
    if arguments.json:
        put_json({"ok": not faults, "faults": list(faults), "archived": check.charges})
    elif faults:
        for fault in faults:
            sys.stderr.write(f"sixfold: {fault}\n")
    else:
        archive_note = f", also with {check.charges} charges of the archive" if check.charges else ""
        TerminalStyle().line(f"  The ledger is consistent{archive_note}")
    return 1 if faults else 0


def entries(arguments: argparse.Namespace) -> None:
    """Run `ledger entries`: print the entries of an account with the calculation of each, newest first."""
    if not 1 <= arguments.limit <= MAX_ENTRIES:
        raise CommandError(f"--limit must be from 1 to {MAX_ENTRIES} (got {arguments.limit})")
    page = database_access.read(database_access.settings_of(arguments), _entries(arguments))
    if arguments.json:
        put_json(
            {
                "entries": [ledger_queries.to_json(row) for row in page.entries],
                "next_cursor": page.next_cursor,
            }
        )
        return
    if not page.entries:
        TerminalStyle().line("  No entries")
        return
    rows = [
        (
            (rfc3339(row["created_at"]) or "")[:19].replace("T", " "),
            row["kind"],
            money.format_usd(row["amount"]),
            row["description"],
            charges.in_words(charges.decode(row["charge"])) or "",
            row["request_id"] or "",
        )
        for row in page.entries
    ]
    TerminalStyle().table(("when (UTC)", "kind", "USD", "for", "calculation", "request"), rows)
    if page.next_cursor:
        TerminalStyle().line(f"  Older entries: --cursor {page.next_cursor}")


def _entries(arguments: argparse.Namespace) -> Transaction[LedgerPage]:
    account = yield from accounts.by_email(arguments.email)
    return (yield from ledger_queries.page(account.id, arguments.limit, arguments.cursor))


def usage(arguments: argparse.Namespace) -> None:
    """Run `ledger usage`: print the usage of an account by day, kind, model and key."""
    if not 1 <= arguments.days <= usage_report.MAX_DAYS:
        raise CommandError(f"--days must be from 1 to {usage_report.MAX_DAYS} (got {arguments.days})")
    dimensions = tuple(dict.fromkeys(arguments.by.split(",")))
    if unknown := [name for name in dimensions if name not in usage_report.DIMENSIONS]:
        allowed = ", ".join(usage_report.DIMENSIONS)
        raise CommandError(f"--by must be a list of {allowed}, separated by commas (got {unknown[0]!r})")
    report = database_access.read(database_access.settings_of(arguments), _usage(arguments, dimensions))
    if arguments.json:
        put_json({"days": arguments.days, "usage": report.rows})
    elif arguments.csv:
        sys.stdout.write(report.csv())
    elif not report.rows:
        TerminalStyle().line(f"  No usage in the last {arguments.days} days")
    else:
        rows = [[str(row[name]) for name in report.columns] for row in report.rows]
        TerminalStyle().table([name.replace("_", " ") for name in report.columns], rows)


def _usage(arguments: argparse.Namespace, dimensions: tuple[str, ...]) -> Transaction[UsageReport]:
    account = yield from accounts.by_email(arguments.email)
    return (yield from usage_report.report(account.id, arguments.days, dimensions, with_costs=True))


def costs(arguments: argparse.Namespace) -> None:
    """Run `ledger costs`: print earnings and provider costs by engine; accounts never see the costs."""
    if not 1 <= arguments.days <= MAX_DAYS:
        raise CommandError(f"--days must be from 1 to {MAX_DAYS} (got {arguments.days})")
    rows_by_engine = database_access.read(
        database_access.settings_of(arguments), prediction_queries.by_engine(arguments.days * DAY_US)
    )
    if arguments.json:
        put_json({"days": arguments.days, "engines": [_cost(cost) for cost in rows_by_engine]})
        return
    if not rows_by_engine:
        TerminalStyle().line(f"  No runs in the last {arguments.days} days")
        return
    rows = [
        (cost.engine, str(cost.runs), money.format_usd(cost.earned), _spent(cost)) for cost in rows_by_engine
    ]
    TerminalStyle().table(("engine", "runs", "earned USD", "spent USD"), rows)


def _cost(cost: EngineCost) -> dict[str, Any]:
    return {
        "engine": cost.engine,
        "runs": cost.runs,
        "earned_usd": money.format_usd(cost.earned),
        "spent_usd": money.format_usd(cost.spent),
        "runs_with_known_cost": cost.runs_with_cost,
    }


def _spent(cost: EngineCost) -> str:
    if not cost.runs_with_cost:
        return "–"
    of = "" if cost.runs_with_cost == cost.runs else f" ({cost.runs_with_cost} of {cost.runs} runs known)"
    return f"{money.format_usd(cost.spent)}{of}"
