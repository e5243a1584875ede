"""Import and export of archives in batches, so that no archive is ever in memory as a whole."""

from __future__ import annotations

import asyncio
import itertools
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database
from sixfold.core.memory.commands import PageWriter
from sixfold.core.memory.import_export import archives
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ArchiveMember, ImportReport
from sixfold.core.memory.models import Caller

# The earliest time that a zip can store.
_OLDEST = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o100644 << 16


async def take_in(database: Database, writer: PageWriter, archive: Path) -> ImportReport:
    """Import an archive, one transaction per batch; batches before a failure remain.

    Raises `Forbidden`, `BadRequest` for an invalid archive, `TooLarge`, or `InsufficientCredits`.
    """
    writer.check()
    report = ImportReport()
    naming = import_export_files.FileNaming(
        await asyncio.to_thread(archives.outliner, archive, writer.limits)
    )
    members = archives.files(archive, writer.limits, report)
    while batch := await asyncio.to_thread(_batch, members):
        part = await database.write(import_export_files.put(writer, batch, naming))
        report.created += part.created
        report.updated += part.updated
        report.skipped += part.skipped
        for path, why in part.errors:
            report.refuse(path, why)
    return report


def _batch(members: Iterator[ArchiveMember]) -> list[ArchiveMember]:
    batch: list[ArchiveMember] = []
    chars = 0
    for file in itertools.islice(members, import_export_files.BATCH_FILES):
        batch.append(file)
        chars += len(file.text)
        if chars > import_export_files.BATCH_CHARS:
            break
    return batch


class ArchiveSink:
    """A file object that `zipfile` writes to, whose bytes are read as they arrive."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing, since nothing is buffered."""

    def drain(self) -> bytes:
        """Return the bytes since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


async def take_out(database: Database, caller: Caller) -> AsyncIterator[bytes]:
    """Yield a zip of all pages that the caller can see, while it is made."""
    sink, paths, after = ArchiveSink(), import_export_files.ImportPaths(), ""
    archive = zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_DEFLATED)
    while batch := await database.read(import_export_files.exported(caller, after)):
        after = batch[-1].page.slug
        await asyncio.to_thread(_write, archive, paths, batch)
        yield sink.drain()
    await asyncio.to_thread(archive.close)
    yield sink.drain()


def _write(
    archive: zipfile.ZipFile,
    paths: import_export_files.ImportPaths,
    batch: Sequence[import_export_files.ExportedPage],
) -> None:
    for exported in batch:
        moment = datetime.fromtimestamp(exported.page.updated_at / SECOND_US, UTC).timetuple()[:6]
        info = zipfile.ZipInfo(paths.of(exported.page), max(_OLDEST, moment))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = _PLAIN_FILE
        archive.writestr(info, exported.text().encode())
