"""Restoration of a backup into an empty data folder: load into a staging folder, check, then rename."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sixfold.app import storage
from sixfold.cli import database_access, server_lock
from sixfold.cli.database.verification import compare_rows, hash_of
from sixfold.cli.terminal import CommandError
from sixfold.core.accounts import credentials, ledger_queries
from sixfold.core.media.ports import BlobStore
from sixfold.settings import Settings
from sixfold.store import archive, durable, sql
from sixfold.store.admin import DatabaseLoad
from sixfold.store.archive import Archive, ArchiveDamaged, ArchivedFile

_STAGING = ".restoring"
_CONTENT = ("store", "uploads")
_BLOB = "blobs/"
# Errors that the disk causes rather than the backup.
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


class RestoreReport(msgspec.Struct):
    """The result of a restore. `drift` and the fields after it are set only by `--verify`.

    `ended` is how many credentials and shares of each kind were ended. `missing` are files that the backup
    did not contain; `damaged` are files whose hash does not match.
    """

    schema: int = 0
    tables: dict[str, int] = {}
    files: int = 0
    file_bytes: int = 0
    missing: list[str] = []
    damaged: list[str] = []
    ended: Mapping[str, int] = {}
    verified: bool = False
    drift: int = 0
    missing_blobs: int = 0
    faults: tuple[str, ...] = ()


def restore(
    file: Path, server_settings: Settings, *, verify: bool, end_access: bool = False
) -> RestoreReport:
    """Restore a backup; the data folder stays empty until every part has been checked.

    With `end_access`, all keys, programs, login sessions, invitations and shares of the backup are ended, as
    some may have been revoked since it was written. Raises `CommandError` without changing the folder if
    the file is not a complete backup or the folder is not empty.
    """
    if not file.exists():
        raise CommandError(f"Backup {file} does not exist")
    target = server_settings.data_dir
    _require_empty_folder(target)
    _require_empty_database(server_settings)
    was_there = target.exists()
    try:
        with database_access.understood(), server_lock.hold(target):
            _require_empty_folder(target)
            staging_settings = server_settings.replace(data_dir=target / _STAGING)
            # A killed restore does not delete its staging folder.
            shutil.rmtree(staging_settings.data_dir, ignore_errors=True)
            staging_settings.data_dir.mkdir(mode=0o700)
            try:
                result = asyncio.run(_stage(file, staging_settings, target, verify=verify))
                if end_access:
                    result.ended = database_access.write(staging_settings, credentials.end_everything())
                _reveal(staging_settings.data_dir, target, (storage.DATABASE,))
            finally:
                shutil.rmtree(staging_settings.data_dir, ignore_errors=True)
    except ArchiveDamaged as damage:
        raise CommandError(f"{file} is not a complete backup: {damage}; nothing was restored") from damage
    finally:
        if not was_there and not any((target / name).exists() for name in (storage.DATABASE, *_CONTENT)):
            shutil.rmtree(target, ignore_errors=True)
    return result


def _require_empty_folder(target: Path) -> None:
    present = [name for name in (storage.DATABASE, *_CONTENT) if _has_content(target / name)]
    if present:
        raise CommandError(
            f"{target} is not empty (it has {present[0]}): set --data-dir to an empty folder, "
            "and keep this one until you have checked the result"
        )


def _require_empty_database(server_settings: Settings) -> None:
    admin = storage.open_admin(server_settings)
    if server_settings.on_postgres and admin.schema() is not None:
        raise CommandError(
            f"{admin.place} is not empty: restore into a new database, "
            "and keep this one until you have checked the result"
        )


def _has_content(path: Path) -> bool:
    if path.is_dir():
        return next(path.iterdir(), None) is not None
    return path.exists() or path.is_symlink()


def _reveal(staging: Path, target: Path, names: Iterable[str]) -> None:
    """Move folders or the database into place; the database is last, as it makes the rest visible."""
    for name in names:
        if (staging / name).exists():
            (staging / name).rename(target / name)
    durable.sync_folder(target)


# -- staging ---------------------------------------------------------------------------------------


async def _stage(file: Path, staging_settings: Settings, target: Path, *, verify: bool) -> RestoreReport:
    """Load a backup into the staging folder, then move its files into place, ahead of the database."""
    result = RestoreReport()
    stores = _stores(staging_settings)
    with storage.open_loader(staging_settings) as loader:
        with archive.open_archive(file) as backup:
            schema = backup.manifest.schema
            newest = sql.latest(storage.open_admin(staging_settings).dialect)
            if not 1 <= schema <= newest:
                raise CommandError(
                    f"{file} has schema {schema}, but this version supports 1 to {newest}: "
                    "upgrade Sixfold, then restore"
                )
            result.schema = schema
            _load(backup, loader, result)
            for stored in backup.files():
                await _store_file(stored, stores[stored.folder], staging_settings.data_dir, result)
            result.missing = backup.missing
        loader.commit()
        if verify:
            await _verify(file, loader, stores, result)
        loader.upgrade()
        if verify:
            result.faults = loader.read(ledger_queries.verify())
        _reveal(staging_settings.data_dir, target, _CONTENT)
    return result


def _stores(staging_settings: Settings) -> dict[str, BlobStore]:
    """Return the stores for files: in the staging folder, or the final bucket where one is configured.

    Files in a bucket are harmless before the database is in place: nothing refers to them.
    """
    # Files are not read again, so a cache would be useless.
    here = staging_settings.replace(blob_cache_bytes=0)
    return {"store": storage.open_blobs(here), "uploads": storage.open_uploads(here)}


def _load(backup: Archive, loader: archive.TableWriter, result: RestoreReport) -> None:
    expected = loader.begin(backup.manifest.schema)
    for table, rows in backup.tables():
        if set(expected.get(table.name, ())) != set(table.columns):
            raise ArchiveDamaged(f"table {table.name} does not belong to schema {backup.manifest.schema}")
        loader.load(table.name, table.columns, rows)
        result.tables[table.name] = table.rows
    lacking = sorted(expected.keys() - result.tables.keys())
    if lacking:
        raise ArchiveDamaged(f"table {lacking[0]} is missing")


async def _store_file(stored: ArchivedFile, store: BlobStore, folder: Path, result: RestoreReport) -> None:
    temporary = folder / "incoming"
    with temporary.open("wb") as out:
        for piece in stored.pieces():
            out.write(piece)
    try:
        await store.put_file(stored.key, temporary)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _DISK:
            raise
        raise ArchiveDamaged(f"file {stored.key[:80]!r} cannot be stored ({error})") from error
    if stored.folder == "store" and _digest_in(stored.key) not in {"", stored.blake3}:
        result.damaged.append(stored.key)
    result.files += 1
    result.file_bytes += stored.size


def _digest_in(key: str) -> str:
    return key.removeprefix(_BLOB).replace("/", "") if key.startswith(_BLOB) else ""


# -- verification ----------------------------------------------------------------------------------


async def _verify(
    file: Path, loader: DatabaseLoad, stores: dict[str, BlobStore], result: RestoreReport
) -> None:
    """Read the backup again and compare every row and file with the restored data."""
    with archive.open_archive(file) as backup, loader.snapshot() as snapshot:
        for table, rows in backup.tables():
            expected = map(loader.stored, rows)
            result.drift += compare_rows(table.name, table.columns, expected, snapshot).differing
        for stored in backup.files():
            for _ in stored.pieces():
                pass
            result.drift += await hash_of(stores[stored.folder], stored.key) != stored.blake3
        for key, _expires_at in snapshot.blobs():
            result.missing_blobs += await stores["store"].stat(key) is None
    result.verified = True
