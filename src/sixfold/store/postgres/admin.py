"""Backup, loading and administration of PostgreSQL databases.

Commands use these classes synchronously, so each connection has an event loop in a separate thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar, cast

from sixfold import errors
from sixfold.core.database import Transaction
from sixfold.store import sql
from sixfold.store.admin import DatabaseHealth, InvalidDatabase, references_first
from sixfold.store.archive import ArchiveDamaged, Row, TableReader, without_nul
from sixfold.store.postgres import connection as connections
from sixfold.store.postgres.binding import PostgresBinder
from sixfold.store.postgres.connection import GONE, PostgresConnection
from sixfold.store.postgres.readers import ReadRunner, Snapshot

T = TypeVar("T")

_FETCH = 200
_OWN = "schema_version"
_COLUMNS = """
SELECT c.relname AS tab, a.attname AS col, a.atttypid = 'text'::regtype AS is_text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY c.relname COLLATE "C", a.attnum"""
_KEYS = """
SELECT c.relname AS tab, a.attname AS col
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(attnum, nr)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE i.indisprimary AND c.relnamespace = current_schema()::regnamespace ORDER BY c.relname, k.nr"""
_REFERENCES = """
SELECT c.relname AS tab, f.relname AS needs FROM pg_constraint r
JOIN pg_class c ON c.oid = r.conrelid JOIN pg_class f ON f.oid = r.confrelid
WHERE r.contype = 'f' AND c.relnamespace = current_schema()::regnamespace"""
# A table without statistics has the estimate -1; its rows are estimated from its size.
_ESTIMATE = """
SELECT CASE WHEN reltuples >= 0 THEN reltuples ELSE pg_relation_size(oid) / 100 END::bigint AS rows
FROM pg_class WHERE relname = $1 AND relnamespace = current_schema()::regnamespace AND relkind = 'r'"""
_BLOBS = """
SELECT blob, CASE WHEN COUNT(*) = COUNT(expires_at) AND MIN(expires_at) >= 0 THEN MAX(expires_at) END AS until
FROM media GROUP BY blob ORDER BY until NULLS LAST, blob COLLATE "C\""""
_SEGMENTS = "SELECT blob, NULL FROM archive_segment WHERE blob IS NOT NULL ORDER BY number"


class _Session:
    """A blocking interface to an asyncpg connection, whose event loop runs in a separate thread."""

    def __init__(self, url: str, **settings: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="postgres-session", daemon=True)
        self._thread.start()
        try:
            self.connection: PostgresConnection = self.run(connections.connect(url, **settings))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def fetch(self, query: str) -> list[Mapping[str, Any]]:
        return list(self.run(self.connection.fetch(query)))

    def close(self) -> None:
        """Close the connection and end the thread."""
        self.run(connections.close(self.connection))
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Tables:
    """A `TableReader` of the rows that are visible to a session."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._columns: dict[str, dict[str, bool]] = {}
        for row in session.fetch(_COLUMNS):
            if row["tab"] != _OWN:
                self._columns.setdefault(row["tab"], {})[row["col"]] = row["is_text"]

    @property
    def schema(self) -> int:
        return self._session.run(connections.version(self._session.connection))

    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return all tables with their columns, except generated columns."""
        return {name: tuple(columns) for name, columns in self._columns.items()}

    def tables(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        references: dict[str, set[str]] = {name: set() for name in self._columns}
        for row in self._session.fetch(_REFERENCES):
            references[row["tab"]].add(row["needs"])
        columns = self.columns()
        return [(name, columns[name]) for name in references_first(references)]

    def rows(self, table: str) -> Iterator[Row]:
        kinds = self._columns[table]
        keys = [row["col"] for row in self._session.fetch(_KEYS) if row["tab"] == table] or list(kinds)
        order = ", ".join(f'"{key}" COLLATE "C"' if kinds[key] else f'"{key}"' for key in keys)
        names = ", ".join(f'"{name}"' for name in kinds)
        return self._stream(f'SELECT {names} FROM "{table}" ORDER BY {order}')  # noqa: S608 - our own names

    def blobs(self) -> Iterator[tuple[str, int | None]]:
        """Yield each blob key with the time, in epoch µs, at which its last name expires."""
        # Schemas before 56 have no archive.
        queries = (_BLOBS, _SEGMENTS) if "archive_segment" in self._columns else (_BLOBS,)
        for query in queries:
            yield from cast("Iterator[tuple[str, int | None]]", self._stream(query))

    def _stream(self, query: str) -> Iterator[Row]:
        cursor = self._session.run(_open(self._session.connection, query))
        while batch := self._session.run(cursor.fetch(_FETCH)):
            yield from (tuple(record) for record in batch)


async def _open(connection: PostgresConnection, query: str) -> Any:
    return await connection.cursor(query)


class PostgresSnapshot:
    """A `TableReader` of a snapshot, taken when the `with` block is entered."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> TableReader:
        self._session = _Session(self._url, **connections.READ_ONLY)
        self._session.run(self._session.connection.execute("BEGIN"))
        return _Tables(self._session)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


class PostgresLoader:
    """A loader for an empty database, in one transaction that ends with the `with` block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._whole = False

    def __enter__(self) -> PostgresLoader:
        self._session = _Session(self._url)
        self._connection = self._session.connection
        self._session.run(
            self._connection.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._whole and error is None:
                self._session.run(self._connection.execute("COMMIT"))
        finally:
            self._session.close()

    def begin(self, schema: int) -> Mapping[str, tuple[str, ...]]:
        """Create the schema of this version, and delete the rows that migrations insert."""
        self._session.run(connections.apply(self._connection, schema))
        self._tables = _Tables(self._session)
        for table, _ in reversed(self._tables.tables()):
            self._session.run(self._connection.execute(f'DELETE FROM "{table}"'))  # noqa: S608 - our own names
        return self._tables.columns()

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        copied = self._connection.copy_records_to_table(
            table, records=map(self.stored, rows), columns=list(columns)
        )
        try:
            self._session.run(copied)
        except (*GONE, TypeError, ValueError, OverflowError) as error:
            if self._connection.is_closed():
                raise
            raise ArchiveDamaged(f"a row of {table} does not fit its schema ({error})") from error

    def commit(self) -> None:
        """Commit the loaded rows when the `with` block ends without an error."""
        self._whole = True

    def stored(self, row: Row) -> Row:
        return without_nul(row)

    def snapshot(self) -> AbstractContextManager[TableReader]:
        """Open a reader of the loaded rows."""
        return contextlib.nullcontext(self._tables)

    def upgrade(self) -> tuple[int, int]:
        return self._session.run(connections.apply(self._connection))

    def read(self, transaction: Transaction[T]) -> T:
        """Run a read-only transaction on the loaded rows."""
        return self._session.run(
            ReadRunner(sql.queries("postgres"), PostgresBinder()).run(
                Snapshot(self._connection).fetch, transaction
            )
        )


class PostgresAdmin:
    """Administers a database without a Sixfold server."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def place(self) -> str:
        """The host and name of the database."""
        return connections.place(self._url)

    def schema(self) -> int | None:
        """Return the schema version, or None if the database has no Sixfold schema."""
        with contextlib.closing(_Session(self._url)) as session:
            return session.run(connections.version(session.connection)) or None

    def bytes_used(self) -> int:
        """Return the size in bytes of all tables and indexes."""
        with contextlib.closing(_Session(self._url)) as session:
            size = session.run(session.connection.fetchval("SELECT pg_database_size(current_database())"))
            return int(size)

    def row_count(self, table: str) -> int:
        """Return the estimated number of rows of a table; 0 if the table does not exist."""
        with contextlib.closing(_Session(self._url)) as session:
            rows = session.run(session.connection.fetch(_ESTIMATE, table))
            return int(rows[0]["rows"]) if rows else 0

    def migrate(self, target: int) -> tuple[int, int]:
        with contextlib.closing(_Session(self._url)) as session:
            return session.run(connections.migrate(session.connection, target))

    def health(self) -> DatabaseHealth:
        """Return the schema version; raises `InvalidDatabase`.

        PostgreSQL itself checks references and pages.
        """
        try:
            return DatabaseHealth(self.schema() or 0)
        except (*GONE, errors.StoreFailed) as error:
            raise InvalidDatabase(str(error)) from error
