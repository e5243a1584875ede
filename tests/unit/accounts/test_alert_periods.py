"""Cost alerts at midnight: the last minute of a day belongs to that day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts, ledger
from sixfold.core.accounts.ledger import LedgerEntry
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.alerts.sweep import CostAlerts
from sixfold.net.fetch import FetchResponse
from sixfold.store.sqlite.database import SqliteDatabase
from tests.harness import databases

ALERT = {"period": "day", "threshold_usd": "0.00008", "url": "https://example.com/alert"}


class Sender:
    """Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def check_url(self, url: str) -> None:
        raise AssertionError(url)

    async def send(self, method: str, url: str, **request: Any) -> FetchResponse:
        self.sent.append(json.loads(request["content"]))
        return FetchResponse(204, {}, b"")


class Secrets:
    """Returns the same secret for every account."""

    async def of(self, _account_id: str) -> str:
        return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_a_refund_of_an_earlier_day_does_not_delay_an_alert(backend: str, tmp_path: Path) -> None:
    moment = at("2026-11-23T12:00:00")
    async with databases.running_database(backend, tmp_path, lambda: moment) as database:
        account = await database.write(accounts.create("ada@example.com", credit=1_000_000))
        await database.write(alerts.create(account.id, CostAlert(ALERT)))
        sender = Sender()
        swept = CostAlerts(database, sender, Secrets())  # pyright: ignore[reportArgumentType] # only `of` is called

        async def spend(hold_id: str, amount: int) -> None:
            await database.write(ledger.hold(account.id, hold_id, amount))
            await database.write(ledger.capture(hold_id, amount, LedgerEntry("charge", "ra1")))

        async def counted() -> int:
            await swept.sweep(lag_us=0)
            await swept.sent()
            (row,) = await database.read(alerts.of_account(account.id))
            return int(row["amount"])

        await spend("h1", 70)
        moment += 1
        assert await counted() == 70
        moment = at("2026-11-24T12:00:00")
        assert await counted() == 70, "the rest of the first day"
        await spend("h2", 60)
        await spend("h3", 30)
        for hold_id in ("h1", "h3"):
            await database.write(ledger.refund(hold_id, LedgerEntry("refund", "ra1")))
        moment += 1
        assert await counted() == 60
        await spend("h4", 30)
        moment += 1
        assert await counted() == 90
        assert [each["spent_usd"] for each in sender.sent] == ["0.00009"]


async def test_last_minute_of_a_day_counts_for_that_day() -> None:
    moment = at("2026-11-23T23:59:30")
    database, sender, secrets = SqliteDatabase(":memory:", clock=lambda: moment), Sender(), Secrets()
    account = await database.write(accounts.create("ada@example.com", credit=1_000_000))
    await database.write(alerts.create(account.id, CostAlert(ALERT)))
    swept = CostAlerts(database, sender, secrets)  # pyright: ignore[reportArgumentType] # only `of` is called

    async def spend(hold_id: str, amount: int) -> None:
        await database.write(ledger.hold(account.id, hold_id, amount))
        await database.write(ledger.capture(hold_id, amount, LedgerEntry("charge", "ra1")))

    await spend("h1", 50)
    await swept.sweep()
    await swept.sent()
    assert not sender.sent
    moment = at("2026-11-23T23:59:55")
    await spend("h2", 50)
    moment = at("2026-11-24T00:00:40")
    await spend("h3", 20)
    await swept.sweep()
    await swept.sent()
    assert [(each["period_start"], each["spent_usd"]) for each in sender.sent] == [("2026-11-23", "0.0001")]
    moment = at("2026-11-24T00:01:40")
    await swept.sweep()
    await swept.sent()
    (row,) = await database.read(alerts.of_account(account.id))
    assert (row["counted_for"], row["amount"], len(sender.sent)) == ("2026-11-24", 20, 1)
    await database.close()
