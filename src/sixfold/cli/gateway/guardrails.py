"""`guardrail`: set, list and remove the guardrails of accounts and keys."""

from __future__ import annotations

import argparse
from typing import Any

from sixfold.cli import database_access
from sixfold.cli.terminal import TerminalStyle, put_json
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.clock import rfc3339
from sixfold.core.database import Row, Transaction
from sixfold.core.gateway.guardrails import models as guardrails
from sixfold.core.gateway.guardrails import storage
from sixfold.core.gateway.guardrails.models import Guardrail
from sixfold.net import urls


def set_guardrail(arguments: argparse.Namespace) -> None:
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
    server_settings = database_access.settings_of(arguments)
    database_access.write(server_settings, _set(arguments.email, arguments.key, guardrail))
    if arguments.json:
        put_json({"key": arguments.key or None, **guardrail.document()})
    else:
        TerminalStyle().line(f"  {arguments.key or arguments.email}: {_text(guardrail)}")


def _set(email: str, key_id: str, guardrail: Guardrail) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from storage.set_guardrail(account.id, key_id, guardrail)
    yield from audit_log.note(account.id, "guardrail.set", key_id)


def list_guardrails(arguments: argparse.Namespace) -> None:
    rows = database_access.read(database_access.settings_of(arguments), _of(arguments.email))
    stored = [(row["key_id"], guardrails.decode(row["document"]), row["updated_at"]) for row in rows]
    if arguments.json:
        items = [
            {"key": key_id or None, **guardrail.document(), "updated_at": rfc3339(updated_at)}
            for key_id, guardrail, updated_at in stored
        ]
        put_json({"guardrails": items})
        return
    paint = TerminalStyle()
    if not stored:
        paint.line(f"  {arguments.email} has no guardrail: `sixfold guardrail set` sets one")
        return
    paint.table(
        ("of", "does"), [(key_id or "the account", _text(guardrail)) for key_id, guardrail, _ in stored]
    )


def _of(email: str) -> Transaction[tuple[Row, ...]]:
    account = yield from accounts.by_email(email)
    return tuple((yield from storage.guardrails_of(account.id)))


def remove_guardrail(arguments: argparse.Namespace) -> None:
    server_settings = database_access.settings_of(arguments)
    database_access.write(server_settings, _remove(arguments.email, arguments.key))
    if arguments.json:
        put_json({"key": arguments.key or None, "removed": True})
    else:
        TerminalStyle().line(f"  The guardrail of {arguments.key or arguments.email} is removed")


def _remove(email: str, key_id: str) -> Transaction[None]:
    account = yield from accounts.by_email(email)
    yield from storage.remove_guardrail(account.id, key_id)
    yield from audit_log.note(account.id, "guardrail.remove", key_id)


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
