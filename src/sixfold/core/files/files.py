"""Files of accounts: uploads of `/v1/files`, and the results of batches.

The content is a blob with a name in `media`, so a file of any size is stored once, is included in backups,
and is deleted with its last name. The names of these files never occur in URLs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from sixfold import errors
from sixfold.core import ids, temporary_files
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Database, Query, Row, Transaction, many, now, one, to_struct
from sixfold.core.media import blob_keys, media
from sixfold.core.media.media import MediaSource
from sixfold.core.media.pending_deletions import PendingDeletions
from sixfold.core.media.ports import BlobStore, OutputFile

MAX_FILENAME_CHARS = 255
_CONTENT_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECOND_US = 1_000_000
# Number of expired files that one sweep deletes.
_SWEPT_FILES = 500
_LAST_ID = "~"
ANY_TYPE = "application/octet-stream"


class FileLimits(msgspec.Struct, frozen=True):
    """The maximum files and bytes of an account, including the declared bytes of its pending uploads."""

    files: int
    bytes: int


class FileDetails(msgspec.Struct, frozen=True):
    """The fields of a file that a client sets; `seconds` is its lifetime, or None if it does not expire."""

    filename: str
    purpose: str
    content_type: str = ANY_TYPE
    seconds: int | None = None


class AccountFile(msgspec.Struct, frozen=True):
    """A stored file: its size in bytes, the key of its blob, and its times in epoch µs."""

    id: str
    filename: str
    purpose: str
    content_type: str
    size: int
    blob: str
    created_at: int
    expires_at: int | None


class FileFilter(msgspec.Struct, frozen=True):
    """The filter and order of a list of files; an empty purpose matches all files."""

    purpose: str = ""
    with_memory: bool = False
    ascending: bool = False


class FileNotFound(errors.NotFound):
    """The file does not exist, or belongs to another account or key."""

    def __init__(self, file_id: str) -> None:
        super().__init__(f"No such File object: {file_id[:100]}")


def check_details(details: FileDetails) -> FileDetails:
    """Return the details with a valid content type; raises `BadRequest` for an invalid file name."""
    if not 0 < len(details.filename) <= MAX_FILENAME_CHARS or _CONTROL.search(details.filename):
        raise errors.BadRequest(
            f"The file name must have 1 to {MAX_FILENAME_CHARS} characters, and must not contain control "
            "characters"
        )
    is_valid = _CONTENT_TYPE.fullmatch(details.content_type) is not None
    return msgspec.structs.replace(details, content_type=details.content_type if is_valid else ANY_TYPE)


def find(tenant: Tenant, file_id: str, *, with_memory: bool = False) -> Transaction[AccountFile]:
    """Return a file that the tenant sees; raises `FileNotFound`.

    Files of memory pages are found only if `with_memory` is set, here and below, because a tenant may not
    have access to the memory.
    """
    row = yield from one("file_by_id", **tenant.row, id=file_id, memory=int(with_memory))
    if row is None:
        raise FileNotFound(file_id)
    return to_struct(AccountFile, row)


def insert(tenant: Tenant, details: FileDetails, source: MediaSource) -> Transaction[AccountFile]:
    """Insert a file whose content is already stored, without checking the quotas."""
    current = yield from now()
    file = AccountFile(
        id=ids.new("file"),
        filename=details.filename,
        purpose=details.purpose,
        content_type=details.content_type,
        size=source.size,
        blob=source.blob,
        created_at=current,
        expires_at=None if details.seconds is None else current + details.seconds * _SECOND_US,
    )
    name = yield from name_content(tenant.account_id, source, file.expires_at)
    values = {key: value for key, value in msgspec.structs.asdict(file).items() if key != "blob"}
    yield Query("file_insert", {**values, **tenant.row, "media": name})
    return file


def name_content(account_id: str, source: MediaSource, expires_at: int | None) -> Transaction[str]:
    """Name stored content, so that it is not deleted before `expires_at` (None: never); return the name."""
    output = OutputFile(media.new_name(source.content_type), source.blob, source.content_type, source.size)
    yield Query("media_insert", {**media.record(output, account_id, "output"), "expires_at": expires_at})
    return output.name


def check_quota(account_id: str, limits: FileLimits, size: int = 0) -> Transaction[None]:
    """Raise `TooLarge` if an account may not store another file of `size` bytes."""
    usage = yield from one("file_usage", account_id=account_id)
    count, used_bytes = (int(usage["files"]), int(usage["bytes"])) if usage is not None else (0, 0)
    if count >= limits.files:
        raise errors.TooLarge(f"An account may store at most {limits.files:,} files: delete some")
    if used_bytes + size > limits.bytes:
        raise errors.TooLarge(
            f"The files of this account have {used_bytes} bytes, and {size} more would exceed the limit of "
            f"{limits.bytes}: delete some"
        )


def delete(tenant: Tenant, file_id: str, *, with_memory: bool = False) -> Transaction[None]:
    """Delete a file; raises `FileNotFound`."""
    row = yield from one("file_delete", **tenant.row, id=file_id, memory=int(with_memory))
    if row is None:
        raise FileNotFound(file_id)
    yield Query("file_media_expire", {"name": row["media"]})
    yield from leave_stores(file_id)


def leave_stores(file_id: str) -> Transaction[None]:
    """Remove a deleted file and its text from all vector stores."""
    for name in ("file_stores_changed", "file_chunks_delete", "file_stores_leave"):
        yield Query(name, {"file_id": file_id})


def _page(
    tenant: Tenant, file_filter: FileFilter, limit: int, bound: str
) -> Transaction[tuple[AccountFile, ...]]:
    rows = yield Query(
        "files_after" if file_filter.ascending else "files_before",
        {
            **tenant.row,
            "purpose": file_filter.purpose,
            "memory": int(file_filter.with_memory),
            "limit": limit,
            "bound": bound or ("" if file_filter.ascending else _LAST_ID),
        },
    )
    return tuple(to_struct(AccountFile, row) for row in rows)


def _some(
    tenant: Tenant, file_ids: Sequence[str], *, with_memory: bool
) -> Transaction[tuple[AccountFile, ...]]:
    rows: list[Row | None] = []
    for file_id in file_ids:
        row = yield from one("file_by_id", **tenant.row, id=file_id, memory=int(with_memory))
        rows.append(row)
    return tuple(to_struct(AccountFile, row) for row in rows if row is not None)


class AccountFiles:
    """The files of all accounts."""

    def __init__(self, database: Database, blobs: BlobStore, limits: FileLimits, staging: Path) -> None:
        self.limits = limits
        self.blobs = blobs
        self._database = database
        self._staging = staging
        self._pending_deletions = PendingDeletions(database)

    def new_path(self) -> Path:
        """Return the path of a new temporary file; call this outside the event loop."""
        return temporary_files.new_path(self._staging)

    def temporary_path(self) -> AbstractAsyncContextManager[Path]:
        """Return a context manager whose value is the path of a temporary file."""
        return temporary_files.temporary_path(self._staging)

    async def create(self, tenant: Tenant, details: FileDetails, path: Path) -> AccountFile:
        """Store the file at `path`, which is moved away; raises `BadRequest` and `TooLarge`."""
        details = check_details(details)
        size = (await asyncio.to_thread(path.stat)).st_size
        await self._database.read(check_quota(tenant.account_id, self.limits, size))
        source = await self.store(path, tenant.account_id)
        return await self._database.write(self._insert(tenant, details, source))

    async def store(self, path: Path, account_id: str = "") -> MediaSource:
        """Store the content of the file at `path`, which is moved away, without a name.

        If an account is given, the content is deleted unless it is named later. Raises `TooLarge`.
        """
        key, _, size = await asyncio.to_thread(blob_keys.hashes, path)
        await self._pending_deletions.add(account_id, key, size, self.limits.bytes)
        await self.blobs.put_file(key, path, content_type=ANY_TYPE)
        return MediaSource(key, ANY_TYPE, size)

    def _insert(self, tenant: Tenant, details: FileDetails, source: MediaSource) -> Transaction[AccountFile]:
        yield from check_quota(tenant.account_id, self.limits, source.size)
        return (yield from insert(tenant, details, source))

    async def get(self, tenant: Tenant, file_id: str, *, with_memory: bool = False) -> AccountFile:
        """Return a file; raises `FileNotFound`."""
        query = find(tenant, file_id, with_memory=with_memory)
        return await self._database.read(query, snapshot=False)

    def read(self, file: AccountFile, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a file in chunks; raises `KeyError` before the first if they are missing."""
        return self.blobs.stream(file.blob, start, length)

    async def page(
        self, tenant: Tenant, file_filter: FileFilter, limit: int, bound: str = ""
    ) -> tuple[AccountFile, ...]:
        """Return the first files after the id `bound`, oldest first, or before it, newest first."""
        return await self._database.read(_page(tenant, file_filter, limit, bound))

    async def some(
        self, tenant: Tenant, file_ids: Sequence[str], *, with_memory: bool = False
    ) -> tuple[AccountFile, ...]:
        """Return the files with these ids that the tenant can see."""
        return await self._database.read(_some(tenant, file_ids, with_memory=with_memory))

    async def delete(self, tenant: Tenant, file_id: str, *, with_memory: bool = False) -> None:
        """Delete a file; raises `FileNotFound`."""
        await self._database.write(delete(tenant, file_id, with_memory=with_memory))

    async def sweep(self) -> None:
        """Delete expired files, uploads and their parts; the media sweep deletes the bytes."""
        await self._database.write(_sweep(), durable=False)


def _sweep() -> Transaction[None]:
    for row in (yield from many("files_expired", limit=_SWEPT_FILES)):
        yield from leave_stores(row["id"])
        yield Query("file_drop", {"file_id": row["id"]})
    for name in ("file_parts_sweep", "file_uploads_sweep"):
        yield Query(name, {})
