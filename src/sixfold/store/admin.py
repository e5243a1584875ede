"""Protocols for administering a database: schema, health check and loading of a backup."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from graphlib import TopologicalSorter
from typing import Protocol, TypeVar

import msgspec

from sixfold.core.database import Transaction
from sixfold.store.archive import Row, TableReader, TableWriter

T_co = TypeVar("T_co", covariant=True)


class InvalidDatabase(Exception):
    """The database cannot be read, or is not a Sixfold database; the message is one sentence."""


class DatabaseHealth(msgspec.Struct, frozen=True):
    """The schema version of a database, and the errors found in its pages and references."""

    schema: int
    faults: tuple[str, ...] = ()


class DatabaseAdmin(Protocol):
    """Administers a database; only `migrate` changes its schema."""

    dialect: str

    @property
    def place(self) -> str:
        """The location of the database, without a password, for display to the operator."""
        ...

    def schema(self) -> int | None:
        """Return the schema version, or None if the database has no Sixfold schema."""
        ...

    def bytes_used(self) -> int:
        """Return the size in bytes of all tables and indexes, including the write-ahead log of a file."""
        ...

    def row_count(self, table: str) -> int:
        """Return the number of rows of a table, possibly estimated; 0 if the table does not exist."""
        ...

    def migrate(self, target: int) -> tuple[int, int]:
        """Upgrade or downgrade to a schema version; return the versions before and after."""
        ...

    def health(self) -> DatabaseHealth:
        """Check pages and references; raises `InvalidDatabase`."""
        ...


def references_first(references: Mapping[str, set[str]]) -> list[str]:
    """Sort tables so that each comes after those that it references; raises `graphlib.CycleError`."""
    sorter = TopologicalSorter[str]()
    for table, needed in references.items():
        sorter.add(table, *(needed & references.keys() - {table}))
    sorter.prepare()
    ordered: list[str] = []
    while ready := sorted(sorter.get_ready()):
        ordered += ready
        sorter.done(*ready)
    return ordered


class DatabaseLoad(TableWriter, Protocol):
    """A database that is being loaded from a backup.

    Other sessions see the rows when the loader exits without an error.
    """

    def stored(self, row: Row) -> Row: ...

    def snapshot(self) -> AbstractContextManager[TableReader]:
        """Open a reader of the loaded rows, to compare them with the backup."""
        ...

    def upgrade(self) -> tuple[int, int]:
        """Upgrade to the newest schema; return the versions before and after."""
        ...

    def read(self, transaction: Transaction[T_co]) -> T_co:
        """Run a read-only transaction; call this after `upgrade`."""
        ...


Loader = AbstractContextManager[DatabaseLoad]
