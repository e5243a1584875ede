"""`guardrail`, `logging` and `alert`: mask, check and log gateway calls, and report their cost."""

from __future__ import annotations

import argparse
from typing import Any

from sixfold.cli import database_access
from sixfold.cli.terminal import TerminalStyle, put_json
from sixfold.core import guardrail as guardrails
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.clock import rfc3339
from sixfold.core.database import Row, Transaction
from sixfold.core.gateway.content import log as contents
from sixfold.core.gateway.guardrails import storage
from sixfold.core.guardrail import Guardrail
from sixfold.net import urls


def set_guardrail(arguments: argparse.Namespace) -> None:
    """Run `guardrail set`."""
    fields: dict[str, Any] = {"mask": _names(arguments.mask), "mask_responses": arguments.mask_responses}
    if arguments.hook:
        urls.parse(arguments.hook)
        fields["hook"] = {
            "url": arguments.hook,
            "stages": _names(arguments.stages),
            "timeout_seconds": arguments.timeout,
            "on_failure": arguments.on_failure,
        }
    guardrail = guardrails.parse(fields)
    configured = database_access.settings_of(arguments)
    database_access.write(configured, _set(arguments.email, arguments.key, guardrail))
    if arguments.json:
        put_json({"key": arguments.key or None, **guardrail.document()})
    else:
        TerminalStyle().line(f"  {arguments.key or arguments.email}: {_text(guardrail)}")


def _set(email: str, key_id: str, guardrail: Guardrail) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from storage.set_guardrail(account.id, key_id, guardrail)
    yield from audit_log.note(account.id, "guardrail.set", key_id)


def list_guardrails(arguments: argparse.Namespace) -> None:
    """Run `guardrail list`."""
    rows = database_access.read(database_access.settings_of(arguments), _of(arguments.email))
    found = [(row["key_id"], guardrails.decode(row["document"]), row["updated_at"]) for row in rows]
    if arguments.json:
        listed = [
            {"key": key_id or None, **guardrail.document(), "updated_at": rfc3339(updated_at)}
            for key_id, guardrail, updated_at in found
        ]
        put_json({"guardrails": listed})
        return
    paint = TerminalStyle()
    if not found:
        paint.line(f"  {arguments.email} has no guardrail: `sixfold guardrail set` sets one")
        return
    paint.table(
        ("of", "does"), [(key_id or "the account", _text(guardrail)) for key_id, guardrail, _ in found]
    )


def _of(email: str) -> Transaction[tuple[Row, ...]]:
    account = yield from accounts.by_email(email)
    return tuple((yield from storage.guardrails_of(account.id)))


def remove_guardrail(arguments: argparse.Namespace) -> None:
    """Run `guardrail remove`."""
    configured = database_access.settings_of(arguments)
    database_access.write(configured, _remove(arguments.email, arguments.key))
    if arguments.json:
        put_json({"key": arguments.key or None, "removed": True})
    else:
        TerminalStyle().line(f"  The guardrail of {arguments.key or arguments.email} is removed")


def _remove(email: str, key_id: str) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from storage.remove_guardrail(account.id, key_id)
    yield from audit_log.note(account.id, "guardrail.remove", key_id)


def set_logging(arguments: argparse.Namespace) -> None:
    """Run `logging set`."""
    configured = database_access.settings_of(arguments)
    database_access.write(configured, _set_days(arguments.email, arguments.days))
    _print_days(arguments, arguments.days)


def _set_days(email: str, days: int) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from contents.set_days(account.id, days)


def show_logging(arguments: argparse.Namespace) -> None:
    """Run `logging show`."""
    configured = database_access.settings_of(arguments)
    _print_days(arguments, database_access.read(configured, _days_of(arguments.email)))


def _days_of(email: str) -> Transaction[int]:
    account = yield from accounts.by_email(email)
    return (yield from contents.days_of(account.id))


def _print_days(arguments: argparse.Namespace, days: int) -> None:
    if arguments.json:
        put_json({"enabled": days > 0, "days": days})
    else:
        state = f"logged for {days} day{'s' if days > 1 else ''}" if days else "not logged"
        TerminalStyle().line(f"  Calls of {arguments.email} are {state}")


def create_alert(arguments: argparse.Namespace) -> None:
    """Run `alert create`."""
    urls.parse(arguments.url)
    fields = {"key": arguments.key, "period": arguments.per, "threshold_usd": arguments.usd}
    alert = CostAlert({**fields, "url": arguments.url})
    configured = database_access.settings_of(arguments)
    row = database_access.write(configured, _create_alert(arguments.email, alert))
    if arguments.json:
        put_json(alerts.to_json(row))
    else:
        TerminalStyle().line(f"  {row['id']}: {_alert_text(alerts.to_json(row))}")


def _create_alert(email: str, alert: CostAlert) -> Transaction[Row]:
    account = yield from accounts.by_email(email)
    return (yield from alerts.create(account.id, alert))


def list_alerts(arguments: argparse.Namespace) -> None:
    """Run `alert list`."""
    configured = database_access.settings_of(arguments)
    found = [alerts.to_json(row) for row in database_access.read(configured, _alerts_of(arguments.email))]
    if arguments.json:
        put_json({"alerts": found})
        return
    paint = TerminalStyle()
    if not found:
        paint.line(f"  {arguments.email} has no cost alert: `sixfold alert create` creates one")
        return
    rows = [
        (alert["id"], _alert_text(alert), f"{alert['spent_usd']} USD", alert["sent_for"] or "", alert["url"])
        for alert in found
    ]
    paint.table(("id", "at", "spent", "last sent for", "url"), rows)


def _alerts_of(email: str) -> Transaction[tuple[Row, ...]]:
    account = yield from accounts.by_email(email)
    return tuple((yield from alerts.of_account(account.id)))


def delete_alert(arguments: argparse.Namespace) -> None:
    """Run `alert delete`."""
    configured = database_access.settings_of(arguments)
    database_access.write(configured, _delete_alert(arguments.email, arguments.id))
    if arguments.json:
        put_json({"id": arguments.id, "deleted": True})
    else:
        TerminalStyle().line(f"  {arguments.id} is deleted")


def _delete_alert(email: str, alert_id: str) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from alerts.delete(account.id, alert_id)


def _alert_text(alert: dict[str, Any]) -> str:
    return f"{alert['threshold_usd']} USD per {alert['period']} of {alert['key'] or 'the account'}"


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _text(guardrail: Guardrail) -> str:
    parts: list[str] = []
    if guardrail.mask:
        where = "requests and responses" if guardrail.mask_responses else "requests"
        parts.append(f"masks {', '.join(guardrail.mask)} in {where}")
    if guardrail.hook is not None:
        hook = guardrail.hook
        parts.append(f"{hook.url} checks each {' and '.join(hook.stages)}, on failure: {hook.on_failure}")
    return "; ".join(parts) or "nothing is masked or checked"
