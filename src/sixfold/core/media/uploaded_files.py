"""Files below `/uploads/`, which can be replaced, at paths that their owners chose."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sixfold import errors
from sixfold.core.accounts import upload_folders
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.accounts.upload_folders import UploadFolder
from sixfold.core.database import Database
from sixfold.core.media import save_paths
from sixfold.core.media.ports import BlobStore


class UploadedFiles:
    """The store of uploaded files, with the paths of their URLs."""

    def __init__(self, database: Database, store: BlobStore) -> None:
        self._database = database
        self.store = store

    async def served_path(self, path: str) -> str | None:
        """Return the path in the store for a URL with a folder's secret name, or None for another URL.

        Raises `NotFound` while the account is suspended.
        """
        folder = await self._folder(path)
        if folder is not None and folder.is_withheld:
            raise errors.NotFound("The file was not found")
        return await self._secret_path(folder, path)

    async def _folder(self, path: str) -> UploadFolder | None:
        return await self._database.read(upload_folders.find(path.partition("/")[0]))

    async def _secret_path(self, folder: UploadFolder | None, path: str) -> str | None:
        filename = path.partition("/")[2]
        if folder is None:
            return None
        if folder.tenant.keyless:
            return await self.keyless_path(filename)
        return save_paths.store_path(folder.tenant, filename, is_operator=folder.is_operator)

    async def keyless_path(self, path: str) -> str | None:
        """Return the path in the store of a file created without a key, or None if it does not exist."""
        marker_path = save_paths.keyless_marker(path)
        marker_key = save_paths.key(marker_path)
        marker = None if marker_key is None else await self.store.stat(marker_key)
        if marker is None:
            return None
        return marker_path if marker.size else path

    async def copy(self, tenant: Tenant, path: str, into: Path, max_bytes: int) -> bool:
        """Copy the file of a URL that the tenant may read; return False without one; raises `TooLarge`.

        A secret folder name is sufficient, unless the folder's account is suspended; a URL without one is
        accessible only to requests without a key.
        """
        folder = await self._folder(path)
        if folder is not None and folder.is_withheld and folder.tenant.account_id != tenant.account_id:
            return False
        save_path = await self._secret_path(folder, path)
        if save_path is None and tenant.keyless:
            save_path = await self.keyless_path(path)
        key = None if save_path is None else save_paths.key(save_path)
        info = None if key is None else await self.store.stat(key)
        if info is None:
            return False
        if info.size > max_bytes:
            raise errors.TooLarge(f"The file must be at most {max_bytes:,} bytes (got {info.size:,})")
        try:
            # Reads without following links, unlike a copy of the store's file.
            with await asyncio.to_thread(into.open, "wb") as file:
                async for block in self.store.stream(info.key, 0, max_bytes):
                    await asyncio.to_thread(file.write, block)
        except KeyError:
            return False
        return True
