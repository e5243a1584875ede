"""Entries of the configuration in the database; every server of the database applies them within seconds.

A section is a table of `sixfold.toml` (`gateway.aliases`), and the value of an entry is JSON. The section
`providers` contains encrypted provider keys by the names of their settings; the value of a removed key is
empty.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.database import Query, Transaction, encode_json, many, one
from sixfold.core.gateway import policy

SERVERS, ALIASES = f"gateway.{policy.SERVERS}", "gateway.aliases"
TOKEN_PRICES, PRICES = "gateway.prices", "prices"
# ComfyUI servers by name, each with its `url`.
COMFYUI = "comfyui"
# MCP servers by name, and the settings of the web search by name.
TOOL_SERVERS, SEARCH = "mcp", "search"
# The name of the address of the web search.
SEARXNG = "searxng"
# The settings of the gateway's table that can be set.
GATEWAY = "gateway"
_GATEWAY_NAMES = ("guardrail", "log_bodies", "log_days")
SECTIONS = (SERVERS, ALIASES, TOKEN_PRICES, PRICES, COMFYUI, TOOL_SERVERS, SEARCH, GATEWAY)
# Sections whose values can contain a key.
WITH_KEYS = (SERVERS, TOOL_SERVERS)
KEYS = "providers"
MAX_ENTRIES, MAX_NAME, _MAX_VALUE = 1000, 120, 8000
# An encrypted secret within a value; records of actions state only that a secret exists.
SEALED = "sealed_key"
_NAME = re.compile(r"[\w.:@/+-]+")


class ConfigEntry(msgspec.Struct, frozen=True):
    """An entry of a section; `value` is JSON."""

    section: str
    name: str
    value: str

    @property
    def document(self) -> Any:
        """The decoded value."""
        return msgspec.json.decode(self.value)


def entry(section: str, name: str, value: Any) -> ConfigEntry:
    """Return an entry.

    Raises `NotFound` for an unknown section, and `InvalidInput` for a wrong name or a value above the limit.
    """
    if section not in SECTIONS:
        raise errors.NotFound(f"Section {section[:40]!r} not found: the sections are {', '.join(SECTIONS)}")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise errors.InvalidInput.of(
            "name", f"The name must have 1 to {MAX_NAME} characters: letters, digits and . : @ / + - _"
        )
    if section == GATEWAY and name not in _GATEWAY_NAMES:
        raise errors.InvalidInput.of(
            "name", f"{name} can be set only in sixfold.toml; here, set one of {', '.join(_GATEWAY_NAMES)}"
        )
    text = encode_json(value)
    if len(text) > _MAX_VALUE:
        raise errors.InvalidInput.of("value", f"The value must be at most {_MAX_VALUE:,} characters of JSON")
    return ConfigEntry(section, name, text)


def all_entries() -> Transaction[tuple[ConfigEntry, ...]]:
    rows = yield from many("configuration_entries")
    return tuple(ConfigEntry(row["section"], row["name"], row["value"]) for row in rows)


def put(actor: Principal, new: ConfigEntry, default: Any = None) -> Transaction[None]:
    """Store an entry with a record of the change; raises `BadRequest` if there are too many entries.

    The record of a first value contains the `default` that the value replaces.
    """
    before = yield from _value(new)
    if before == new.value:
        return
    if before is None and (yield Query("configuration_count", {}))[0]["total"] >= MAX_ENTRIES:
        raise errors.BadRequest(
            f"The configuration can have at most {MAX_ENTRIES} entries: remove some first"
        )
    yield from store(new)
    old = default if before is None else _shown(before)
    yield actions.note(actor, "configuration.set", _target(new), old, _shown(new.value))


def remove(actor: Principal, section: str, name: str) -> Transaction[None]:
    """Remove an entry with a record of the change; raises `NotFound`."""
    old = ConfigEntry(section, name, "")
    before = yield from _value(old)
    if before is None:
        raise errors.NotFound(f"{name[:MAX_NAME]} was not set on the pages of this server")
    yield Query("configuration_entry_delete", {"section": section, "name": name})
    yield actions.note(actor, "configuration.remove", _target(old), _shown(before))


def store(new: ConfigEntry) -> Transaction[None]:
    """Store an entry without a record."""
    yield Query("configuration_entry_set", {"section": new.section, "name": new.name, "value": new.value})


def _value(key: ConfigEntry) -> Transaction[str | None]:
    row = yield from one("configuration_entry", section=key.section, name=key.name)
    return None if row is None else str(row["value"])


def _target(changed: ConfigEntry) -> str:
    return f"{changed.section}.{changed.name}"


def _shown(value: str | None) -> Any:
    """Return a value for a record, with its secret removed."""
    document: Any = None if value is None else msgspec.json.decode(value)
    if not isinstance(document, dict) or SEALED not in document:
        return cast("Any", document)
    fields = cast("dict[str, Any]", document)
    return {name: field for name, field in fields.items() if name != SEALED} | {"api_key": "set"}
