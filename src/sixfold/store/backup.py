"""Writing a backup: one snapshot of all tables, then the files that the rows refer to."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, cast

import blake3
import msgspec

from sixfold import __version__
from sixfold.core.media.ports import BlobStore
from sixfold.store import archive, durable
from sixfold.store.archive import ArchiveManifest, ArchiveTable, BlobLine, TableReader

_IN_MEMORY_BYTES = 8 << 20  # larger files are buffered on disk


def _unwatched(_size: int) -> None:
    pass


class BackupBusy(Exception):
    """Another backup is being written to this path."""


class BackupReport(msgspec.Struct):
    """The contents of a backup; `missing` lists the files that the store does not contain."""

    schema: int = 0
    tables: dict[str, int] = {}
    files: int = 0
    file_bytes: int = 0
    missing: list[str] = []


class _Spool(msgspec.Struct, frozen=True):
    """The rows and blob keys of the snapshot, in unnamed temporary files."""

    manifest: ArchiveManifest
    tables: tuple[IO[bytes], ...]
    blobs: IO[bytes]


def copy_beside(path: Path) -> Path:
    """Return the path, in the folder of the backup, of the temporary copy of a SQLite database."""
    return path.with_name(f"{path.name}.db")


async def write(
    path: Path,
    snapshot: AbstractContextManager[TableReader],
    store: BlobStore,
    uploads: BlobStore | None,
    watch: Callable[[int], None] = _unwatched,
) -> BackupReport:
    """Write a backup to `path`, which is created or replaced atomically.

    The snapshot ends before the first file is copied; `watch` is called with the size of each copied file.
    Raises `BackupBusy` and `OSError`.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(_exclusive(temporary))
        with snapshot as reader:
            spool = _spool(reader, path.parent, stack)
        report = BackupReport(
            schema=spool.manifest.schema, tables={table.name: table.rows for table in spool.manifest.tables}
        )
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, archive.MANIFEST, io.BytesIO(msgspec.json.format(msgspec.json.encode(spool.manifest))))
            for table, rows in zip(spool.manifest.tables, spool.tables, strict=True):
                _add(tar, f"tables/{table.name}.jsonl", rows)
            lines = stack.enter_context(_unnamed(path.parent))
            files = _Files(tar, lines, path.parent, report, watch)
            await _copy_named(files, store, spool.blobs)
            if uploads is not None:
                await _copy_all(files, uploads)
            for name in report.missing:
                lines.write(archive.blob_line(BlobLine(name, missing=True)))
            lines.seek(0)
            _add(tar, archive.BLOBS, lines)
        out.flush()
        os.fsync(out.fileno())
        temporary.rename(path)
    durable.sync_folder(path.parent)
    return report


@contextlib.contextmanager
def _exclusive(path: Path) -> Generator[IO[bytes]]:
    """Open and lock the temporary file; it is deleted if an error occurs."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w+b") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupBusy(
                f"Another backup is being written to {path}: wait until it has ended, or use another path"
            ) from None
        file.truncate()
        try:
            yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _spool(reader: TableReader, folder: Path, stack: contextlib.ExitStack) -> _Spool:
    tables: list[ArchiveTable] = []
    files: list[IO[bytes]] = []
    for name, columns in reader.tables():
        file = stack.enter_context(_unnamed(folder))
        digest, count = blake3.blake3(), 0
        for row in reader.rows(name):
            line = archive.encode_row(row)
            digest.update(line)
            file.write(line)
            count += 1
        tables.append(ArchiveTable(name, columns, count, file.tell(), digest.hexdigest()))
        files.append(file)
    blobs = stack.enter_context(_unnamed(folder))
    for key, expires_at in reader.blobs():
        blobs.write(json.dumps([key, expires_at]).encode() + b"\n")
    for file in (*files, blobs):
        file.seek(0)
    manifest = ArchiveManifest(
        archive.FORMAT, reader.schema, __version__, time.time_ns() // 1000, tuple(tables)
    )
    return _Spool(manifest, tuple(files), blobs)


def _unnamed(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, io.SEEK_END)
    info.mode, info.mtime = 0o600, int(time.time())
    file.seek(0)
    tar.addfile(info, file)
    archive.forget_members(tar)


class _Files(msgspec.Struct, frozen=True):
    """The destination of copied files: tar file, list of files, temporary folder and totals."""

    tar: tarfile.TarFile
    lines: IO[bytes]
    folder: Path
    done: BackupReport
    watch: Callable[[int], None]


async def _copy_named(files: _Files, store: BlobStore, keys: IO[bytes]) -> None:
    for text in keys:
        key, expires_at = json.loads(text)
        if not await _copy(files, store, "store", key):
            expired = expires_at is not None and expires_at <= time.time_ns() // 1000
            if not expired:  # expired files may be swept at any time
                files.done.missing.append(f"store/{key}")


async def _copy_all(files: _Files, uploads: BlobStore) -> None:
    async for upload in uploads.list():
        await _copy(files, uploads, "uploads", upload.key)


async def _copy(files: _Files, store: BlobStore, folder: str, key: str) -> bool:
    """Copy one complete version of a file; return False if the file does not exist."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(files.folder)) as spooled:
        file = cast("IO[bytes]", spooled)
        try:
            async for piece in store.stream(key):
                file.write(piece)
        except KeyError:
            return False
        info = tarfile.TarInfo(f"{folder}/{key}")
        info.size = file.tell()
        info.mode, info.mtime = 0o600, int(time.time())
        file.seek(0)
        hashing = archive.HashingStream(file)
        files.tar.addfile(info, cast("IO[bytes]", hashing))
        archive.forget_members(files.tar)
    files.lines.write(archive.blob_line(BlobLine(info.name, info.size, hashing.digest.hexdigest())))
    files.done.files += 1
    files.done.file_bytes += info.size
    files.watch(info.size)
    return True
