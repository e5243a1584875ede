"""Ledger entries as lines of the billing page, with titles instead of ids."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sixfold.core.accounts import ledger_queries
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Row
from sixfold.core.predictions.history.entries import HistoryEntry, RunHistory
from sixfold.ui.templating import model_title
from sixfold.web.services import WebServices

_RUN = "pred_"
_SESSIONS = "/predictions?kind=live"


class LedgerLine(msgspec.Struct, frozen=True):
    """A ledger entry with its title: the title of its run, or else the model and description.

    `about` is the model and description if `title` is that of a run. `path` is the page of the run or the
    history of live sessions, or "".
    """

    entry: Row
    title: str
    about: str = ""
    path: str = ""


async def describe(services: WebServices, tenant: Tenant, entries: Sequence[Row]) -> list[LedgerLine]:
    """Return the lines for ledger entries of an account."""
    ids = {hold_id for entry in entries if (hold_id := entry["hold_id"] or "").startswith(_RUN)}
    runs = {run.id: run for run in await RunHistory(services.database).by_ids(tenant, sorted(ids))}
    return [_line(services, entry, runs.get(entry["hold_id"] or "")) for entry in entries]


def _line(services: WebServices, entry: Row, run: HistoryEntry | None) -> LedgerLine:
    description = str(entry["description"])
    model = ledger_queries.model_of(entry["kind"], description)
    words = f"{model_title(services.catalog, model)}{description.removeprefix(model)}"
    if run is None:
        return LedgerLine(entry, words, path=_SESSIONS if entry["kind"] == "session" else "")
    path = f"/predictions/{run.id}"
    return LedgerLine(entry, run.title, words, path) if run.title else LedgerLine(entry, words, path=path)
