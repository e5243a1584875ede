"""Backup, loading and administration of SQLite databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from sixfold.core.clock import steady_clock
from sixfold.core.database import Rows, Transaction
from sixfold.store import sql
from sixfold.store.admin import DatabaseHealth, InvalidDatabase, references_first
from sixfold.store.archive import ArchiveDamaged, Row
from sixfold.store.sqlite import database as sqlite

T = TypeVar("T")

_FETCH = 200
_FAULTS = 20
_BLOBS = """
SELECT blob, CASE WHEN COUNT(*) = COUNT(expires_at) AND MIN(expires_at) >= 0 THEN MAX(expires_at) END AS until
FROM media GROUP BY blob ORDER BY until IS NULL, until, blob"""
_SEGMENTS = "SELECT blob, NULL FROM archive_segment WHERE blob IS NOT NULL ORDER BY number"


class SqliteSnapshot:
    """A `TableReader` of a snapshot, taken when the `with` block is entered."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite.connect(str(path))
        self._connection.row_factory = None

    def __enter__(self) -> SqliteSnapshot:
        self._connection.execute("BEGIN")
        self._connection.execute(
            "SELECT 1 FROM sqlite_master"
        ).fetchone()  # the first read fixes the snapshot
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def schema(self) -> int:
        return sqlite.version(self._connection)

    def tables(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        tables = columns(self._connection)
        return [(name, tables[name]) for name in _in_order(self._connection, tables)]

    def rows(self, table: str) -> Iterator[Row]:
        """Yield all rows in the order of the primary key."""
        names = columns(self._connection)[table]
        order = _primary_key(self._connection, table) or ("rowid",)
        cursor = self._connection.execute(
            f"SELECT {_names(names)} FROM {_name(table)} ORDER BY {_names(order)}"  # noqa: S608 - our own names
        )
        while batch := cursor.fetchmany(_FETCH):
            yield from batch

    def blobs(self) -> Iterator[tuple[str, int | None]]:
        """Yield each blob key with the time, in epoch µs, at which its last name expires."""
        # Schemas before 56 have no archive.
        has_archive = "archive_segment" in columns(self._connection)
        for query in (_BLOBS, _SEGMENTS) if has_archive else (_BLOBS,):
            cursor = self._connection.execute(query)
            while batch := cursor.fetchmany(_FETCH):
                yield from batch


class SqliteCopy(SqliteSnapshot):
    """A snapshot that is copied to a file first, so that the write-ahead log can shrink while rows are read.

    The copy is made in one step, because a write between two steps would restart it.
    """

    def __init__(self, path: Path, copy: Path) -> None:
        super().__init__(path)
        self._copy = copy

    def __enter__(self) -> SqliteSnapshot:
        # A killed backup leaves its copy behind.
        self._remove()
        try:
            with contextlib.closing(sqlite3.connect(str(self._copy))) as target:
                # The copy is not kept, so it need not survive a power failure.
                target.execute("PRAGMA synchronous=OFF")
                target.execute("PRAGMA journal_mode=OFF")
                self._connection.backup(target)
            self._connection.close()
            super().__init__(self._copy)
            return super().__enter__()
        except BaseException:
            self._connection.close()
            self._remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._remove()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._copy.with_name(f"{self._copy.name}{suffix}").unlink(missing_ok=True)


class SqliteLoader:
    """A `TableWriter` that writes a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite.connect(str(path))

    def __enter__(self) -> SqliteLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def begin(self, schema: int) -> Mapping[str, tuple[str, ...]]:
        """Create the schema of this version, and delete the rows that migrations insert."""
        sqlite.migrate(self._connection, schema)
        tables = columns(self._connection)
        self._connection.execute("BEGIN IMMEDIATE")
        for table in reversed(_in_order(self._connection, tables)):
            self._connection.execute(f"DELETE FROM {_name(table)}")  # noqa: S608 - our own names
        return tables

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        try:
            self._connection.executemany(
                f"INSERT INTO {_name(table)} ({_names(columns)}) VALUES ({marks})",  # noqa: S608 - our own names
                rows,
            )
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise ArchiveDamaged(f"a row of {table} does not fit its schema ({error})") from error

    def commit(self) -> None:
        """Commit the loaded rows and merge the write-ahead log into the file."""
        self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def stored(self, row: Row) -> Row:
        return row

    def snapshot(self) -> SqliteSnapshot:
        """Open a reader of the committed rows."""
        return SqliteSnapshot(self._path)

    def upgrade(self) -> tuple[int, int]:
        return sqlite.migrate(self._connection)

    def read(self, transaction: Transaction[T]) -> T:
        """Run a read-only transaction on the loaded rows."""
        queries = sql.queries("sqlite")
        now = {"now": steady_clock()()}
        try:
            query = next(transaction)
            while True:
                cursor = self._connection.execute(queries[query.name].sql, {**sql.turns(query)[0], **now})
                query = transaction.send(cast("Rows", cursor.fetchall()))
        except StopIteration as end:
            return end.value


class SqliteAdmin:
    """Administers a database file without a server."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        """The folder of the file."""
        return str(self._path.parent)

    def schema(self) -> int | None:
        """Return the schema version, or None if the file does not exist."""
        if not self._path.exists():
            return None
        with self._open() as connection:
            return sqlite.version(connection)

    def bytes_used(self) -> int:
        """Return the size of the file and its write-ahead log in bytes."""
        log = self._path.with_name(f"{self._path.name}-wal")
        return sum(path.stat().st_size for path in (self._path, log) if path.exists())

    def row_count(self, table: str) -> int:
        """Return the number of rows of a table; 0 if the table does not exist."""
        with self._open() as connection:
            if table not in columns(connection):
                return 0
            return int(connection.execute(f"SELECT COUNT(*) FROM {_name(table)}").fetchone()[0])  # noqa: S608 - our own names

    def migrate(self, target: int) -> tuple[int, int]:
        with _translated_errors(), contextlib.closing(sqlite.connect(str(self._path))) as connection:
            return sqlite.migrate(connection, target)

    def health(self) -> DatabaseHealth:
        """Check all pages and references of the file; raises `InvalidDatabase`."""
        with self._open() as connection:
            schema = sqlite.version(connection)
            faults = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_FAULTS})")]
            dangling = connection.execute("PRAGMA foreign_key_check").fetchmany(_FAULTS)
        faults = [fault for fault in faults if fault != "ok"]
        faults += [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in dangling]
        return DatabaseHealth(schema, tuple(faults))

    @contextlib.contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        with _translated_errors():
            opened = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
            with contextlib.closing(opened) as connection:
                yield connection


@contextlib.contextmanager
def _translated_errors() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise InvalidDatabase(str(error)) from error


def columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return all tables with their columns, except the internal tables of indexes and search."""
    tables = connection.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    names = sorted(str(row[0]) for row in tables if not str(row[0]).startswith("sqlite_"))
    return {
        name: tuple(
            str(row[0])
            for row in connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (name,))
        )
        for name in names
    }


def _primary_key(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return tuple(str(row[0]) for row in rows)


def _in_order(connection: sqlite3.Connection, tables: Iterable[str]) -> list[str]:
    """Sort tables so that each comes after those that its foreign keys refer to."""
    references = 'SELECT "table" FROM pragma_foreign_key_list(?)'
    return references_first(
        {name: {str(row[0]) for row in connection.execute(references, (name,))} for name in tables}
    )


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _names(texts: Iterable[str]) -> str:
    return ", ".join(map(_name, texts))
