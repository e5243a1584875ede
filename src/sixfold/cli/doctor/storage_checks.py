"""Checks for `doctor`: where files are stored and whether the stores are writable."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.app import storage
from sixfold.core.media.ports import BlobStore
from sixfold.settings import InvalidSetting, Settings

# The timeout is short, because the user waits for the result.
_SECONDS = 5
_WORD = b"sixfold doctor"
_FILE = "file://"
Opener = Callable[[Settings], BlobStore]


class StoreStatus(msgspec.Struct, frozen=True):
    """The status of one store: its name, its location and its error, or "" if it works."""

    name: str
    where: str
    fault: str

    def record(self) -> dict[str, Any]:
        """Return the status as JSON for `doctor --json`."""
        return {"name": self.name, "where": self.where, "writable": not self.fault, "fault": self.fault}

    def problem(self) -> str | None:
        """Return a sentence for the operator, or None if the store works."""
        return (
            f"The store for {self.name} at {self.where} cannot be used: {self.fault}" if self.fault else None
        )


async def check_stores(server_settings: Settings) -> tuple[StoreStatus, ...]:
    """Write, read and delete an object in each bucket; for a folder, only check its permissions."""
    limited = server_settings.replace(
        blob_seconds=min(_SECONDS, server_settings.blob_seconds), blob_cache_bytes=0
    )
    blobs = server_settings.blob_url or _folder(server_settings, "store")
    uploads = server_settings.upload_url or _folder(server_settings, "uploads")
    return (
        await _check_store("results", blobs, limited, storage.open_blobs),
        await _check_store("image kit's uploads", uploads, limited, storage.open_uploads),
    )


def _folder(server_settings: Settings, name: str) -> str:
    return f"{_FILE}{server_settings.data_dir / name}"


async def _check_store(name: str, url: str, server_settings: Settings, open_store: Opener) -> StoreStatus:
    if url.startswith(_FILE):
        folder = Path(url.removeprefix(_FILE))
        return StoreStatus(
            name, str(folder), "" if _may_write(folder) else "this user has no write permission"
        )
    # The query of a URL may contain a signature, which must not be printed.
    location = re.split(r"[?#]", url)[0]
    try:
        await _write_and_read(open_store(server_settings))
    except (InvalidSetting, errors.StoreFailed, KeyError) as error:
        return StoreStatus(name, location, str(error))
    return StoreStatus(name, location, "")


def _may_write(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


async def _write_and_read(store: BlobStore) -> None:
    """Write, read and delete a test object; it is also deleted after an error."""
    key = f"doctor/{secrets.token_hex(8)}"
    await store.put(key, _WORD)
    try:
        if await store.get(key) != _WORD:
            raise errors.StoreFailed("It returned data that differs from the stored data")
    finally:
        await store.delete(key)
