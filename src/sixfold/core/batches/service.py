"""Creation, listing, cancelation and deletion of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.batches import models
from sixfold.core.batches.models import Batch, BatchDialect, BatchLimits
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Transaction, one
from sixfold.core.files import files
from sixfold.core.files.files import ANY_TYPE, AccountFiles
from sixfold.core.media.media import MediaSource

WINDOW_US = DAY_US
# Batches that ended longer ago are deleted; their files remain.
LIFE_US = 90 * DAY_US
INPUT_PURPOSE, OUTPUT_PURPOSE = "batch", "batch_output"
_PREFIXES: Mapping[BatchDialect, str] = {"openai": "batch", "anthropic": "msgbatch"}
_LAST_ID = "~"
_encode = msgspec.json.Encoder().encode


class NewBatch(msgspec.Struct, frozen=True):
    """A batch to create.

    `output_seconds` is the lifetime of its result files, or None if they do not expire.
    """

    dialect: BatchDialect
    endpoint: str
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    output_seconds: int | None = None
    # The number of lines, if already known.
    total: int = 0
    # The id of the background response that the batch creates.
    response_id: str | None = None
    # The id of a request with an Idempotency-Key, whose repetitions return the same batch.
    once: str | None = None


def _find(tenant: Tenant, dialect: BatchDialect, batch_id: str) -> Transaction[Batch]:
    row = yield from one("batch_by_id", **tenant.row, dialect=dialect, id=batch_id)
    if row is None:
        raise errors.NotFound(f"No batch found with id {batch_id[:100]!r}")
    return models.from_row(row)


def _of_response(tenant: Tenant, response_id: str) -> Transaction[Batch | None]:
    row = yield from one("batch_of_response", **tenant.row, response_id=response_id)
    return None if row is None else models.from_row(row)


def _created_before(tenant: Tenant, dialect: BatchDialect, row: Row) -> Transaction[Batch]:
    if row["response_id"] is None:
        return (yield from _find(tenant, dialect, str(row["id"])))
    return cast("Batch", (yield from _of_response(tenant, str(row["response_id"]))))


class BatchService:
    """The batches of all accounts; `on_change` is called when a batch was created or canceled."""

    def __init__(self, database: Database, account_files: AccountFiles, limits: BatchLimits) -> None:
        self.limits = limits
        self.on_change: Callable[[], None] = lambda: None
        self._database = database
        self._files = account_files

    async def create_from_file(self, principal: Principal, new: NewBatch, file_id: str) -> Batch:
        """Create a batch from a file of requests; raises `FileNotFound` and `BadRequest`."""

        def create() -> Transaction[Batch]:
            file = yield from files.find(principal.tenant, file_id)
            if file.purpose != INPUT_PURPOSE:
                raise errors.BadRequest(
                    f"The input file must have the purpose {INPUT_PURPOSE} (got {file.purpose})"
                )
            if file.size > self.limits.bytes:
                raise errors.BadRequest(
                    f"The input file must be at most {self.limits.bytes:,} bytes (got {file.size:,})"
                )
            source = MediaSource(file.blob, ANY_TYPE, file.size)
            return (yield from self._insert(principal, new, source, file_id))

        return await self._created(create())

    async def create_from_path(self, principal: Principal, new: NewBatch, path: Path) -> Batch:
        """Create a batch from the file of requests at `path`, which is moved away; raises `TooLarge`."""
        source = await self._files.store(path, principal.account_id)

        def create() -> Transaction[Batch]:
            yield from files.check_quota(principal.account_id, self._files.limits, source.size)
            return (yield from self._insert(principal, new, source, None))

        return await self._created(create())

    async def _created(self, transaction: Transaction[Batch]) -> Batch:
        batch = await self._database.write(transaction)
        self.on_change()
        return batch

    def _insert(
        self, principal: Principal, new: NewBatch, source: MediaSource, file_id: str | None
    ) -> Transaction[Batch]:
        tenant, prefix = principal.tenant, _PREFIXES[new.dialect]
        batch_id = ids.new(prefix)
        claim = (yield from one("idempotency_get", id=new.once)) if new.once is not None else None
        if new.once is not None and claim is not None:
            batch_id = ids.derived(ids.earliest(prefix, claim["created_at"]), new.once)
            created = yield from one("batch_created", id=batch_id)
            if created is not None:
                # A server stopped before it stored the response to the first request.
                return (yield from _created_before(tenant, new.dialect, created))
        is_response = new.response_id is not None
        row = yield from one("batches_unfinished", account_id=principal.account_id, response=int(is_response))
        if row is not None and int(row["batches"]) >= self.limits.unfinished:
            name = "background responses" if is_response else "batches"
            raise errors.TooManyRequests(
                f"An account may have at most {self.limits.unfinished} unfinished {name}: retry later",
                retry_after=60,
            )
        # A separate name, so that the input remains after its file is deleted.
        name = yield from files.name_content(principal.account_id, source, None)
        yield Query(
            "batch_insert",
            {
                **tenant.row,
                "id": batch_id,
                "key_id": principal.key_id,
                "grant_id": principal.grant_id,
                "dialect": new.dialect,
                "endpoint": new.endpoint,
                "input_file_id": file_id,
                "input_media": name,
                "metadata": _encode(new.metadata).decode(),
                "headers": _encode(new.headers).decode(),
                "output_seconds": new.output_seconds,
                "total": new.total,
                "response_id": new.response_id,
                "window": WINDOW_US,
            },
        )
        if new.response_id is not None:
            return cast("Batch", (yield from _of_response(tenant, new.response_id)))
        return (yield from _find(tenant, new.dialect, batch_id))

    async def of_response(self, tenant: Tenant, response_id: str) -> Batch | None:
        """Return the batch of a background response, or None."""
        return await self._database.read(_of_response(tenant, response_id), snapshot=False)

    async def cancel_response(self, tenant: Tenant, response_id: str) -> Batch | None:
        """Cancel a background response unless it is ending, and return its batch, or None."""

        def cancel() -> Transaction[Batch | None]:
            batch = yield from _of_response(tenant, response_id)
            if batch is None or not (yield Query("batch_cancel", {"id": batch.id})):
                return batch
            return (yield from _of_response(tenant, response_id))

        batch = await self._database.write(cancel())
        self.on_change()
        return batch

    async def delete_response(self, tenant: Tenant, response_id: str) -> bool:
        """Delete the batch of a background response that has ended; return whether it existed.

        Raises `BadRequest` for a response that has not ended.
        """

        def delete() -> Transaction[bool]:
            batch = yield from _of_response(tenant, response_id)
            if batch is not None and not (yield Query("batch_delete", {"id": batch.id})):
                raise errors.BadRequest("A response cannot be deleted before it has ended: cancel it first")
            return batch is not None

        return await self._database.write(delete())

    async def get(self, tenant: Tenant, dialect: BatchDialect, batch_id: str) -> Batch:
        """Return a batch; raises `NotFound`."""
        return await self._database.read(_find(tenant, dialect, batch_id))

    async def page(
        self, tenant: Tenant, dialect: BatchDialect, limit: int, bound: str, *, ascending: bool = False
    ) -> tuple[Batch, ...]:
        """Return the first batches after the id `bound`, oldest first, or before it, newest first."""

        def page() -> Transaction[tuple[Batch, ...]]:
            rows = yield Query(
                "batches_after" if ascending else "batches_before",
                {
                    **tenant.row,
                    "dialect": dialect,
                    "limit": limit,
                    "bound": bound or ("" if ascending else _LAST_ID),
                },
            )
            return tuple(map(models.from_row, rows))

        return await self._database.read(page())

    async def cancel(self, tenant: Tenant, dialect: BatchDialect, batch_id: str) -> Batch:
        """Cancel a batch; raises `NotFound`, and `Conflict` if it has ended or is ending."""

        def cancel() -> Transaction[Batch]:
            batch = yield from _find(tenant, dialect, batch_id)
            if not (yield Query("batch_cancel", {"id": batch_id})) and batch.outcome != "cancelled":
                raise errors.Conflict(f"Cannot cancel a batch with status {batch.state!r}")
            return (yield from _find(tenant, dialect, batch_id))

        batch = await self._database.write(cancel())
        self.on_change()
        return batch

    async def delete(self, tenant: Tenant, dialect: BatchDialect, batch_id: str) -> None:
        """Delete a batch that has ended, with its results; raises `NotFound` and `BadRequest`."""

        def delete() -> Transaction[None]:
            batch = yield from _find(tenant, dialect, batch_id)
            if not (yield Query("batch_delete", {"id": batch_id})):
                raise errors.BadRequest("A batch cannot be deleted before it has ended: cancel it first")
            if batch.output_file_id is not None:
                row = yield from one("file_delete", **tenant.whole.row, id=batch.output_file_id, memory=0)
                if row is not None:
                    yield Query("file_media_expire", {"name": row["media"]})
                    yield from files.leave_stores(batch.output_file_id)

        await self._database.write(delete())

    async def sweep(self) -> None:
        """Delete batches that ended long ago."""

        def sweep() -> Transaction[None]:
            yield Query("batches_sweep", {"life": LIFE_US})

        await self._database.write(sweep(), durable=False)
