"""`archive`: list the segments of the archive, check them, and print archived records."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from sixfold.app import storage
from sixfold.cli import database_access
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.account_data.archive.reader import ArchiveCheck, ArchiveReader
from sixfold.core.account_data.archive.segments import SegmentDamaged
from sixfold.core.clock import rfc3339
from sixfold.core.humanize import size
from sixfold.settings import Settings

T = TypeVar("T")


def read(server_settings: Settings, work: Callable[[ArchiveReader], Awaitable[T]]) -> T:
    """Run a function with a reader of the archive, whose files are read from the store itself."""
    database_access.require_data(server_settings)
    return asyncio.run(_read(server_settings, work))


async def _read(server_settings: Settings, work: Callable[[ArchiveReader], Awaitable[T]]) -> T:
    os.umask(database_access.PRIVATE)
    with database_access.understood():
        database = storage.open_database(server_settings)
        try:
            return await work(
                ArchiveReader(database, storage.open_blobs(server_settings.replace(blob_cache_bytes=0)))
            )
        finally:
            await database.close()


def list_segments(arguments: argparse.Namespace) -> None:
    """Run `archive list`: print the segments of the archive, oldest first."""
    rows = read(database_access.settings_of(arguments), _rows)
    if arguments.json:
        put_json({"segments": rows})
        return
    if not rows:
        TerminalStyle().line("  The archive is empty")
        return
    TerminalStyle().table(
        ("segment", "kind", "records", "erased", "size", "written (UTC)", "hash"),
        [
            (
                str(row["number"]),
                row["kind"],
                str(row["records"]),
                str(row["erased"]),
                size(row["size"]),
                row["created_at"][:19].replace("T", " "),
                row["hash"][:16],
            )
            for row in rows
        ],
    )


async def _rows(reader: ArchiveReader) -> list[dict[str, Any]]:
    return [
        {**dict(row), "created_at": rfc3339(row["created_at"]), "until": rfc3339(row["until"])}
        async for row in reader.rows()
    ]


def verify(arguments: argparse.Namespace) -> int:
    """Run `archive verify`: check files, hash chain and closing balances; return 1 if there is a fault."""
    check = read(database_access.settings_of(arguments), lambda reader: reader.verify())
    if arguments.json:
        put_json({"ok": not check.faults, **_document(check)})
        return 1 if check.faults else 0
    for fault in check.faults:
        sys.stderr.write(f"sixfold: {fault}\n")
    if check.faults:
        return 1
    paint = TerminalStyle()
    paint.line(f"  The archive is intact: {check.segments} segments with {check.records} records")
    if check.head:
        paint.line(f"  Its last hash, to be kept with the accounts: {check.head}")
    return 0


def _document(check: ArchiveCheck) -> dict[str, Any]:
    return {
        "segments": check.segments,
        "records": check.records,
        "charges": check.charges,
        "head": check.head,
        "faults": check.faults,
    }


def show(arguments: argparse.Namespace) -> None:
    """Run `archive show`: print an archived record as JSON lines, with its parts and files."""

    async def find(reader: ArchiveReader) -> list[dict[str, Any]]:
        try:
            return [record async for record in reader.find(arguments.id)]
        except SegmentDamaged as damage:
            raise CommandError(f"The archive is damaged ({damage}): run `sixfold archive verify`") from damage

    records = read(database_access.settings_of(arguments), find)
    if not records:
        raise CommandError(f"{arguments.id} is not in the archive")
    for record in records:
        sys.stdout.write(msgspec.json.encode(record).decode() + "\n")
