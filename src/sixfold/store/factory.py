"""Which database a URL means: SQLite's file, or a PostgreSQL; and who reads, fills and looks after it."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sixfold.core.clock import Clock
from sixfold.core.database import Database
from sixfold.settings import InvalidSetting
from sixfold.store.admin import DatabaseAdmin, Loader
from sixfold.store.archive import TableReader
from sixfold.store.sqlite.admin import SqliteAdmin, SqliteLoader, SqliteSnapshot
from sixfold.store.sqlite.database import SqliteDatabase


def open_database(url: str, file: Path, clock: Clock | None = None) -> Database:
    """The database at `url`, or in `file`, brought to this program's schema.

    PostgreSQL is asked when it is first used. Raises `InvalidSetting` without the extra `postgres`.
    """
    if is_postgres(url):
        return _postgres("database").PostgresDatabase(url, clock=clock)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return SqliteDatabase(file, clock=clock)


def open_snapshot(url: str, file: Path) -> AbstractContextManager[TableReader]:
    """Every table as it stands now, for a backup."""
    return _postgres("admin").PostgresSnapshot(url) if is_postgres(url) else SqliteSnapshot(file)


def open_loader(url: str, file: Path) -> Loader:
    """A new database that a backup fills."""
    return _postgres("admin").PostgresLoader(url) if is_postgres(url) else SqliteLoader(file)


def open_keeper(url: str, file: Path) -> DatabaseAdmin:
    """Whoever looks after the schema and the health of a database that no server needs to run on."""
    return _postgres("admin").PostgresAdmin(url) if is_postgres(url) else SqliteAdmin(file)


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL."""
    return url.startswith(("postgres://", "postgresql://"))


def _postgres(module: str) -> Any:
    try:
        return importlib.import_module(f"sixfold.store.postgres.{module}")
    except ModuleNotFoundError as error:
        raise InvalidSetting("postgresql:// needs the extra: pip install 'sixfold[postgres]'") from error
