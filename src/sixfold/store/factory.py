"""Opening of databases by URL: a SQLite file or PostgreSQL."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sixfold.core.clock import Clock
from sixfold.core.database import Database
from sixfold.settings import InvalidSetting
from sixfold.store.admin import DatabaseAdmin, Loader
from sixfold.store.archive import TableReader
from sixfold.store.sqlite.admin import SqliteAdmin, SqliteCopy, SqliteLoader, SqliteSnapshot
from sixfold.store.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    from sixfold.store.process_channel import ProcessChannel


def open_database(
    url: str, file: Path, clock: Clock | None = None, *, channel: ProcessChannel | None = None
) -> Database:
    """Open the database at `url`, or in `file`, and upgrade it to the newest schema.

    A PostgreSQL connection is opened at first use. Raises `InvalidSetting` if the extra `postgres` is not
    installed. `channel` connects the processes that share a file.
    """
    if is_postgres(url):
        return _postgres("database").PostgresDatabase(url, clock=clock)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if channel is not None:
        shared = importlib.import_module("sixfold.store.sqlite.shared")
        database: Database = shared.SharedSqliteDatabase(file, channel, clock=clock)
        return database
    return SqliteDatabase(file, clock=clock)


def open_snapshot(url: str, file: Path, copy: Path | None = None) -> AbstractContextManager[TableReader]:
    """Open a snapshot of all tables; a SQLite file is first copied to `copy` if that is set."""
    if is_postgres(url):
        snapshot: AbstractContextManager[TableReader] = _postgres("admin").PostgresSnapshot(url)
        return snapshot
    return SqliteSnapshot(file) if copy is None else SqliteCopy(file, copy)


def open_loader(url: str, file: Path) -> Loader:
    """Open a new database into which a backup is loaded."""
    return _postgres("admin").PostgresLoader(url) if is_postgres(url) else SqliteLoader(file)


def open_admin(url: str, file: Path) -> DatabaseAdmin:
    """Return the administration of a database, which does not require a running server."""
    return _postgres("admin").PostgresAdmin(url) if is_postgres(url) else SqliteAdmin(file)


def is_postgres(url: str) -> bool:
    return url.startswith(("postgres://", "postgresql://"))


def _postgres(module: str) -> Any:
    try:
        return importlib.import_module(f"sixfold.store.postgres.{module}")
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "postgresql:// requires the `postgres` extra: run pip install 'sixfold[postgres]'"
        ) from error
