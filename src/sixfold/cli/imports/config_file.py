"""Additions to `sixfold.toml` that preserve its text and comments."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sixfold.cli.imports.litellm import ConvertedConfig
from sixfold.cli.terminal import CommandError
from sixfold.core.gateway import policy
from sixfold.core.gateway.pricing import token_rates
from sixfold.store import durable

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def merge(text: str, converted: ConvertedConfig) -> tuple[str, list[str]]:
    """Add tables to the text of a file; return the text and the names of settings that it already contains.

    These settings are not changed. Raises `CommandError` if the result is not valid.
    """
    gateway = gateway_table(text)
    skipped: list[str] = []
    text = _add_settings(text, "gateway", converted.settings, gateway, skipped)
    text = _add_settings(text, "gateway.aliases", converted.aliases, gateway.get("aliases") or {}, skipped)
    for table, rows in ((policy.SERVERS, converted.servers), ("prices", converted.prices)):
        for name, row in rows.items():
            header = f"[gateway.{table}.{_key(name)}]"
            if name in (gateway.get(table) or {}):
                skipped.append(header)
            else:
                text += f"\n{header}\n{_lines(row)}"
    return _checked(text.lstrip("\n")), skipped


def _add_settings(
    text: str, table: str, rows: Mapping[str, Any], present: Mapping[str, Any], skipped: list[str]
) -> str:
    """Insert settings below the header of their table, which is appended if it is missing."""
    skipped += [f"[{table}] {name}" for name in rows if name in present]
    new = _lines({name: value for name, value in rows.items() if name not in present})
    if not new:
        return text
    header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(table)}[ \t]*\][^\n]*\n?", text, re.MULTILINE)
    if header is None:
        return f"{text}\n[{table}]\n{new}"
    before = text[: header.end()]
    return f"{before}{'' if before.endswith(chr(10)) else chr(10)}{new}{text[header.end() :]}"


def write(path: Path, text: str) -> None:
    """Replace the file atomically; only the owner may read a new file, as it can contain keys."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
    durable.sync_folder(path.parent)


def gateway_table(text: str) -> dict[str, Any]:
    """Return the `[gateway]` table of a file; raises `CommandError`."""
    try:
        return cast("dict[str, Any]", tomllib.loads(text).get("gateway") or {})
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"sixfold.toml is not valid TOML ({error}); nothing was written") from None


def _checked(text: str) -> str:
    try:
        gateway = tomllib.loads(text).get("gateway") or {}
        policy.parse(gateway)
        for row in (gateway.get("prices") or {}).values():
            token_rates.rates(row)
    except tomllib.TOMLDecodeError:
        raise CommandError(
            "sixfold.toml defines [gateway] as an inline table or with dotted keys, which cannot be "
            "extended: run this command without --write, and add the tables that it prints to the file"
        ) from None
    except ValueError as error:
        raise CommandError(f"The result would not be valid: {error}; nothing was written") from None
    return text


def _lines(row: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in row.items())


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    """Return a value as TOML; strings are encoded as JSON, which is valid TOML."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"[{', '.join(_value(item) for item in items)}]"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return f"{{ {', '.join(f'{_key(name)} = {_value(item)}' for name, item in fields.items())} }}"
    return json.dumps(value, ensure_ascii=False)
