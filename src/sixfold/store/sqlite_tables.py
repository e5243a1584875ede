"""SQLite's side of a backup: all tables of one snapshot, and an empty file that takes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from sixfold.store import sqlite
from sixfold.store.archive import Damaged, Row

_FETCH = 200


class SqliteSnapshot:
    """A `TableReader`: everything as it stood when the `with` began, while others go on writing."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite.connect(str(path))
        self._connection.row_factory = None

    def __enter__(self) -> SqliteSnapshot:
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the snapshot is of here and now
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def schema(self) -> int:
        """The number of its schema."""
        return sqlite.version(self._connection)

    def tables(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Names and columns; a table comes after those that it refers to."""
        found = columns(self._connection)
        return [(name, found[name]) for name in _in_order(self._connection, found)]

    def rows(self, table: str) -> Iterator[Row]:
        """Every row in the order of the primary key."""
        found = columns(self._connection)[table]
        order = _primary_key(self._connection, table) or ("rowid",)
        cursor = self._connection.execute(
            f"SELECT {_names(found)} FROM {_name(table)} ORDER BY {_names(order)}"  # noqa: S608 - our own names
        )
        while batch := cursor.fetchmany(_FETCH):
            yield from batch

    def blobs(self) -> Iterator[tuple[str, int | None]]:
        """Every key that a named file points to, with the time at which its last name expires."""
        cursor = self._connection.execute(
            "SELECT blob, CASE WHEN COUNT(*) = COUNT(expires_at) THEN MAX(expires_at) END AS until "
            "FROM media GROUP BY blob ORDER BY until IS NULL, until, blob"
        )
        while batch := cursor.fetchmany(_FETCH):
            yield from batch


class SqliteLoader:
    """A `TableWriter` on a new file."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite.connect(str(path))

    def __enter__(self) -> SqliteLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def begin(self, schema: int) -> Mapping[str, tuple[str, ...]]:
        """Make the schema of this number, and take out the rows that migrations put in."""
        sqlite.migrate(self._connection, schema)
        found = columns(self._connection)
        self._connection.execute("BEGIN IMMEDIATE")
        for table in reversed(_in_order(self._connection, found)):
            self._connection.execute(f"DELETE FROM {_name(table)}")  # noqa: S608 - our own names
        return found

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Take a table's rows; raises `Damaged` for one that the schema refuses."""
        marks = ", ".join("?" * len(columns))
        try:
            self._connection.executemany(
                f"INSERT INTO {_name(table)} ({_names(columns)}) VALUES ({marks})",  # noqa: S608 - our own names
                rows,
            )
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise Damaged(f"a row of {table} does not fit its schema ({error})") from error

    def commit(self) -> None:
        """Keep what was loaded, all in the one file."""
        self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def upgrade(self) -> tuple[int, int]:
        """Bring the schema to this program's; gives (before, after)."""
        return sqlite.migrate(self._connection)


def columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Every ordinary table with its columns; those that an index or a search keeps for itself are none."""
    listed = connection.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    names = sorted(str(row[0]) for row in listed if not str(row[0]).startswith("sqlite_"))
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
    """The tables, each after those that its foreign keys name."""
    waiting = {
        name: {
            str(row[0])
            for row in connection.execute('SELECT "table" FROM pragma_foreign_key_list(?)', (name,))
        }
        - {name}
        for name in tables
    }
    ordered: list[str] = []
    while waiting:
        free = sorted(name for name, needs in waiting.items() if not needs & waiting.keys())
        if not free:
            raise ValueError("tables refer to each other in a circle")
        ordered += free
        for name in free:
            del waiting[name]
    return ordered


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _names(texts: Iterable[str]) -> str:
    return ", ".join(map(_name, texts))
