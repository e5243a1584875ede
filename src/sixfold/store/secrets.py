"""An encrypted store of provider keys.

Each key is stored in a separate file in `DATA/providers`, readable only by the server's user. The file is
encrypted with ChaCha20-Poly1305 with a key derived by HKDF-SHA256 from `DATA/server.key`, and bound to its
name: a copied file cannot be decrypted under another name or in another data folder. Backups contain neither
these files nor `server.key`.

Servers that share a database must use the same `server.key`, so an encrypted key from one server is valid on
all of them (`adopt`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import logging
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sixfold.settings import PROVIDER_KEYS, Settings
from sixfold.store import durable

FOLDER = "providers"
MASTER = "server.key"
_INFO = b"sixfold providers' keys, version 1"
_NONCE_BYTES = 12
MIN_KEY, MAX_KEY = 8, 4096
KEY_FORMAT = f"The key must have {MIN_KEY} to {MAX_KEY} ASCII characters without spaces"
_LOG = logging.getLogger("sixfold.secrets")


class SecretUnreadable(Exception):
    """A stored key cannot be decrypted; the message states the reason."""


class StoredSecret(msgspec.Struct, frozen=True):
    """Metadata of a stored key; times are ISO 8601 in UTC."""

    set_at: str


class Secrets:
    """The provider keys of one data folder, by name."""

    def __init__(self, data_dir: Path, master: bytes) -> None:
        self._folder = data_dir / FOLDER
        derived = HKDF(SHA256(), length=64, salt=None, info=_INFO).derive(master)
        self._cipher, self._marks = ChaCha20Poly1305(derived[:32]), derived[32:]

    def put(self, name: str, key: str) -> str:
        """Store a key durably; return it encrypted, for other servers."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = nonce + self._cipher.encrypt(nonce, key.encode(), name.encode())
        document = {"sealed": _text(ciphertext), "set_at": _now()}
        self._write(self._path(name), document)
        return json.dumps(document)

    def removed(self) -> str:
        """Return a document that removes a key on other servers."""
        return json.dumps({"sealed": "", "set_at": _now()})

    def adopt(self, name: str, text: str) -> bool:
        """Apply a key, or its removal, from another server; return False if the local entry is newer."""
        if name not in PROVIDER_KEYS:
            return False
        document, saved = json.loads(text), self._read(self._path(name)) or {}
        if saved.get("sealed", "") == document["sealed"] or str(saved.get("set_at", "")) > document["set_at"]:
            return False
        if document["sealed"]:
            self._write(self._path(name), document)
            return True
        return self.remove(name)

    def get(self, name: str) -> str | None:
        """Return a key, or None if it is not stored; raises `SecretUnreadable` if it cannot be decrypted."""
        document = self._read(self._path(name))
        if document is None:
            return None
        try:
            ciphertext = base64.b64decode(document["sealed"], validate=True)
            return self._cipher.decrypt(
                ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:], name.encode()
            ).decode()
        except (InvalidTag, ValueError, KeyError, TypeError) as error:
            raise SecretUnreadable(
                f"The stored {name} cannot be decrypted: it is damaged, or {MASTER} was different"
            ) from error

    def stored(self, name: str) -> StoredSecret | None:
        """Return the metadata of a stored key, even an unreadable one, or None if it is not stored."""
        document = self._read(self._path(name))
        return None if document is None else StoredSecret(str(document.get("set_at", "")))

    def remove(self, name: str) -> bool:
        """Delete a key; return False if it did not exist."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        durable.sync_folder(self._folder)
        return True

    def mark_checked(self, name: str, key: str) -> None:
        """Record that the provider has just accepted this key."""
        mark = hmac.digest(self._marks, f"{name}\0{key}".encode(), hashlib.sha256)
        self._write(self._checks(name), {"mark": _text(mark), "checked_at": _now()})

    def checked_at(self, name: str, key: str) -> str | None:
        """Return the time at which the provider last accepted this key, or None."""
        document = self._read(self._checks(name)) or {}
        mark = hmac.digest(self._marks, f"{name}\0{key}".encode(), hashlib.sha256)
        same = hmac.compare_digest(_text(mark), str(document.get("mark", "")))
        return str(document.get("checked_at")) if same else None

    def _path(self, name: str) -> Path:
        if name not in PROVIDER_KEYS:
            raise ValueError(f"{name!r} is not the name of a provider key")
        return self._folder / f"{name}.json"

    def _checks(self, name: str) -> Path:
        return self._path(name).with_suffix(".checked.json")

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            document: Any = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return cast("dict[str, Any]", document) if isinstance(document, dict) else {}

    def _write(self, path: Path, document: dict[str, str]) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        beside = path.with_suffix(f".{secrets.token_hex(8)}.new")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(document).encode())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        durable.sync_folder(self._folder)


def provider_key(settings: Settings, name: str) -> str:
    """Return the operator's key by the name of its setting (`fal_key`, …), or an empty string.

    The environment and the configuration file come first, then the key stored by `sixfold provider set`. The
    files are checked at each call, so a running server uses a new key from its next request on.
    """
    if name not in PROVIDER_KEYS:
        return ""
    secret = str(getattr(settings, name))
    return secret or _stored_key(settings.data_dir, name)


def provider_setting(settings: Settings, name: str) -> str:
    """Return the operator's key, or another setting of a provider, by its name."""
    return provider_key(settings, name) if name in PROVIDER_KEYS else str(getattr(settings, name))


def _stored_key(data_dir: Path, name: str) -> str:
    try:
        sealed, master = (data_dir / FOLDER / f"{name}.json").stat(), (data_dir / MASTER).stat()
    except OSError:
        return ""
    stamp = (sealed.st_ino, sealed.st_mtime_ns, master.st_ino, master.st_mtime_ns)
    return _opened(data_dir, name, stamp)


@functools.lru_cache(maxsize=64)
def _opened(data_dir: Path, name: str, _stamp: tuple[int, ...]) -> str:
    try:
        return Secrets(data_dir, (data_dir / MASTER).read_bytes()).get(name) or ""
    except (OSError, SecretUnreadable) as error:
        _LOG.warning("a provider key is not used: %s", error)
        return ""


def is_valid_key(key: str) -> bool:
    """Return whether a string has the format of a key (`KEY_FORMAT`)."""
    return MIN_KEY <= len(key) <= MAX_KEY and key.isascii() and key.isprintable() and " " not in key


def hint(key: str) -> str:
    """Return a displayable form of a key: its last four characters, or only "…" for a short key."""
    return f"…{key[-4:]}" if len(key) >= 16 else "…"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
