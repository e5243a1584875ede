"""Database access for commands: each opens the database for one transaction and closes it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any, TypeVar

from sixfold import settings
from sixfold.app import storage
from sixfold.cli import server_lock
from sixfold.cli.terminal import CommandError
from sixfold.core.database import Database, Transaction
from sixfold.settings import Settings
from sixfold.store.admin import InvalidDatabase
from sixfold.store.sql import SchemaMismatch

T = TypeVar("T")
# The umask for files in the data folder: only the owner may read them.
PRIVATE = 0o077


def settings_of(arguments: argparse.Namespace, *, with_keys: bool = False, **overrides: Any) -> Settings:
    """Return the settings for a command, with `--data-dir` applied.

    By default, the variables of the server's `api_key_env` may be missing: a command calls no model server.
    """
    return settings.load(with_keys=with_keys, data_dir=arguments.data_dir, **overrides)


def require_data(server_settings: Settings) -> None:
    """Raise `CommandError` if the data folder does not contain a database."""
    with understood():
        admin = storage.open_admin(server_settings)
        exists = admin.schema() is not None
    if not exists and server_settings.on_postgres:
        raise CommandError(
            f"There is no Sixfold data in {admin.place}: check SIXFOLD_DATABASE_URL, "
            "or start `sixfold serve` with it first"
        )
    if not exists:
        raise CommandError(
            f"There is no Sixfold data in {admin.place}: set --data-dir to its folder, "
            "or start `sixfold serve` there first"
        )


def write(server_settings: Settings, transaction: Transaction[T], *, make: bool = False) -> T:
    """Run a read-write transaction; `make` creates the database if it does not exist."""
    require_database_of_server(server_settings)
    if not make:
        require_data(server_settings)
    return asyncio.run(_transact(server_settings, transaction, writing=True))


def read(server_settings: Settings, transaction: Transaction[T]) -> T:
    """Run a read-only transaction."""
    require_database_of_server(server_settings)
    require_data(server_settings)
    return asyncio.run(_transact(server_settings, transaction, writing=False))


def require_database_of_server(server_settings: Settings) -> None:
    """Raise `CommandError` if a server runs on the data folder with another kind of database.

    Otherwise the command would, for example, create an account that the server does not know.
    """
    server = server_lock.running(server_settings.data_dir)
    if server is None or server.on_postgres in (None, server_settings.on_postgres):
        return
    place, remedy = ("PostgreSQL", "set") if server.on_postgres else ("SQLite", "do not set")
    raise CommandError(
        f"The server of {server_settings.data_dir} uses {place}: {remedy} SIXFOLD_DATABASE_URL for this "
        "command, as for the server"
    )


async def _transact(server_settings: Settings, transaction: Transaction[T], *, writing: bool) -> T:
    os.umask(PRIVATE)
    with understood():
        database: Database = storage.open_database(server_settings)
        try:
            return await (database.write(transaction) if writing else database.read(transaction))
        finally:
            await database.close()


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Convert database errors in the block into `CommandError`."""
    try:
        yield
    except SchemaMismatch as mismatch:
        raise CommandError(str(mismatch)) from mismatch
    except (sqlite3.Error, InvalidDatabase) as error:
        raise CommandError(
            f"The database cannot be used ({error}): run `sixfold doctor` for details"
        ) from error
