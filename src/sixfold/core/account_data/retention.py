"""Retention: runs, live sessions and audit entries are deleted some days after they were created.

The `[retention]` table of the configuration has the days, and those of single accounts. What has not ended is
kept until it has, and a training is kept with its model. Charges stay in the ledger.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sixfold import errors
from sixfold.core import ids
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Transaction, many, now, one
from sixfold.core.predictions.history import deletion

MAX_DAYS = 36_500
_PASS_SECONDS = 3600
# Rows that are read at once, and the pause after them, in which other transactions run.
_BATCH, _PAUSE_SECONDS = 200, 0.02
_LOG = logging.getLogger("sixfold.retention")
_Days = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _RecordKind:
    """A kind of records: the prefix of its ids, the query that lists them, and their deletion."""

    prefix: str
    query: str
    delete: Callable[[Sequence[str]], Transaction[None]]


def _delete_by(*queries: str) -> Callable[[Sequence[str]], Transaction[None]]:
    def delete(record_ids: Sequence[str]) -> Transaction[None]:
        for query in queries:
            yield Query(query, {"ids": json.dumps(record_ids)})

    return delete


_KINDS: Mapping[str, _RecordKind] = {
    "predictions": _RecordKind("pred", "retention_predictions", deletion.delete_all),
    "sessions": _RecordKind(
        "sess", "retention_sessions", _delete_by("retention_standings_delete", "retention_sessions_delete")
    ),
    "audit": _RecordKind("aud", "retention_audit", _delete_by("retention_audit_delete")),
}
_SETTINGS = {f"{kind}_days": kind for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The days by kind of record, and those of single accounts by e-mail address; 0 keeps the records."""

    days: _Days = field(default_factory=dict[str, int])
    accounts: Mapping[str, _Days] = field(default_factory=dict[str, "_Days"])

    def __bool__(self) -> bool:
        return any(days for table in (self.days, *self.accounts.values()) for days in table.values())


def policy(table: Mapping[str, Any]) -> RetentionPolicy:
    """Parse the `[retention]` table; raises `ValueError` with a one-line message that names the setting."""
    accounts = table.get("accounts", {})
    if not isinstance(accounts, dict):
        raise ValueError("[retention.accounts] must be a table")  # noqa: TRY004 - all that is wrong here is a ValueError
    days = _days("[retention]", {name: value for name, value in table.items() if name != "accounts"})
    rows = cast("dict[str, Any]", accounts).items()
    return RetentionPolicy(
        days, {email: _days(f'[retention.accounts] "{email}"', row) for email, row in rows}
    )


def _days(where: str, table: Any) -> _Days:
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table such as {{ predictions_days = 90 }}")  # noqa: TRY004 - as above
    for name, value in cast("dict[str, Any]", table).items():
        if name not in _SETTINGS:
            raise ValueError(f"{where} has an unknown setting {name!r}; use {', '.join(_SETTINGS)}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DAYS:
            raise ValueError(f"{where} {name} must be a whole number from 0 to {MAX_DAYS}, not {value!r}")
    return {_SETTINGS[name]: value for name, value in cast("dict[str, int]", table).items()}


class Retention:
    """Deletes expired records."""

    def __init__(self, database: Database, policy: RetentionPolicy) -> None:
        self._database = database
        self._policy = policy

    async def run(self) -> None:
        """Delete once an hour; what fails is retried in the next hour. Returns at once if nothing expires."""
        while self._policy:
            try:
                deleted = await self.sweep(await self._database.read(now()))
            except errors.StoreFailed as error:
                _LOG.warning("expired records could not be deleted: %s", error.message)
            else:
                if any(deleted.values()):
                    counts = ", ".join(f"{count} {kind}" for kind, count in deleted.items() if count)
                    _LOG.info("deleted after the days of [retention]: %s", counts)
            await asyncio.sleep(_PASS_SECONDS)

    async def sweep(self, time_us: int) -> Mapping[str, int]:
        """Delete all records that have expired at a time (epoch µs), and return their number by kind."""
        accounts = await self._accounts()
        return {kind: await self._sweep_kind(kind, accounts, time_us) for kind in _KINDS}

    async def _accounts(self) -> Mapping[str, _Days]:
        """Return the days of single accounts by id."""
        accounts: dict[str, _Days] = {}
        for email, days in self._policy.accounts.items():
            row = await self._database.read(one("account_by_email", email=email))
            if row is None:
                _LOG.warning("[retention.accounts] %s is not an account of this server", email)
            else:
                accounts[str(row["id"])] = days
        return accounts

    async def _sweep_kind(self, kind: str, accounts: Mapping[str, _Days], time_us: int) -> int:
        general = self._policy.days.get(kind, 0)
        by_account = {account: days.get(kind, general) for account, days in accounts.items()}
        limits = [days for days in (general, *by_account.values()) if days]
        if not limits:
            return 0
        records = _KINDS[kind]
        bounds = {days: ids.earliest(records.prefix, time_us - days * DAY_US) for days in limits}
        page = {"before": bounds[min(limits)], "limit": _BATCH}
        after, deleted = "", 0
        while rows := await self._database.read(many(records.query, after=after, **page)):
            due = [
                str(row["id"])
                for row in rows
                if row["due"] and row["id"] < bounds.get(by_account.get(row["account_id"], general), "")
            ]
            if due:
                await self._database.write(records.delete(due))
                deleted += len(due)
            after = str(rows[-1]["id"])
            await asyncio.sleep(_PAUSE_SECONDS)
        return deleted
