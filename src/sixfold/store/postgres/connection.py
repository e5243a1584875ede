"""Connections to PostgreSQL: opening, error handling and migrations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none

from sixfold import errors
from sixfold.core.database import Row
from sixfold.store import sql

GONE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
Migrated: type[asyncpg.PostgresError] = asyncpg.InvalidCachedStatementError  # another server migrated
_EPOCH_US = "(extract(epoch FROM {}()) * 1000000)::bigint"
SESSION_ID = "SELECT pg_backend_pid() AS id"
CLOCK = _EPOCH_US.format("statement_timestamp")
BEGUN = _EPOCH_US.format("transaction_timestamp")

# Advisory locks. WRITING is exclusive for groups of writes and shared for transactions that run beside those
# of other servers; of those, one at a time changes rates. The locks on server names have the class 6.
WRITING, MIGRATING, RATING = 6_000_001, 6_000_002, 6_000_003

PATIENCE_SECONDS = 120.0  # timeout of a database server that does not respond
_MIGRATION_TRIES = 10
_CONNECT_SECONDS = 10
_CLOSE_SECONDS = 5.0
READ_ONLY = {"default_transaction_isolation": "repeatable read", "default_transaction_read_only": "on"}
_SESSION = {
    "application_name": "sixfold",
    "timezone": "UTC",
    "jit": "off",  # every query is short
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "10s",  # a hanging client releases its locks
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class DatabaseUnreachable(errors.StoreFailed):
    """The database cannot be reached."""


class PostgresConnection(Protocol):
    """The methods of an asyncpg connection that this package uses."""

    async def execute(self, query: str) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[Row]: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def prepare(self, query: str) -> Any: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str]
    ) -> str: ...
    def cursor(self, query: str) -> Any: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def get_server_pid(self) -> int: ...
    def is_closed(self) -> bool: ...
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 - asyncpg's parameter
    def terminate(self) -> None: ...


async def connect(url: str, **session: str) -> PostgresConnection:
    """Open a connection with this store's settings and those in `session`; raises `DatabaseUnreachable`."""
    open_connection: Any = cast("Any", asyncpg).connect
    settings = "; ".join(f"SET {name} = '{value}'" for name, value in {**_SESSION, **session}.items())
    try:
        connection = await open_connection(
            url, timeout=_CONNECT_SECONDS, statement_cache_size=1000, max_cached_statement_lifetime=0
        )
        try:
            # These are not sent as connection parameters, most of which PgBouncer rejects.
            await connection.execute(settings)
        except BaseException:
            connection.terminate()
            raise
    except (*GONE, ValueError) as error:
        raise DatabaseUnreachable(
            f"The database {place(url)} cannot be reached ({_reason(error)})"
        ) from error
    return cast("PostgresConnection", connection)


def require_sessions(url: str, first: int, second: int) -> None:
    """Raise `DatabaseUnreachable` if two open connections have the same session of the database.

    A pooler in transaction mode gives both of them the session that is free: notifications, the lock that
    shows that a server is alive, and settings would be lost or belong to another server.
    """
    if first == second:
        raise DatabaseUnreachable(
            f"{place(url)} is a connection pooler in transaction or statement mode: set pool_mode = session "
            "for Sixfold, or set SIXFOLD_DATABASE_URL to the database itself"
        )


async def close(connection: PostgresConnection | None) -> None:
    """Close a connection in any state."""
    if connection is not None and not connection.is_closed():
        with contextlib.suppress(*GONE):
            await connection.close(timeout=_CLOSE_SECONDS)


def place(url: str) -> str:
    """Return a URL without its user and password, for messages."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "of SIXFOLD_DATABASE_URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no response within {_CONNECT_SECONDS} seconds"
    message = error.strerror if isinstance(error, OSError) else str(error)
    return " ".join((message or type(error).__name__).split())


async def version(connection: PostgresConnection) -> int:
    """Return the schema version of a database, or 0 if it has no Sixfold schema."""
    if await connection.fetchval("SELECT to_regclass('schema_version')") is None:
        return 0
    return int(await connection.fetchval("SELECT number FROM schema_version"))


async def migrate(connection: PostgresConnection, target: int | None = None) -> tuple[int, int]:
    """Migrate the schema to `target` (default: the newest); return the versions before and after.

    Runs in one transaction; servers that start at the same time wait for the one that migrates. Raises
    `SchemaMismatch`.
    """
    before = await version(connection)
    if not sql.plan("postgres", before, target):
        return before, before
    for _ in range(_MIGRATION_TRIES - 1):
        try:
            return await _migrate_once(connection, target)
        except asyncpg.DeadlockDetectedError:
            continue  # a server of the earlier version was writing to the same tables
    return await _migrate_once(connection, target)


async def _migrate_once(connection: PostgresConnection, target: int | None) -> tuple[int, int]:
    await connection.execute("BEGIN")
    try:
        versions = await apply(connection, target)
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return versions


async def apply(connection: PostgresConnection, target: int | None = None) -> tuple[int, int]:
    """Migrate as `migrate` does, inside the caller's transaction."""
    await connection.fetch("SELECT pg_advisory_xact_lock($1)", MIGRATING)
    before = after = await version(connection)
    await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (number BIGINT NOT NULL)")
    for script, number in sql.plan("postgres", before, target):
        await connection.execute(script)
        after = number
    await connection.fetch("DELETE FROM schema_version")
    await connection.fetch("INSERT INTO schema_version VALUES ($1)", after)
    return before, after
