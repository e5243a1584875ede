"""Reading of the files of vector stores, one at a time per process; a restart continues it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database, Query, Transaction, now, one
from sixfold.core.documents import DocumentReader
from sixfold.core.files.files import AccountFile, AccountFiles, FileNotFound
from sixfold.core.vector_stores import chunking, stores
from sixfold.core.vector_stores.stores import VectorStoreFile, VectorStoreLimits

MAX_CHUNKS = 20_000
# After this time a file is read again, because the server that was reading it has stopped.
_LEASE_US = 180 * SECOND_US
_POLL_SECONDS = 5.0
_BATCH = 200
# Text files with other file name extensions; a file without an extension is text as well.
_PLAIN = frozenset(
    {
        *("", ".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".toml", ".log", ".sql", ".tex"),
        *(".py", ".js", ".ts", ".c", ".cpp", ".cs", ".java", ".go", ".rb", ".php", ".sh", ".css"),
    }
)


class VectorStoreIngestion:
    """Converts waiting files to chunks."""

    def __init__(
        self, database: Database, files: AccountFiles, reader: DocumentReader, limits: VectorStoreLimits
    ) -> None:
        self._database = database
        self._files = files
        self._reader = reader
        self._limits = limits
        self._added = asyncio.Event()

    def wake(self) -> None:
        """Start to read a file that was just added."""
        self._added.set()

    async def run(self) -> None:
        """Read waiting files until canceled."""
        while True:
            self._added.clear()
            # The next iteration tries again.
            with contextlib.suppress(errors.StoreFailed):
                while await self.read_next():
                    pass
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._added.wait()

    async def read_next(self) -> bool:
        """Read the file that has waited longest; return False if there is none."""
        claimed = await self._database.write(_claim(), durable=False)
        if claimed is None:
            return False
        file, account_id = claimed
        try:
            chunks = await self._chunks(file, account_id)
        except (errors.BadRequest, errors.TooLarge, FileNotFound) as error:
            await self._database.write(_end(file, "failed", "invalid_file", error.message))
        except (errors.StoreFailed, OSError) as error:
            raise errors.StoreFailed from error
        except errors.SixfoldError as error:
            await self._database.write(_end(file, "failed", "server_error", error.message))
        except KeyError:
            await self._database.write(
                _end(file, "failed", "server_error", "The content of the file is missing")
            )
        else:
            await self._store(file, account_id, chunks)
        return True

    async def _chunks(self, file: VectorStoreFile, account_id: str) -> list[str]:
        account_file = await self._files.get(Tenant(account_id), file.file_id)
        if account_file.size > self._reader.limits.file_bytes:
            raise errors.TooLarge(
                f"The file must be at most {self._reader.limits.file_bytes:,} bytes "
                f"(got {account_file.size:,})"
            )
        async with self._files.temporary_path() as path:
            await _copy(self._files, account_file, path)
            suffix = Path(account_file.filename).suffix.lower()
            name = f"{account_file.filename}.txt" if suffix in _PLAIN else account_file.filename
            document = await self._reader.read(path, name, f"vector stores of {account_id}")
        return await asyncio.to_thread(_split, document.text(), file)

    async def _store(self, file: VectorStoreFile, account_id: str, chunks: Sequence[str]) -> None:
        size = sum(len(chunk.encode()) for chunk in chunks)
        usage = await self._database.read(one("vector_store_usage", account_id=account_id))
        filled = await self._database.read(one("vector_store_bytes", id=file.store_id))
        for holder, row, max_bytes in (
            ("this account's vector stores", usage, self._limits.bytes),
            ("a vector store", filled, self._limits.store_bytes),
        ):
            if row is not None and row["bytes"] + size > max_bytes:
                message = (
                    f"The text has {size:,} bytes, which exceeds the limit of {max_bytes:,} bytes of {holder}"
                )
                await self._database.write(_end(file, "failed", "invalid_file", message))
                return
        await self._database.write(_clear(file))
        for start in range(0, len(chunks), _BATCH):
            await self._database.write(_put(file, start, chunks[start : start + _BATCH]), durable=False)
        await self._database.write(_end(file, "completed", "", "", size))


async def _copy(files: AccountFiles, account_file: AccountFile, path: Path) -> None:
    await asyncio.to_thread(path.touch, exist_ok=False)
    async for block in files.read(account_file):
        # Opened and closed within the thread, because a canceled call could not close it.
        await asyncio.to_thread(_append, path, block)


def _append(path: Path, block: bytes) -> None:
    with path.open("ab") as file:
        file.write(block)


def _split(text: str, file: VectorStoreFile) -> list[str]:
    chunks: list[str] = []
    for chunk in chunking.split(text, file.max_tokens, file.overlap):
        if len(chunks) == MAX_CHUNKS:
            raise errors.BadRequest(f"The file must have at most {MAX_CHUNKS:,} chunks: use larger chunks")
        chunks.append(chunk)
    return chunks


def _claim() -> Transaction[tuple[VectorStoreFile, str] | None]:
    before = (yield from now()) - _LEASE_US
    row = yield from one("vector_store_claim", before=before)
    return None if row is None else (stores.file_of(row), str(row["account_id"]))


def _key(file: VectorStoreFile) -> dict[str, str]:
    return {"id": file.store_id, "file_id": file.file_id}


def _clear(file: VectorStoreFile) -> Transaction[None]:
    yield Query("vector_store_file_chunks_clear", _key(file))


def _put(file: VectorStoreFile, start: int, chunks: Sequence[str]) -> Transaction[None]:
    current = yield from one("vector_store_file_by_id", **_key(file))
    if current is None or current["claimed_at"] != file.claimed_at:
        return
    for position, text in enumerate(chunks, start):
        yield Query("vector_store_chunk_put", {**_key(file), "position": position, "text": text})


def _end(file: VectorStoreFile, status: str, code: str, message: str, size: int = 0) -> Transaction[None]:
    row = yield from one(
        "vector_store_file_end",
        **_key(file),
        status=status,
        error_code=code,
        error=message,
        bytes=size,
        claimed_at=file.claimed_at,
    )
    if row is None or status == "failed":
        current = yield from one("vector_store_file_by_id", **_key(file))
        # Another reader may have started in the meantime.
        if current is None or current["claimed_at"] in (0, file.claimed_at):
            yield from _clear(file)
    yield Query("vector_store_changed", {"id": file.store_id})
