"""`provider`: the operator's keys for providers, stored encrypted."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from typing import Any

from sixfold.app import storage
from sixfold.cli import database_access
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.clients import key_checks
from sixfold.clients.key_checks import KeyCheck
from sixfold.core.catalog.engines import EngineError
from sixfold.settings import Settings
from sixfold.store import secrets
from sixfold.store.secrets import Secrets, SecretUnreadable

_LEAST, _MOST = 8, 512


def set_key(arguments: argparse.Namespace) -> None:
    """Run `provider set`: store a key read from a prompt or standard input, never from an argument."""
    configured, check = database_access.settings_of(arguments), key_checks.KEY_CHECKS[arguments.provider]
    title = check.provider.title
    entered = getpass.getpass(f"Key for {title}: ") if sys.stdin.isatty() else sys.stdin.readline(_MOST + 2)
    key = entered.strip()
    if not _LEAST <= len(key) <= _MOST or not key.isascii() or not key.isprintable() or " " in key:
        raise CommandError(
            f"The key must have {_LEAST} to {_MOST} ASCII characters without spaces; nothing was stored"
        )
    os.umask(database_access.PRIVATE)
    configured.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _secrets(configured).put(check.setting, key)
    shadowed = bool(getattr(configured, check.setting))
    document = {"provider": arguments.provider, "source": "stored", "hint": secrets.hint(key)}
    if arguments.json:
        put_json({**document, "used": not shadowed})
        return
    paint = TerminalStyle()
    paint.line(f"  The key for {title} is stored ({secrets.hint(key)}); a running server uses it at once.")
    if shadowed:
        paint.line(paint.dim(f"  {check.setting.upper()} is also set and takes precedence."))


def list_keys(arguments: argparse.Namespace) -> None:
    """Run `provider list`: print the source, last four characters and last check of each key."""
    configured = database_access.settings_of(arguments)
    rows = [_row(configured, name, check) for name, check in key_checks.KEY_CHECKS.items()]
    if arguments.json:
        put_json({"providers": rows})
        return
    paint = TerminalStyle()
    cells = [
        (
            row["provider"],
            row["hint"] or "–",
            row["source"] or "none",
            row["checked_at"] or "never",
            row["problem"] or "",
        )
        for row in rows
    ]
    paint.table(("provider", "key", "source", "checked", ""), cells)


def check_key(arguments: argparse.Namespace) -> None:
    """Run `provider check`: ask the provider whether it accepts the key, without any charge."""
    configured, check = database_access.settings_of(arguments), key_checks.KEY_CHECKS[arguments.provider]
    key = secrets.provider_key(configured, check.setting)
    if not key:
        raise CommandError(
            f"Key for {check.provider.title} not found: run `sixfold provider set {arguments.provider}`"
        )
    try:
        asyncio.run(key_checks.check_key(arguments.provider, key, base_url=arguments.base_url or ""))
    except EngineError as error:
        raise CommandError(str(error)) from error
    stored = _secrets(configured)
    stored.mark_checked(check.setting, key)
    checked_at = stored.checked_at(check.setting, key)
    if arguments.json:
        put_json({"provider": arguments.provider, "ok": True, "checked_at": checked_at})
    else:
        TerminalStyle().line(f"  {check.provider.title} accepts the key {secrets.hint(key)}")


def remove_key(arguments: argparse.Namespace) -> None:
    """Run `provider remove`: delete a stored key; environment variables are not affected."""
    configured, check = database_access.settings_of(arguments), key_checks.KEY_CHECKS[arguments.provider]
    if not _secrets(configured).remove(check.setting):
        raise CommandError(f"No key for {check.provider.title} is stored")
    if arguments.json:
        put_json({"provider": arguments.provider, "removed": True})
    else:
        TerminalStyle().line(f"  The key for {check.provider.title} is removed")


def _secrets(configured: Settings) -> Secrets:
    if not configured.data_dir.is_dir():
        raise CommandError(f"Data folder {configured.data_dir} does not exist: set --data-dir")
    return Secrets(configured.data_dir, storage.server_secret(configured.data_dir, secrets.MASTER))


def _row(configured: Settings, name: str, check: KeyCheck) -> dict[str, Any]:
    row: dict[str, Any] = {"provider": name, "source": None, "hint": None, "set_at": None}
    row |= {"checked_at": None, "problem": None}
    environment_key = str(getattr(configured, check.setting))
    if not configured.data_dir.is_dir():
        return row | (
            {"source": "environment", "hint": secrets.hint(environment_key)} if environment_key else {}
        )
    stored_keys = _secrets(configured)
    try:
        key = environment_key or stored_keys.get(check.setting)
    except SecretUnreadable as unreadable:
        return row | {"source": "stored", "problem": str(unreadable)}
    if not key:
        return row
    stored = None if environment_key else stored_keys.stored(check.setting)
    return row | {
        "source": "environment" if environment_key else "stored",
        "hint": secrets.hint(key),
        "set_at": stored.set_at if stored else None,
        "checked_at": stored_keys.checked_at(check.setting, key),
    }
