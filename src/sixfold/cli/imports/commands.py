"""`import litellm`: convert the configuration and keys of a LiteLLM proxy."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import yaml

from sixfold import settings
from sixfold.cli import database_access
from sixfold.cli.imports import config_file, file_limits, litellm, litellm_keys
from sixfold.cli.imports.litellm import ConvertedConfig, Omission, UnreadableConfig
from sixfold.cli.imports.litellm_keys import ConvertedKey
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core import clock
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.keys import NewKey
from sixfold.core.database import Transaction
from sixfold.core.gateway import policy
from sixfold.settings import Settings
from sixfold.store import secrets

_MAX_CONFIG_BYTES = 2**20
_MAX_KEYS_BYTES = 64 * 2**20


def import_litellm(arguments: argparse.Namespace) -> None:
    """Run `import litellm`: convert models, aliases, prices and keys; list settings without equivalent."""
    if bool(arguments.keys) != bool(arguments.account):
        raise CommandError(
            "--keys and --account must be used together: --account names the account of the new keys"
        )
    server_settings = database_access.settings_of(arguments)
    path = server_settings.config_file
    present = path.read_text("utf-8") if path.exists() else ""
    servers = config_file.gateway_table(present).get(policy.SERVERS) or {}
    try:
        with file_limits.limited_memory(arguments.file):
            converted = litellm.convert(_yaml(Path(arguments.file)), servers)
            new_keys, omitted = _converted_keys(arguments, converted)
    except UnreadableConfig as error:
        raise CommandError(str(error)) from error
    converted.omitted += omitted
    text, skipped = config_file.merge(present, converted)
    converted.omitted += [Omission(name, "it is already in sixfold.toml") for name in skipped]
    if not arguments.write:
        _preview(arguments, converted, new_keys)
        return
    # Commands cannot load a file that names a missing variable.
    settings.find_keys(config_file.gateway_table(text))
    # The keys are stored first, so the file is unchanged if they are rejected.
    created = _create_keys(server_settings, arguments.account, new_keys) if new_keys else ()
    config_file.write(path, text)
    _report(arguments, path, converted, list(zip(new_keys, created, strict=True)))


def _converted_keys(
    arguments: argparse.Namespace, converted: ConvertedConfig
) -> tuple[list[ConvertedKey], list[Omission]]:
    if not arguments.keys:
        return [], []
    text = _text(Path(arguments.keys), _MAX_KEYS_BYTES)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableConfig(f"{arguments.keys} is not JSON: {error}") from None
    return litellm_keys.convert(document, converted.aliases, time.time_ns() // 1000)


def _create_keys(server_settings: Settings, email: str, new: list[ConvertedKey]) -> tuple[NewKey, ...]:
    def create() -> Transaction[tuple[NewKey, ...]]:
        account = yield from accounts.by_email(email)
        created: list[NewKey] = []
        for key in new:
            created.append((yield from keys.create(account.id, key.scope, key.expires_at)))
        return tuple(created)

    return database_access.write(server_settings, create())


def _yaml(path: Path) -> Any:
    text = _text(path, _MAX_CONFIG_BYTES)
    try:
        return file_limits.parse_yaml(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UnreadableConfig(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None


def _text(path: Path, max_bytes: int) -> str:
    if path.stat().st_size > max_bytes:
        raise UnreadableConfig(f"{path} must be at most {max_bytes // 2**20} MiB")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise UnreadableConfig(f"{path} is not UTF-8 text") from None


# -- output --------------------------------------------------------------------------------------


def _preview(arguments: argparse.Namespace, converted: ConvertedConfig, new: list[ConvertedKey]) -> None:
    if arguments.json:
        put_json({**_document(converted), "written": False, "keys": [_limits(key) for key in new]})
        return
    paint = TerminalStyle()
    for server in converted.servers.values():
        if "api_key" in server:
            server["api_key"] = secrets.hint(server["api_key"])
    paint.line(config_file.merge("", converted)[0].rstrip())
    _print_omitted(paint, converted)
    paint.line()
    also = f", with {len(new)} new keys" if new else ""
    paint.paragraph(f"Nothing was changed. Add --write to write these tables to sixfold.toml{also}.")


def _report(
    arguments: argparse.Namespace,
    path: Path,
    converted: ConvertedConfig,
    created: list[tuple[ConvertedKey, NewKey]],
) -> None:
    if arguments.json:
        rows = [{**_limits(key), "id": new.id, "api_key": new.api_key} for key, new in created]
        put_json({**_document(converted), "written": True, "file": str(path), "keys": rows})
        return
    paint = TerminalStyle()
    counts = (
        ("servers", converted.servers),
        ("aliases", converted.aliases),
        ("prices", converted.prices),
        ("keys", created),
    )
    paint.rows([("file", str(path)), *((name, f"{len(rows):,}") for name, rows in counts)])
    if created:
        paint.line()
        cells = [(key.name, new.id, new.api_key) for key, new in created]
        paint.table(("name", "id", "key, shown this once"), cells)
    _print_omitted(paint, converted)


def _print_omitted(paint: TerminalStyle, converted: ConvertedConfig) -> None:
    if converted.omitted:
        paint.line()
        paint.table(("not imported", "reason"), [(row.setting, row.reason) for row in converted.omitted])
    if converted.variables:
        paint.line()
        paint.paragraph(f"The server reads these variables: {', '.join(converted.variables)}.")


def _document(converted: ConvertedConfig) -> dict[str, Any]:
    return {
        "servers": list(converted.servers),
        "aliases": converted.aliases,
        "prices": converted.prices,
        "settings": converted.settings,
        "variables": converted.variables,
        "not_imported": [{"setting": row.setting, "reason": row.reason} for row in converted.omitted],
    }


def _limits(key: ConvertedKey) -> dict[str, Any]:
    return {"name": key.name, "models": list(key.scope.services), "expires_at": clock.rfc3339(key.expires_at)}
