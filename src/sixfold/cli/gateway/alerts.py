"""`alert`: create, list and delete the cost alerts of accounts and keys."""

from __future__ import annotations

import argparse
from typing import Any

from sixfold.cli import database_access
from sixfold.cli.terminal import TerminalStyle, put_json
from sixfold.core.accounts import accounts
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.database import Row, Transaction
from sixfold.net import urls


def create_alert(arguments: argparse.Namespace) -> None:
    urls.parse(arguments.url)
    fields = {"key": arguments.key, "period": arguments.per, "threshold_usd": arguments.usd}
    alert = CostAlert({**fields, "url": arguments.url})
    server_settings = database_access.settings_of(arguments)
    row = database_access.write(server_settings, _create_alert(arguments.email, alert))
    if arguments.json:
        put_json(alerts.to_json(row))
    else:
        TerminalStyle().line(f"  {row['id']}: {_alert_text(alerts.to_json(row))}")


def _create_alert(email: str, alert: CostAlert) -> Transaction[Row]:
    account = yield from accounts.by_email(email)
    return (yield from alerts.create(account.id, alert))


def list_alerts(arguments: argparse.Namespace) -> None:
    server_settings = database_access.settings_of(arguments)
    documents = [
        alerts.to_json(row) for row in database_access.read(server_settings, _alerts_of(arguments.email))
    ]
    if arguments.json:
        put_json({"alerts": documents})
        return
    paint = TerminalStyle()
    if not documents:
        paint.line(f"  {arguments.email} has no cost alert: `sixfold alert create` creates one")
        return
    rows = [
        (alert["id"], _alert_text(alert), f"{alert['spent_usd']} USD", alert["sent_for"] or "", alert["url"])
        for alert in documents
    ]
    paint.table(("id", "at", "spent", "last sent for", "url"), rows)


def _alerts_of(email: str) -> Transaction[tuple[Row, ...]]:
    account = yield from accounts.by_email(email)
    return tuple((yield from alerts.of_account(account.id, with_operators=True)))


def delete_alert(arguments: argparse.Namespace) -> None:
    server_settings = database_access.settings_of(arguments)
    database_access.write(server_settings, _delete_alert(arguments.email, arguments.id))
    if arguments.json:
        put_json({"id": arguments.id, "deleted": True})
    else:
        TerminalStyle().line(f"  {arguments.id} is deleted")


def _delete_alert(email: str, alert_id: str) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from alerts.delete(account.id, alert_id, with_operators=True)


def _alert_text(alert: dict[str, Any]) -> str:
    return f"{alert['threshold_usd']} USD per {alert['period']} of {alert['key'] or 'the account'}"
