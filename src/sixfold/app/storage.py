"""The stores that the settings configure: database, backups, blob stores and server secrets."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from sixfold.core.clock import Clock, clock_anchor, steady_clock
from sixfold.core.database import Database
from sixfold.core.media.ports import BlobStore
from sixfold.settings import InvalidSetting, Settings
from sixfold.store import factory
from sixfold.store.admin import DatabaseAdmin, Loader
from sixfold.store.archive import TableReader
from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.file_store import FileStore

if TYPE_CHECKING:
    from sixfold.store.process_channel import ProcessChannel

# The SQLite file in the data folder.
DATABASE = "sixfold.db"
_SECRET_BYTES = 32
# A file is cached shortly before its run begins.
_CACHE_MARGIN_SECONDS = 60


def open_database(settings: Settings, channel: ProcessChannel | None = None) -> Database:
    """Return the server's database, migrated to the current schema.

    `channel` connects the processes of a server with more than one process.
    """
    file = settings.data_dir / DATABASE
    clock = None if channel is None or settings.on_postgres else _shared_clock(settings)
    return factory.open_database(settings.database_url, file, clock, channel=channel)


def _shared_clock(settings: Settings) -> Clock:
    """Return the clock of all processes of this server; process 0 starts first and sets the clock."""
    path = settings.data_dir / "processes" / "clock"
    if settings.process == 0:
        temporary = path.with_suffix(".new")
        temporary.write_text(str(clock_anchor()))
        temporary.replace(path)
    return steady_clock(int(path.read_text()))


def open_channel(settings: Settings) -> ProcessChannel | None:
    """Return the channel between the processes of this server, or None if it has only one process."""
    if settings.processes == 1:
        return None
    # Deferred, because such sockets and locks exist only on Linux, and commands that do not need them import
    # this.
    channel: ProcessChannel = importlib.import_module("sixfold.store.process_channel").ProcessChannel(
        settings.data_dir / "processes"
    )
    return channel


def open_snapshot(settings: Settings, copy: Path | None = None) -> AbstractContextManager[TableReader]:
    """Return a snapshot of all tables; a SQLite file is first copied to `copy` if that is set."""
    return factory.open_snapshot(settings.database_url, settings.data_dir / DATABASE, copy)


def open_loader(settings: Settings) -> Loader:
    """Return a new database into which a backup is restored."""
    return factory.open_loader(settings.database_url, settings.data_dir / DATABASE)


def open_admin(settings: Settings) -> DatabaseAdmin:
    """Return the administration of the database's schema and health."""
    return factory.open_admin(settings.database_url, settings.data_dir / DATABASE)


def open_blobs(settings: Settings) -> BlobStore:
    """Return the store of content-addressed blobs: a folder in the data folder, or `SIXFOLD_BLOB_URL`."""
    return _open_store(settings, settings.blob_url, "store", by_content=True)


def open_uploads(settings: Settings) -> BlobStore:
    """Return the store of images saved by path: a folder in the data folder, or `SIXFOLD_UPLOAD_URL`."""
    return _open_store(settings, settings.upload_url, "uploads", by_content=False)


def _open_store(settings: Settings, url: str, folder: str, *, by_content: bool) -> BlobStore:
    """Return the store at a URL; raises `InvalidSetting`, also if the extra `objects` is not installed."""
    if not url or url.startswith("file://"):
        return FileStore(Path(url.removeprefix("file://")) if url else settings.data_dir / folder)
    try:
        objects = importlib.import_module("sixfold.store.object_store")
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"{url.partition(':')[0]}:// requires the `objects` extra: run pip install 'sixfold[objects]'"
        ) from error
    longest = max(settings.run_limit_seconds, settings.graph_limit_seconds, settings.training_limit_seconds)
    keep_seconds = longest + _CACHE_MARGIN_SECONDS
    place = objects.StoreOptions(
        url=url,
        tables=settings.tables.get("buckets", {}),
        seconds=settings.blob_seconds,
        cache=BlobCache(settings.data_dir / "cache", CacheLimits(settings.blob_cache_bytes, keep_seconds)),
        objects=objects.ObjectOptions(by_content, settings.blob_link_seconds if by_content else 0),
    )
    with InvalidSetting.of(ValueError):
        return objects.open_store(place)


def server_secret(data_dir: Path, name: str) -> bytes:
    """Return the 32 random bytes in `DATA/<name>`, creating the file (mode 0600) if needed."""
    path = data_dir / name
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
    return path.read_bytes()
