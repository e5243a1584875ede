"""Import and export of archives in batches, so that an archive is never completely in memory."""

from __future__ import annotations

import asyncio
import itertools
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

import msgspec
from msgspec.structs import replace

from sixfold.core.accounts.authentication import access_checks
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import export_turns
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.database import Database
from sixfold.core.files.files import AccountFiles, FileNotFound
from sixfold.core.memory.commands import PageWriter
from sixfold.core.memory.import_export import archive_memory, archives, attachments, hidden_files, paths
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ArchiveMember, DocumentFolder, ImportReport
from sixfold.core.memory.models import Caller, MemoryPage

# The earliest time that a zip can store.
_OLDEST = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o100644 << 16
_LOGSEQ = '{:meta/version 1 :preferred-format "Markdown" :file/name-format :triple-lowbar}\n'


# Imports a document of an archive.
TakeDocument = Callable[[ArchiveMember, ImportReport], Awaitable[None]]


class DocumentMembers(msgspec.Struct, frozen=True):
    """Options for the documents of an archive; `prefix` begins the path of every file."""

    folder: DocumentFolder
    take: TakeDocument
    prefix: str = ""


async def import_archive(
    database: Database,
    writer: PageWriter,
    archive: Path,
    memory: MemoryLimit,
    documents: DocumentMembers | None = None,
) -> ImportReport:
    """Import an archive in one transaction per batch; batches before a failure are kept.

    The import stops when the credential of the current request has ended.

    If `documents` is None, files other than Markdown are skipped.

    Raises `Forbidden`, `BadRequest` for an invalid archive, `TooLarge`, `InsufficientCredits`, or
    `TooManyRequests` if `memory` is in use.
    """
    writer.check()
    lease = memory.lease(writer.caller.account_id)
    try:
        await lease.resize(await asyncio.to_thread(archive_memory.needed, archive))
        return await _import(database, writer, archive, documents)
    finally:
        lease.release()


async def _import(
    database: Database, writer: PageWriter, archive: Path, documents: DocumentMembers | None
) -> ImportReport:
    report = ImportReport()
    naming = import_export_files.FileNaming(
        await asyncio.to_thread(archives.outliner, archive, writer.limits)
    )
    folder, prefix = (None, "") if documents is None else (documents.folder, documents.prefix)
    members = archives.files(archive, writer.limits, report, folder)
    while batch := await asyncio.to_thread(_batch, members, prefix):
        document = batch.pop() if batch[-1].file is not None else None
        put = import_export_files.put(writer, batch, naming)
        report.add(await database.write(access_checks.while_unchanged(put)))
        if document is not None and documents is not None:
            await documents.take(document, report)
    return report


def _batch(members: Iterator[ArchiveMember], prefix: str) -> list[ArchiveMember]:
    """Return the next files, of which only the last may be a document."""
    batch: list[ArchiveMember] = []
    chars = 0
    for file in itertools.islice(members, import_export_files.BATCH_FILES):
        batch.append(replace(file, path=prefix + file.path) if prefix else file)
        chars += len(file.text)
        if chars > import_export_files.BATCH_CHARS or file.file is not None:
            break
    return batch


class ArchiveSink:
    """A file object to which `zipfile` writes, and whose bytes are read as they arrive."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing, because data is not buffered."""

    def drain(self) -> bytes:
        """Return the bytes written since the previous call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


async def export_archive(
    database: Database, caller: Caller, files: AccountFiles | None = None, *, logseq: bool = False
) -> AsyncIterator[bytes]:
    """Yield a zip of all pages that the caller can see, with their files, in chunks.

    If `logseq` is set, the archive has the folders and settings of Logseq, and slugs become aliases.
    """
    sink, names, after = ArchiveSink(), import_export_files.ImportPaths(logseq), ""
    archive = zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_DEFLATED)
    if logseq:
        archive.writestr(paths.SETTINGS, _LOGSEQ)
    while True:
        async with export_turns.TURNS.next():
            batch = await database.read(import_export_files.exported(caller, after), in_thread=True)
            if not batch:
                break
            after = batch[-1].page.slug
            stored = await asyncio.to_thread(_write, archive, names, batch)
            del batch
        yield sink.drain()
        for file_id, info in stored:
            async for piece in _file_pieces(caller, files, (file_id, info), (archive, sink)):
                yield piece
    await asyncio.to_thread(archive.close)
    yield sink.drain()


async def _file_pieces(
    caller: Caller,
    files: AccountFiles | None,
    stored: tuple[str, zipfile.ZipInfo],
    into: tuple[zipfile.ZipFile, ArchiveSink],
) -> AsyncIterator[bytes]:
    """Yield the file of a page as a member of the archive; a missing file is omitted."""
    archive, sink = into
    file_id, info = stored
    if files is None:
        return
    try:
        file = await files.get(attachments.tenant(caller), file_id, with_memory=True)
        pieces = files.read(file)
        piece = await anext(pieces, b"")
    except (FileNotFound, KeyError):
        return
    with archive.open(info, "w", force_zip64=True) as member:
        while piece:
            await asyncio.to_thread(member.write, piece)
            yield sink.drain()
            piece = await anext(pieces, b"")
    yield sink.drain()


def _info(name: str, page: MemoryPage) -> zipfile.ZipInfo:
    moment = datetime.fromtimestamp(page.updated_at / SECOND_US, UTC).timetuple()[:6]
    info = zipfile.ZipInfo(name, max(_OLDEST, moment))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = _PLAIN_FILE
    return info


def _write(
    archive: zipfile.ZipFile,
    names: import_export_files.ImportPaths,
    batch: Sequence[import_export_files.ExportedPage],
) -> list[tuple[str, zipfile.ZipInfo]]:
    """Write the text of pages, and return the ids of their stored files with their members."""
    for exported in batch:
        if not exported.is_only_file:
            info = _info(names.of(exported.page), exported.page)
            text = hidden_files.marked(info.filename, exported.text(alias=names.logseq))
            archive.writestr(info, text.encode())
    return [
        (exported.file_id, _info(names.of_file(exported.page), exported.page))
        for exported in batch
        if exported.file_id
    ]
