"""Connections to PostgreSQL: how they are opened, what may go wrong with them, and the schema behind them."""

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
Migrated: type[asyncpg.PostgresError] = asyncpg.InvalidCachedStatementError  # under a statement in use
_EPOCH_US = "(extract(epoch FROM {}()) * 1000000)::bigint"
CLOCK = _EPOCH_US.format("statement_timestamp")  # one for all its servers
BEGUN = _EPOCH_US.format("transaction_timestamp")  # by the same clock, when the transaction that asks began

# Advisory locks: one group of writes at a time, one migration at a time. Servers' names have the class 6.
WRITING, MIGRATING = 6_000_001, 6_000_002

PATIENCE_SECONDS = 120.0  # with a server that says nothing any more
_CONNECT_SECONDS = 10
_CLOSE_SECONDS = 5.0
READ_ONLY = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
}
_SESSION = {
    "application_name": "sixfold",
    "timezone": "UTC",
    "jit": "off",  # every query is short
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "10s",  # a client that stops in a transaction releases its locks
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class DatabaseUnreachable(errors.StoreFailed):
    """The database cannot be reached."""


class PostgresConnection(Protocol):
    """What is used of an asyncpg connection."""

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
    async def close(self, *, timeout: float) -> None: ...  # noqa: ASYNC109 - asyncpg's own word
    def terminate(self) -> None: ...


async def connect(url: str, **session: str) -> PostgresConnection:
    """A connection with this store's settings and `session`'s.

    Raises `DatabaseUnreachable` with one sentence.
    """
    open_connection: Any = cast("Any", asyncpg).connect
    try:
        opened = await open_connection(
            url,
            timeout=_CONNECT_SECONDS,
            statement_cache_size=1000,
            max_cached_statement_lifetime=0,
            server_settings={**_SESSION, **session},
        )
    except (*GONE, ValueError) as error:
        raise DatabaseUnreachable(
            f"The database {place(url)} cannot be reached ({_reason(error)})"
        ) from error
    return cast("PostgresConnection", opened)


async def close(connection: PostgresConnection | None) -> None:
    """Let a connection go, whatever state it is in."""
    if connection is not None and not connection.is_closed():
        with contextlib.suppress(*GONE):
            await connection.close(timeout=_CLOSE_SECONDS)


def place(url: str) -> str:
    """Where a URL points to, for people: without its user and password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "that SIXFOLD_DATABASE_URL names"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {_CONNECT_SECONDS} seconds"
    told = error.strerror if isinstance(error, OSError) else str(error)
    return " ".join((told or type(error).__name__).split())


async def version(connection: PostgresConnection) -> int:
    """The schema version of a database; 0 when Sixfold has not been here."""
    if await connection.fetchval("SELECT to_regclass('schema_version')") is None:
        return 0
    return int(await connection.fetchval("SELECT number FROM schema_version"))


async def migrate(connection: PostgresConnection, target: int | None = None) -> tuple[int, int]:
    """Bring the schema to `target` (default: the newest), forward or back; gives (before, after).

    All or nothing. Of servers that start at once one migrates, and the others wait and find it done.
    Raises `SchemaMismatch`.
    """
    before = await version(connection)
    if not sql.plan("postgres", before, target):
        return before, before
    await connection.execute("BEGIN")
    try:
        before, after = await apply(connection, target)
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return before, after


async def apply(connection: PostgresConnection, target: int | None = None) -> tuple[int, int]:
    """The same inside the caller's transaction."""
    await connection.fetch("SELECT pg_advisory_xact_lock($1)", MIGRATING)
    before = after = await version(connection)
    await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (number BIGINT NOT NULL)")
    for script, number in sql.plan("postgres", before, target):
        await connection.execute(script)
        after = number
    await connection.fetch("DELETE FROM schema_version")
    await connection.fetch("INSERT INTO schema_version VALUES ($1)", after)
    return before, after
