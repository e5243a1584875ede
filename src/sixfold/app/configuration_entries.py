"""Merging of the entries that operators set with `sixfold.toml`, whose values take precedence."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from sixfold import errors
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import (
    GATEWAY,
    SEALED,
    SEARCH,
    SEARXNG,
    SERVERS,
    WITH_KEYS,
    ConfigEntry,
)
from sixfold.core.secret_cipher import SecretCipher
from sixfold.settings import InvalidSetting, Settings

# Errors that an invalid file or entry can cause.
FILE_ERRORS = (InvalidSetting, OSError, ValueError, TypeError, LookupError, AttributeError)
_SECRET_FIELDS = frozenset({"api_key", "api_key_env", SEALED})
# Fields with the address of a server.
_ADDRESSES = ("base_url", "url")
_INFO = b"sixfold model servers' keys, version 1"


def table(tables: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the table of a section such as `gateway.aliases`, or an empty table if it is missing."""
    value: Any = tables
    for part in section.split("."):
        value = value.get(part, {}) if isinstance(value, Mapping) else {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class EntryValues:
    """Encrypts the keys of model servers and tool servers, and merges entries into settings."""

    def __init__(self, master: bytes) -> None:
        self._cipher = SecretCipher(master, _INFO)

    def with_encrypted_key(self, section: str, name: str, value: Any, old: ConfigEntry | None) -> Any:
        """Return the value to store: `api_key` is encrypted, or retained from `old` if it is omitted."""
        if section not in WITH_KEYS:
            hook = value.get("hook") if section == GATEWAY and isinstance(value, dict) else None
            _require_no_secret("hook", hook.get("url") if isinstance(hook, dict) else None)
            _require_no_secret(name, value if (section, name) == (SEARCH, SEARXNG) else None)
            return value
        if not isinstance(value, dict):
            fields = "kind and base_url" if section == SERVERS else "url"
            raise errors.InvalidInput.of("value", f"The server must be an object with {fields}")
        row = cast("dict[str, Any]", value)
        stored = {field: each for field, each in row.items() if field not in _SECRET_FIELDS}
        for field in _ADDRESSES:
            _require_no_secret(field, stored.get(field), ": enter the key as api_key")
        key = row.get("api_key")
        if isinstance(key, str) and key:
            return {**stored, SEALED: self._cipher.encrypt(_bound(section, name), key)}
        before: Any = {} if old is None else old.document
        # A key belongs to the address at which it was entered, or to the default address of the kind.
        keeps = key is None and SEALED in before and _place(before) == _place(stored)
        return {**stored, SEALED: before[SEALED]} if keeps else stored

    def decrypt(self, row: ConfigEntry) -> Any:
        """Return the value of an entry as in `sixfold.toml`; raises `ValueError` for an unreadable key."""
        value = row.document
        if row.section not in WITH_KEYS or SEALED not in value:
            return value
        try:
            key = self._cipher.decrypt(_bound(row.section, row.name), value[SEALED])
        except ValueError as error:
            raise ValueError(f"the key of {row.name} cannot be decrypted: {error}") from None
        return {**{field: each for field, each in value.items() if field != SEALED}, "api_key": key}

    def merge(self, settings: Settings, rows: Iterable[ConfigEntry]) -> Settings:
        """Return the settings, completed with the entries that `sixfold.toml` does not set."""
        tables: dict[str, Any] = copy.deepcopy(dict(settings.tables))
        for row in rows:
            if row.section in entries.SECTIONS:
                place = tables
                for part in row.section.split("."):
                    place = place.setdefault(part, {})
                if row.name not in place:
                    place[row.name] = self.decrypt(row)
        return settings.replace(tables=tables)


def shown_address(url: str) -> str:
    """Return an address without the parts that may be secret: user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _place(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return document.get("kind"), document.get("base_url") or document.get("url")


def _bound(section: str, name: str) -> str:
    """Return the name to which a key is bound, so that it cannot be moved to a server of another section."""
    return name if section == SERVERS else f"{section}.{name}"


def _require_no_secret(field: str, url: Any, advice: str = "") -> None:
    """Raise `InvalidInput` for an invalid address and one that may contain a secret, as they are shown."""
    if not isinstance(url, str):
        return
    address = shown_address(url)
    if url and not address:
        raise errors.InvalidInput.of(field, f"{field} is not a valid address: {url[:80]!r}")
    if address != url:
        raise errors.InvalidInput.of(field, f"{field} must not contain a user, password or query{advice}")
