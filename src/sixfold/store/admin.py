"""What the command line needs of a database besides its transactions: its health, its schema, its filling."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sixfold.core.database import Transaction
from sixfold.store.archive import TableReader, TableWriter

T_co = TypeVar("T_co", covariant=True)


class InvalidDatabase(Exception):
    """What lies there is no database of this program, or cannot be read; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class DatabaseHealth:
    """A database as it is: its schema, and what is wrong with its pages and references."""

    schema: int
    faults: tuple[str, ...] = ()


class DatabaseAdmin(Protocol):
    """Looks after a database, without bringing it to this program's schema unasked."""

    dialect: str

    @property
    def place(self) -> str:
        """Where it lies, for people; never with a password."""
        ...

    def schema(self) -> int | None:
        """The number of its schema; None where Sixfold has never been."""
        ...

    def migrate(self, target: int) -> tuple[int, int]:
        """Bring it to a schema, forward or back; gives (before, after)."""
        ...

    def health(self) -> DatabaseHealth:
        """Look at it closely; raises `InvalidDatabase`."""
        ...


class LoadReport(TableWriter, Protocol):
    """A database that a backup has filled, seen by nobody before the loader is left without an error."""

    def snapshot(self) -> AbstractContextManager[TableReader]:
        """What was loaded, to compare it with the backup."""
        ...

    def upgrade(self) -> tuple[int, int]:
        """Bring the schema to this program's; gives (before, after)."""
        ...

    def read(self, transaction: Transaction[T_co]) -> T_co:
        """Run a reading transaction on it; for after `upgrade`."""
        ...


Loader = AbstractContextManager[LoadReport]
