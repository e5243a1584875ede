"""`ledger`: prove the sums, and see what was earned and spent."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sixfold.cli import opening
from sixfold.cli.terminal import Paint, Refused, put_json
from sixfold.core import money
from sixfold.core.accounts import journal
from sixfold.core.clock import DAY_US
from sixfold.core.work import costs as work_costs
from sixfold.core.work.costs import Cost

MAX_DAYS = 3660


def verify(arguments: argparse.Namespace) -> int:
    """`ledger verify`: 1 when an invariant is broken, with every fault in a line."""
    faults = opening.read(opening.settings_of(arguments), journal.verify())
    if arguments.json:
        put_json({"ok": not faults, "faults": list(faults)})
    elif faults:
        for fault in faults:
            sys.stderr.write(f"sixfold: {fault}\n")
    else:
        Paint().line("  Every sum is right")
    return 1 if faults else 0


def costs(arguments: argparse.Namespace) -> None:
    """`ledger costs`: what providers took is the operator's; accounts never see it."""
    if not 1 <= arguments.days <= MAX_DAYS:
        raise Refused(f"--days is a number from 1 to {MAX_DAYS}")
    found = opening.read(opening.settings_of(arguments), work_costs.by_engine(arguments.days * DAY_US))
    if arguments.json:
        put_json({"days": arguments.days, "engines": [_cost(cost) for cost in found]})
        return
    if not found:
        Paint().line(f"  Nothing was made in the last {arguments.days} days")
        return
    rows = [(cost.engine, str(cost.runs), money.format_usd(cost.earned), _spent(cost)) for cost in found]
    Paint().table(("engine", "runs", "earned USD", "spent USD"), rows)


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "engine": cost.engine,
        "runs": cost.runs,
        "earned_usd": money.format_usd(cost.earned),
        "spent_usd": money.format_usd(cost.spent),
        "runs_with_known_cost": cost.told,
    }


def _spent(cost: Cost) -> str:
    if not cost.told:
        return "–"
    of = "" if cost.told == cost.runs else f" ({cost.told} of {cost.runs} runs told)"
    return f"{money.format_usd(cost.spent)}{of}"
