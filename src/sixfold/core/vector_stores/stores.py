"""Vector stores of accounts: their files and batches, in transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Rows, Transaction, many, one, to_struct
from sixfold.core.files import files as account_files
from sixfold.core.vector_stores.attributes import Attributes

LAST_ID = "~"
STATUSES = ("in_progress", "completed", "failed", "cancelled")
# Number of files of stores that one sweep checks.
SWEPT_FILES = 500
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class VectorStoreLimits(msgspec.Struct, frozen=True):
    """Limits on an account's stores and the bytes of their text, and on the files and bytes of a store.

    The index of a store in memory is several times as large as its text.
    """

    stores: int = 100
    bytes: int = 2**30
    files: int = 5_000
    store_bytes: int = 32 * 2**20


class VectorStoreDetails(msgspec.Struct, frozen=True):
    """The fields of a store that a client sets; `expires_days` counts from its last use."""

    name: str = ""
    description: str = ""
    metadata: Mapping[str, Any] = {}
    expires_days: int | None = None


class VectorStoreFileSpec(msgspec.Struct, frozen=True):
    """A file to add to a store, with its attributes and its chunks in tokens."""

    file_id: str
    attributes: Attributes
    max_tokens: int
    overlap: int


class VectorStore(msgspec.Struct, frozen=True):
    """A store with the numbers of its files by status; times are in epoch µs."""

    id: str
    details: VectorStoreDetails
    counts: Mapping[str, int]
    bytes: int
    expired: bool
    version: int
    last_active_at: int
    created_at: int

    @property
    def expires_at(self) -> int | None:
        """The time in epoch µs at which the store expires unless it is used, or None."""
        days = self.details.expires_days
        return None if days is None else self.last_active_at + days * DAY_US


class VectorStoreFile(msgspec.Struct, frozen=True):
    """A file of a store."""

    store_id: str
    file_id: str
    filename: str
    status: str
    error_code: str
    error: str
    attributes: Attributes
    max_tokens: int
    overlap: int
    bytes: int
    batch_id: str | None
    claimed_at: int
    created_at: int


class VectorStoreBatch(msgspec.Struct, frozen=True):
    """A batch of files, with their numbers by status."""

    id: str
    store_id: str
    status: str
    counts: Mapping[str, int]
    created_at: int


class VectorStoreFilePage(msgspec.Struct, frozen=True):
    """A page of the files of a store or of one of its batches.

    It has at most `limit` files after the file `bound`, or the first ones if there is no such file.
    """

    limit: int
    bound: str = ""
    ascending: bool = True
    status: str = ""
    batch_id: str = ""


class VectorStoreNotFound(errors.NotFound):
    """The store, the file or the batch does not exist, or belongs to another account or key."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"No {kind} found with id '{name[:100]}'.")


class VectorStores:
    """The vector stores of all accounts, without their search."""

    def __init__(self, database: Database, limits: VectorStoreLimits) -> None:
        self._database = database
        self.limits = limits
        # The last file that a sweep has checked.
        self._swept = ""

    async def create(
        self, tenant: Tenant, details: VectorStoreDetails, files: Sequence[VectorStoreFileSpec]
    ) -> VectorStore:
        """Create a store; raises `TooLarge` above the quota and `FileNotFound`."""
        return await self._database.write(_create(tenant, self.limits, details, files))

    async def get(self, tenant: Tenant, store_id: str) -> VectorStore:
        """Return a store; raises `VectorStoreNotFound`."""
        return await self._database.read(find(tenant, store_id))

    async def page(self, tenant: Tenant, limit: int, bound: str, *, ascending: bool) -> Sequence[VectorStore]:
        """Return the first stores after the id `bound`, oldest first, or before it, newest first."""
        return await self._database.read(_page(tenant, limit, bound, ascending=ascending))

    async def update(self, tenant: Tenant, store_id: str, changes: Mapping[str, Any]) -> VectorStore:
        return await self._database.write(_update(tenant, store_id, changes))

    async def delete(self, tenant: Tenant, store_id: str) -> None:
        """Delete a store but not its files."""
        await self._database.write(_delete(tenant, store_id))

    async def add(
        self, tenant: Tenant, store_id: str, files: Sequence[VectorStoreFileSpec], *, batch: bool = False
    ) -> str:
        """Add files to a store, which are read later; return the id of their batch, or ""."""
        return await self._database.write(_add(tenant, self.limits, store_id, files, batch=batch))

    async def file(self, tenant: Tenant, store_id: str, file_id: str) -> VectorStoreFile:
        return await self._database.read(_file(tenant, store_id, file_id))

    async def files(
        self, tenant: Tenant, store_id: str, page: VectorStoreFilePage
    ) -> Sequence[VectorStoreFile]:
        """Return a page of the files of a store or a batch, oldest or newest first."""
        return await self._database.read(_files(tenant, store_id, page))

    async def set_attributes(
        self, tenant: Tenant, store_id: str, file_id: str, attributes: Attributes
    ) -> VectorStoreFile:
        return await self._database.write(_set_attributes(tenant, store_id, file_id, attributes))

    async def remove(self, tenant: Tenant, store_id: str, file_id: str) -> None:
        """Remove a file from a store without deleting the file."""
        await self._database.write(_remove(tenant, store_id, file_id))

    async def chunks(
        self, tenant: Tenant, store_id: str, file_id: str, position: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """Return the next chunks of a file with their positions."""
        return await self._database.read(_chunks(tenant, store_id, file_id, position, limit))

    async def batch(self, tenant: Tenant, store_id: str, batch_id: str) -> VectorStoreBatch:
        return await self._database.read(_batch(tenant, store_id, batch_id))

    async def cancel(self, tenant: Tenant, store_id: str, batch_id: str) -> VectorStoreBatch:
        """Cancel the files of a batch that have not been read yet."""
        return await self._database.write(_cancel(tenant, store_id, batch_id))

    async def sweep(self) -> None:
        """Expire unused stores, and remove files that were deleted while they were being added."""
        self._swept = await self._database.write(_sweep(self._swept), durable=False)


def find(tenant: Tenant, store_id: str) -> Transaction[VectorStore]:
    """Return a store that the tenant can see; raises `VectorStoreNotFound`."""
    row = yield from one("vector_store_by_id", **tenant.row, id=store_id)
    if row is None:
        raise VectorStoreNotFound("vector store", store_id)
    details = VectorStoreDetails(
        row["name"], row["description"], _decode(row["metadata"]), row["expires_days"]
    )
    counts = {status: int(row[status]) for status in STATUSES}
    times = int(row["last_active_at"]), int(row["created_at"])
    store = VectorStore(
        store_id, details, counts, int(row["bytes"]), bool(row["expired"]), int(row["version"]), *times
    )
    past = store.expires_at is not None and store.expires_at <= row["now"]
    return msgspec.structs.replace(store, expired=store.expired or past)


def usable(tenant: Tenant, store_id: str) -> Transaction[VectorStore]:
    """Return a store that has not expired; raises `VectorStoreNotFound` and `BadRequest`."""
    store = yield from find(tenant, store_id)
    if store.expired:
        raise errors.BadRequest(f"The vector store {store_id} has expired: create another one")
    return store


def _create(
    tenant: Tenant,
    limits: VectorStoreLimits,
    details: VectorStoreDetails,
    files: Sequence[VectorStoreFileSpec],
) -> Transaction[VectorStore]:
    usage = yield from one("vector_store_usage", account_id=tenant.account_id)
    if usage is not None and usage["stores"] >= limits.stores:
        raise errors.TooLarge(f"An account may have at most {limits.stores:,} vector stores: delete some")
    store_id = ids.new("vs")
    fields = {**msgspec.structs.asdict(details), "metadata": _encode(details.metadata).decode()}
    yield Query("vector_store_insert", {**tenant.row, **fields, "id": store_id})
    if files:
        yield from _add(tenant, limits, store_id, files, batch=False)
    return (yield from find(tenant, store_id))


def _page(tenant: Tenant, limit: int, bound: str, *, ascending: bool) -> Transaction[Sequence[VectorStore]]:
    name = "vector_store_ids_after" if ascending else "vector_store_ids_before"
    end = bound or ("" if ascending else LAST_ID)
    rows = yield from many(name, **tenant.row, bound=end, limit=limit)
    stores: list[VectorStore] = []
    for row in rows:
        stores.append((yield from find(tenant, row["id"])))
    return stores


def _update(tenant: Tenant, store_id: str, changes: Mapping[str, Any]) -> Transaction[VectorStore]:
    store = yield from usable(tenant, store_id)
    details = msgspec.structs.replace(store.details, **changes)
    fields = {**msgspec.structs.asdict(details), "metadata": _encode(details.metadata).decode()}
    yield Query("vector_store_update", {**fields, "id": store_id})
    return (yield from find(tenant, store_id))


def _delete(tenant: Tenant, store_id: str) -> Transaction[None]:
    yield from find(tenant, store_id)
    yield from _clear(store_id)
    yield Query("vector_store_batches_clear", {"id": store_id})
    yield Query("vector_store_delete", {"id": store_id})


def _clear(store_id: str) -> Transaction[None]:
    yield Query("vector_store_chunks_clear", {"id": store_id})
    yield Query("vector_store_files_clear", {"id": store_id})


def _add(
    tenant: Tenant,
    limits: VectorStoreLimits,
    store_id: str,
    files: Sequence[VectorStoreFileSpec],
    *,
    batch: bool,
) -> Transaction[str]:
    yield from usable(tenant, store_id)
    usage = yield from one("vector_store_usage", account_id=tenant.account_id)
    if usage is not None and usage["bytes"] >= limits.bytes:
        raise errors.TooLarge(
            f"An account's vector stores may use at most {limits.bytes:,} bytes in total (got "
            f"{usage['bytes']:,}): delete some"
        )
    batch_id = ids.new("vsfb") if batch else ""
    if batch:
        yield Query("vector_store_batch_insert", {"id": store_id, "batch_id": batch_id})
    for spec in files:
        file = yield from account_files.find(tenant, spec.file_id)
        fields = {**msgspec.structs.asdict(spec), "attributes": _encode(spec.attributes).decode()}
        yield Query("vector_store_file_chunks_clear", {"id": store_id, "file_id": spec.file_id})
        yield Query(
            "vector_store_file_put",
            {
                **fields,
                "id": store_id,
                "account_id": tenant.account_id,
                "filename": file.filename,
                "batch_id": batch_id or None,
            },
        )
    count = yield from one("vector_store_file_count", id=store_id)
    if count is not None and count["files"] > limits.files:
        raise errors.TooLarge(
            f"A vector store may have at most {limits.files:,} files (got {count['files']:,})"
        )
    yield Query("vector_store_changed", {"id": store_id})
    return batch_id


def _file(tenant: Tenant, store_id: str, file_id: str) -> Transaction[VectorStoreFile]:
    yield from find(tenant, store_id)
    row = yield from one("vector_store_file_by_id", id=store_id, file_id=file_id)
    if row is None:
        raise VectorStoreNotFound("file", file_id)
    return file_of(row)


def _files(tenant: Tenant, store_id: str, page: VectorStoreFilePage) -> Transaction[list[VectorStoreFile]]:
    yield from find(tenant, store_id)
    return [file_of(row) for row in (yield from page_rows(store_id, page))]


def page_rows(store_id: str, page: VectorStoreFilePage) -> Transaction[Rows]:
    """Return the rows of a page of files."""
    name = "vector_store_files_after_bound" if page.ascending else "vector_store_files_before_bound"
    return (
        yield from many(
            name,
            id=store_id,
            status=page.status,
            batch_id=page.batch_id,
            bound=page.bound,
            limit=page.limit,
        )
    )


def file_of(row: Row) -> VectorStoreFile:
    return to_struct(VectorStoreFile, row, attributes=_decode(row["attributes"]))


def _set_attributes(
    tenant: Tenant, store_id: str, file_id: str, attributes: Attributes
) -> Transaction[VectorStoreFile]:
    yield from _file(tenant, store_id, file_id)
    text = _encode(attributes).decode()
    yield Query("vector_store_file_attributes", {"id": store_id, "file_id": file_id, "attributes": text})
    return (yield from _file(tenant, store_id, file_id))


def _remove(tenant: Tenant, store_id: str, file_id: str) -> Transaction[None]:
    yield from _file(tenant, store_id, file_id)
    yield from _forget(store_id, file_id)


def _forget(store_id: str, file_id: str) -> Transaction[None]:
    key = {"id": store_id, "file_id": file_id}
    yield Query("vector_store_file_chunks_clear", key)
    yield Query("vector_store_file_delete", key)
    yield Query("vector_store_changed", {"id": store_id})


def _chunks(
    tenant: Tenant, store_id: str, file_id: str, position: int, limit: int
) -> Transaction[list[tuple[int, str]]]:
    file = yield from _file(tenant, store_id, file_id)
    if file.status != "completed":
        raise errors.BadRequest(
            f"The file is {file.status.replace('_', ' ')}, so its content is not available"
        )
    rows = yield from many(
        "vector_store_file_chunks", id=store_id, file_id=file_id, position=position, limit=limit
    )
    return [(int(row["position"]), row["text"]) for row in rows]


def _batch(tenant: Tenant, store_id: str, batch_id: str) -> Transaction[VectorStoreBatch]:
    yield from find(tenant, store_id)
    row = yield from one("vector_store_batch_by_id", id=store_id, batch_id=batch_id)
    if row is None:
        raise VectorStoreNotFound("file batch", batch_id)
    rows = yield from many("vector_store_batch_counts", id=store_id, batch_id=batch_id)
    counted = {each["status"]: int(each["files"]) for each in rows}
    counts = {status: counted.get(status, 0) for status in STATUSES}
    status = "in_progress" if counts["in_progress"] else "completed"
    if row["cancelled"]:
        status = "cancelled"
    return VectorStoreBatch(batch_id, store_id, status, counts, int(row["created_at"]))


def _cancel(tenant: Tenant, store_id: str, batch_id: str) -> Transaction[VectorStoreBatch]:
    batch = yield from _batch(tenant, store_id, batch_id)
    if batch.status == "in_progress":
        key = {"id": store_id, "batch_id": batch_id}
        yield Query("vector_store_batch_cancel", {"batch_id": batch_id})
        yield Query("vector_store_batch_files_cancel", key)
    return (yield from _batch(tenant, store_id, batch_id))


def _sweep(after: str) -> Transaction[str]:
    """Sweep the next files after an id; return the last id, or an empty string at the end."""
    for row in (yield from many("vector_stores_expired")):
        yield from _clear(row["id"])
        yield Query("vector_store_expire", {"id": row["id"]})
    rows = yield from many("vector_store_files_after", after=after, limit=SWEPT_FILES)
    for file_id in dict.fromkeys(row["file_id"] for row in rows if not row["existing"]):
        yield from account_files.leave_stores(file_id)
    return rows[-1]["file_id"] if len(rows) == SWEPT_FILES else ""
