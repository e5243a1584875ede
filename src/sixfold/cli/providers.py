"""`provider`: the operator's keys for providers, stored encrypted."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import os
import sys
from typing import Any

from sixfold.app import storage
from sixfold.cli import database_access, ownership
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.clients import provider_check
from sixfold.core.catalog.engines import EngineError
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import ConfigEntry
from sixfold.providers import PROVIDERS, ProviderSpec
from sixfold.settings import Settings
from sixfold.store import secrets
from sixfold.store.secrets import Secrets, SecretUnreadable


def set_key(arguments: argparse.Namespace) -> None:
    """Run `provider set`: store a key read from a prompt or standard input, never from an argument."""
    server_settings, spec = database_access.settings_of(arguments), PROVIDERS[arguments.provider]
    title = spec.title
    longest = secrets.MAX_KEY + 2
    entered = getpass.getpass(f"Key for {title}: ") if sys.stdin.isatty() else sys.stdin.readline(longest)
    key = entered.strip()
    if not secrets.is_valid_key(key):
        raise CommandError(f"{secrets.KEY_FORMAT}; nothing was stored")
    os.umask(database_access.PRIVATE)
    server_settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _publish(server_settings, spec, _secrets(server_settings).put(spec.key, key))
    shadowed = bool(getattr(server_settings, spec.key))
    document = {"provider": arguments.provider, "source": "stored", "hint": secrets.hint(key)}
    if arguments.json:
        put_json({**document, "used": not shadowed})
        return
    paint = TerminalStyle()
    paint.line(f"  The key for {title} is stored ({secrets.hint(key)}); a running server uses it at once.")
    if shadowed:
        paint.line(paint.dim(f"  {spec.variable} is also set and takes precedence."))


def list_keys(arguments: argparse.Namespace) -> None:
    """Run `provider list`: print the source, last four characters and last check of each key."""
    server_settings = database_access.settings_of(arguments)
    rows = [_row(server_settings, spec) for spec in PROVIDERS.values()]
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
    """Run `provider check`: check with the provider whether it accepts the key, free of charge."""
    server_settings, spec = database_access.settings_of(arguments), PROVIDERS[arguments.provider]
    key = secrets.provider_key(server_settings, spec.key)
    if not key:
        raise CommandError(f"Key for {spec.title} not found: run `sixfold provider set {arguments.provider}`")
    parameters = {name: str(getattr(server_settings, name)) for name in spec.parameters}
    base_url = arguments.base_url or spec.check_url_with(parameters)
    if not base_url:
        missing = ", ".join(name.upper() for name, value in parameters.items() if not value)
        raise CommandError(f"{spec.title} requires {missing}, or --base-url")
    try:
        asyncio.run(provider_check.check(spec, key, base_url))
    except EngineError as error:
        raise CommandError(str(error)) from error
    stored = _secrets(server_settings)
    stored.mark_checked(spec.key, key)
    checked_at = stored.checked_at(spec.key, key)
    if arguments.json:
        put_json({"provider": arguments.provider, "ok": True, "checked_at": checked_at})
    else:
        TerminalStyle().line(f"  {spec.title} accepts the key {secrets.hint(key)}")


def remove_key(arguments: argparse.Namespace) -> None:
    """Run `provider remove`: delete a stored key; environment variables are not affected."""
    server_settings, spec = database_access.settings_of(arguments), PROVIDERS[arguments.provider]
    if not (stored := _secrets(server_settings)).remove(spec.key):
        raise CommandError(f"A key for {spec.title} is not stored")
    _publish(server_settings, spec, stored.removed())
    if arguments.json:
        put_json({"provider": arguments.provider, "removed": True})
    else:
        TerminalStyle().line(f"  The key for {spec.title} is removed")


def _publish(server_settings: Settings, spec: ProviderSpec, document: str) -> None:
    """Store the sealed key in the database, if there is one, for other servers."""
    ownership.give_to_owner(server_settings.data_dir)  # the running server reads the key now
    with contextlib.suppress(CommandError):
        database_access.write(server_settings, entries.store(ConfigEntry(entries.KEYS, spec.key, document)))


def _secrets(server_settings: Settings) -> Secrets:
    if not server_settings.data_dir.is_dir():
        raise CommandError(f"Data folder {server_settings.data_dir} does not exist: set --data-dir")
    return Secrets(server_settings.data_dir, storage.server_secret(server_settings.data_dir, secrets.MASTER))


def _row(server_settings: Settings, spec: ProviderSpec) -> dict[str, Any]:
    row: dict[str, Any] = {"provider": spec.name, "source": None, "hint": None, "set_at": None}
    row |= {"checked_at": None, "problem": None}
    environment_key = str(getattr(server_settings, spec.key))
    if not server_settings.data_dir.is_dir():
        return row | (
            {"source": "environment", "hint": secrets.hint(environment_key)} if environment_key else {}
        )
    stored_keys = _secrets(server_settings)
    try:
        key = environment_key or stored_keys.get(spec.key)
    except SecretUnreadable as unreadable:
        return row | {"source": "stored", "problem": str(unreadable)}
    if not key:
        return row
    stored = None if environment_key else stored_keys.stored(spec.key)
    return row | {
        "source": "environment" if environment_key else "stored",
        "hint": secrets.hint(key),
        "set_at": stored.set_at if stored else None,
        "checked_at": stored_keys.checked_at(spec.key, key),
    }
