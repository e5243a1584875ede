"""Databases that the contract suite runs on; each backend adds one row."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from sixfold.core.clock import Clock
from sixfold.core.database import Database
from sixfold.store import factory as stores
from sixfold.store.admin import DatabaseAdmin
from sixfold.store.archive import TableReader, encode_row
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends
from tests.harness.cases import nightly_after

FILE = "sixfold.db"
Opener = Callable[[Path, Clock | None], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def running_database(
    backend: str | None, folder: Path, clock: Clock | None = None
) -> AsyncIterator[Database]:
    """Open the database of `folder` on `backend` or the suite's backend; its data survives reopening."""
    database = open_database(folder, clock, backend)
    try:
        yield database
    finally:
        await database.close()


def open_database(folder: Path, clock: Clock | None = None, backend: str | None = None) -> Database:
    url = backends.database_url(folder, backend)
    prepare(folder)
    return stores.open_database(url, folder / FILE, clock)


OPENERS: dict[str, Opener] = {name: partial(running_database, name) for name in backends.DATABASES}

BACKENDS = backends.EACH_DATABASE
# For slow tests whose statements run on PostgreSQL in faster tests as well.
POSTGRES_NIGHTLY = nightly_after(1, BACKENDS)


@functools.cache
def _migrated_file() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        sqlite.migrate(connection)
        return connection.serialize()
    finally:
        connection.close()


def prepare(folder: Path) -> None:
    """Copy a migrated SQLite file into a folder without a database: ten times as fast as migrating."""
    path = folder / FILE
    if not backends.database_url(folder) and not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_migrated_file())


def keeper(url: str, folder: Path) -> DatabaseAdmin:
    return stores.open_admin(url, folder / FILE)


def snapshot(url: str, folder: Path) -> AbstractContextManager[TableReader]:
    return stores.open_snapshot(url, folder / FILE)


def stored_bytes(url: str, folder: Path) -> bytes:
    """Return everything that the database stores on disk or reveals in a dump."""
    if not url:
        return b"".join(path.read_bytes() for path in sorted(folder.glob(f"{FILE}*")))
    with snapshot(url, folder) as reader:
        return b"".join(encode_row(row) for name, _ in reader.tables() for row in reader.rows(name))
