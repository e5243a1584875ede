"""`move`: copy the database and the files of a data folder to the database and stores of the settings.

Files are copied first, then rows in one transaction, and all copies are compared. An interrupted move leaves
an empty database and can be repeated. The data folder is not changed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from sixfold import errors
from sixfold.app import storage
from sixfold.cli import database_access, server_lock
from sixfold.cli.database.verification import compare_rows, hash_of
from sixfold.cli.terminal import CommandError, Spinner, TerminalStyle, put_json
from sixfold.core.accounts import ledger_queries
from sixfold.core.humanize import size
from sixfold.core.media.ports import BlobStore
from sixfold.settings import Settings
from sixfold.store import archive, sql
from sixfold.store.archive import TableReader

# Number of files that are copied concurrently, because an object store responds slowly.
_PARALLEL = 8
_MAX_LISTED = 20


class MoveReport(msgspec.Struct):
    """The result of a move; `copied` counts the files added to the store, `missing` lists those not found."""

    tables: dict[str, int] = {}
    files: int = 0
    file_bytes: int = 0
    copied: int = 0
    missing: list[str] = []
    rows_were_there: bool = False


def move(arguments: argparse.Namespace) -> int:
    """Run `move`; return 1 if files were missing from the data folder, after moving all others."""
    target = database_access.settings_of(arguments)
    source = target.replace(database_url="", blob_url="", upload_url="")
    if not (target.database_url or target.blob_url or target.upload_url):
        raise CommandError(
            "The target is not set: set at least one of SIXFOLD_DATABASE_URL, SIXFOLD_BLOB_URL and "
            "SIXFOLD_UPLOAD_URL"
        )
    database_access.require_data(source)
    _require_latest(source)
    os.umask(database_access.PRIVATE)
    with database_access.understood(), server_lock.hold(source.data_dir), Spinner("move") as waiting:
        result = asyncio.run(_move_files(source, target, waiting.count))
        with storage.open_snapshot(source) as reader:
            if target.database_url:
                _move_rows(reader, target, result)
            result.missing = asyncio.run(_missing(reader, storage.open_blobs(target)))
    if arguments.json:
        put_json({**msgspec.structs.asdict(result), "missing": result.missing[:_MAX_LISTED]})
    else:
        _print(result, source, target)
    for name in result.missing[:_MAX_LISTED]:
        sys.stderr.write(f"sixfold: {name} is missing from the store\n")
    return 1 if result.missing else 0


def _require_latest(source: Settings) -> None:
    admin = storage.open_admin(source)
    schema, latest = admin.schema() or 0, sql.latest(admin.dialect)
    sql.check_known(admin.dialect, schema)
    if schema != latest:
        raise CommandError(f"{admin.place} has schema {schema}, not {latest}: run `sixfold upgrade` first")


# -- files -----------------------------------------------------------------------------------------


async def _move_files(source: Settings, target: Settings, watch: Callable[[int], None]) -> MoveReport:
    result = MoveReport()
    # A cache could hide that a copy is missing from the store.
    uncached = target.replace(blob_cache_bytes=0)
    if target.blob_url:
        await _copy_all(storage.open_blobs(source), storage.open_blobs(uncached), result, watch)
    if target.upload_url:
        await _copy_all(storage.open_uploads(source), storage.open_uploads(uncached), result, watch)
    return result


async def _copy_all(
    source: BlobStore, target: BlobStore, result: MoveReport, watch: Callable[[int], None]
) -> None:
    files, listing, failures = source.list(), asyncio.Lock(), list[Exception]()

    async def work() -> None:
        while not failures:
            async with listing:
                info = await anext(files, None)
            if info is None:
                return
            try:
                copied = await _copy(source, target, info.key)
            except (OSError, errors.SixfoldError, CommandError) as failure:
                # The failure is raised after the other copies have ended, so they are not interrupted.
                failures.append(failure)
                return
            result.copied += copied
            result.files += 1
            result.file_bytes += info.size
            watch(info.size)

    await asyncio.gather(*(work() for _ in range(_PARALLEL)))
    if failures:
        raise failures[0]


async def _copy(source: BlobStore, target: BlobStore, key: str) -> bool:
    """Copy a file unless it is equal in the target; return whether it was copied. Raises `CommandError`."""
    expected, present = await hash_of(source, key), await hash_of(target, key)
    if present == expected:
        return False
    if present:
        # The store does not overwrite files.
        await target.delete(key)
    with tempfile.TemporaryDirectory(prefix="sixfold-move-") as folder:
        copy = Path(folder) / "file"
        with copy.open("wb") as out:
            async for piece in source.stream(key):
                out.write(piece)
        await target.put_file(key, copy)
    if await hash_of(target, key) != expected:
        raise CommandError(
            f"The copy of {key} differs from the file: check the store, and repeat the command"
        )
    return True


async def _missing(reader: TableReader, store: BlobStore) -> list[str]:
    return [key for key, _expires_at in reader.blobs() if await store.stat(key) is None]


# -- rows ------------------------------------------------------------------------------------------


def _move_rows(reader: TableReader, target: Settings, result: MoveReport) -> None:
    """Load all rows in one transaction, which is committed only if each row equals its original."""
    admin = storage.open_admin(target)
    result.rows_were_there = admin.schema() is not None
    if result.rows_were_there:
        with storage.open_snapshot(target) as copies:
            drift = _compare_all(reader, copies, result) if copies.schema == reader.schema else 1
        if drift:
            raise CommandError(
                f"{admin.place} is neither empty nor a copy of {target.data_dir}: use a new database"
            )
        return
    with storage.open_loader(target) as loader:
        loader.begin(reader.schema)
        for table, columns in reader.tables():
            loader.load(table, columns, reader.rows(table))
        loader.commit()
        with loader.snapshot() as copies:
            drift = _compare_all(reader, copies, result)
        faults = loader.read(ledger_queries.verify())
        if drift or faults:
            raise CommandError(
                f"Nothing was moved: {'; '.join(faults) or f'{drift} rows differ from their originals'}"
            )


def _compare_all(reader: TableReader, copies: TableReader, result: MoveReport) -> int:
    """Count the rows of each table, and return how many differ from their copies."""
    differing = 0
    for table, columns in reader.tables():
        expected = map(archive.without_nul, reader.rows(table))
        result.tables[table], differences = compare_rows(table, columns, expected, copies)
        differing += differences
    return differing


def _print(result: MoveReport, source: Settings, target: Settings) -> None:
    paint = TerminalStyle()
    rows: list[tuple[str, str]] = []
    if target.database_url:
        suffix = ", which were there already" if result.rows_were_there else ""
        rows.append(("rows", f"{sum(result.tables.values())} in {len(result.tables)} tables{suffix}"))
    if target.blob_url or target.upload_url:
        rows.append(("files", f"{result.files}, {size(result.file_bytes)}; {result.copied} copied now"))
    rows.append(("verified", "each row and each file equals its original"))
    rows.append(("next", "`sixfold serve` with the same settings and the same data folder"))
    rows.append(
        ("unchanged", f"{source.data_dir / storage.DATABASE} and its files: delete them after a backup")
    )
    paint.rows(rows)
