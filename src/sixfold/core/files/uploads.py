"""Uploads in parts: the parts become one file when the upload is completed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Database, Query, Transaction, one, to_struct
from sixfold.core.files import files
from sixfold.core.files.files import AccountFile, AccountFiles, FileDetails

LIFE_US = HOUR_US
MAX_PARTS = 1000
State = Literal["pending", "completed", "cancelled"]


class PartedUpload(msgspec.Struct, frozen=True):
    """An upload in parts, with the declared size of its file in bytes, and its times in epoch µs."""

    id: str
    filename: str
    purpose: str
    content_type: str
    size: int
    state: State
    file_id: str | None
    file_seconds: int | None
    created_at: int
    expires_at: int


class UploadPart(msgspec.Struct, frozen=True):
    """A part of an upload, with the key of its blob."""

    id: str
    size: int
    blob: str


def _find(tenant: Tenant, upload_id: str) -> Transaction[PartedUpload]:
    row = yield from one("file_upload_by_id", **tenant.row, id=upload_id)
    if row is None:
        raise errors.NotFound(f"No such Upload object: {upload_id[:100]}")
    return to_struct(PartedUpload, row)


def _find_pending(tenant: Tenant, upload_id: str) -> Transaction[PartedUpload]:
    upload = yield from _find(tenant, upload_id)
    if upload.state != "pending":
        raise errors.BadRequest(f"This upload is {upload.state}: create another one")
    return upload


def _parts(upload_id: str) -> Transaction[dict[str, UploadPart]]:
    rows = yield Query("file_parts", {"upload_id": upload_id})
    return {str(row["id"]): UploadPart(row["id"], row["size"], row["blob"]) for row in rows}


class PartedUploads:
    """The uploads in parts of all accounts."""

    def __init__(self, database: Database, account_files: AccountFiles) -> None:
        self._database = database
        self._files = account_files

    async def create(self, tenant: Tenant, details: FileDetails, size: int) -> PartedUpload:
        """Begin an upload of `size` bytes; raises `BadRequest` and `TooLarge`."""
        return await self._database.write(self._create(tenant, files.check_details(details), size))

    def _create(self, tenant: Tenant, details: FileDetails, size: int) -> Transaction[PartedUpload]:
        yield from files.check_quota(tenant.account_id, self._files.limits, size)
        upload_id = ids.new("upload")
        yield Query(
            "file_upload_insert",
            {
                **tenant.row,
                "id": upload_id,
                "filename": details.filename,
                "purpose": details.purpose,
                "content_type": details.content_type,
                "size": size,
                "file_seconds": details.seconds,
                "life": LIFE_US,
            },
        )
        return (yield from _find(tenant, upload_id))

    async def get(self, tenant: Tenant, upload_id: str) -> PartedUpload:
        """Return an upload; raises `NotFound`."""
        return await self._database.read(_find(tenant, upload_id), snapshot=False)

    async def add(self, tenant: Tenant, upload_id: str, path: Path) -> tuple[UploadPart, int]:
        """Store the file at `path` as a part; return the part with its creation time in epoch µs."""
        await self._database.read(_find_pending(tenant, upload_id))
        source = await self._files.store(path, tenant.account_id)

        def add() -> Transaction[tuple[UploadPart, int]]:
            upload = yield from _find_pending(tenant, upload_id)
            parts = yield from _parts(upload_id)
            total = sum(part.size for part in parts.values()) + source.size
            if total > upload.size:
                raise errors.BadRequest(
                    f"The parts must be {upload.size:,} bytes in total, as declared (got {total:,})"
                )
            if len(parts) >= MAX_PARTS:
                raise errors.BadRequest(f"An upload must have at most {MAX_PARTS} parts")
            name = yield from files.name_content(tenant.account_id, source, upload.expires_at)
            part = UploadPart(ids.new("part"), source.size, source.blob)
            values = {"id": part.id, "upload_id": upload_id, "media": name, "size": part.size}
            yield Query("file_part_insert", values)
            rows = yield Query("clock", {})
            return part, int(rows[0]["now"])

        return await self._database.write(add())

    async def complete(
        self, tenant: Tenant, upload_id: str, part_ids: Sequence[str], md5: str = ""
    ) -> tuple[PartedUpload, AccountFile]:
        """Create a file from the parts in this order; raises `BadRequest` unless it has the declared size."""
        upload = await self._database.read(_find_pending(tenant, upload_id))
        stored_parts = await self._database.read(_parts(upload_id))
        unknown = [part_id for part_id in part_ids if part_id not in stored_parts]
        if unknown or len(set(part_ids)) < len(part_ids):
            raise errors.BadRequest("part_ids must contain ids of parts of this upload, each at most once")
        parts = [stored_parts[part_id] for part_id in part_ids]
        total = sum(part.size for part in parts)
        if total != upload.size:
            raise errors.BadRequest(
                f"The parts must be {upload.size:,} bytes in total, as declared (got {total:,})"
            )
        async with self._files.temporary_path() as path:
            digest = await self._join(parts, path)
            if md5 and md5.lower() != digest:
                raise errors.BadRequest(f"md5 does not match the file: its MD5 hash is {digest}")
            source = await self._files.store(path, tenant.account_id)

        def complete() -> Transaction[tuple[PartedUpload, AccountFile]]:
            yield from _find_pending(tenant, upload_id)
            details = FileDetails(upload.filename, upload.purpose, upload.content_type, upload.file_seconds)
            file = yield from files.insert(tenant, details, source)
            params = {"id": upload_id, "state": "completed", "file_id": file.id}
            if not (yield Query("file_upload_end", params)):
                raise errors.Conflict("This upload has already ended: create another one")
            yield Query("file_parts_expire", {"upload_id": upload_id})
            return (yield from _find(tenant, upload_id)), file

        return await self._database.write(complete())

    async def _join(self, parts: Sequence[UploadPart], path: Path) -> str:
        """Write the parts to a new file and return its MD5 in hexadecimal."""
        # Clients use the MD5 to detect damage, not for security.
        digest = hashlib.md5(usedforsecurity=False)
        file = await asyncio.to_thread(path.open, "xb")
        try:
            for part in parts:
                async for piece in self._files.blobs.stream(part.blob):
                    await asyncio.to_thread(file.write, piece)
                    await asyncio.to_thread(digest.update, piece)
        finally:
            await asyncio.to_thread(file.close)
        return digest.hexdigest()

    async def cancel(self, tenant: Tenant, upload_id: str) -> PartedUpload:
        """Cancel an upload; raises `BadRequest` if it has ended."""

        def cancel() -> Transaction[PartedUpload]:
            yield from _find_pending(tenant, upload_id)
            yield Query("file_upload_end", {"id": upload_id, "state": "cancelled", "file_id": None})
            yield Query("file_parts_expire", {"upload_id": upload_id})
            return (yield from _find(tenant, upload_id))

        return await self._database.write(cancel())
