"""The Database port: transactions as generators that ask for named queries.

A transaction is a plain generator function in core. It yields a `Query` and is sent the rows; what
it returns is the transaction's value, and an exception rolls it back. It holds no connection and
awaits nothing, so the same function runs on SQLite's writer thread, many to one commit, and
on a PostgreSQL connection. The SQL behind each name lives in `store/sql`.

A transaction has one moment (epoch µs by the database's clock), however long it takes and whichever
others share its commit: that of its turn among them. So what it writes at midnight is of one day.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Row = Mapping[str, Any]
Rows = Sequence[Row]
Value = str | int | float | bytes | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """One named query and its parameters. `now` is bound for it: the moment of its transaction.

    With `each` it changes rows for each of those, and is answered by one row: how many `changed`.
    """

    name: str
    params: Mapping[str, Value]
    each: Sequence[Mapping[str, Value]] | None = None


Transaction = Generator[Query, Rows, T]


class TransactionConflict(Exception):
    """A write met a uniqueness or check constraint; the name of what it broke is the text."""


class Database(Protocol):
    """One store, several backs, one contract suite."""

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Run `transaction` atomically and return its value once it is committed.

        With `durable=False` the commit survives a killed process but may be lost with the
        machine's power: for claims and heartbeats, which a restart repairs anyway.
        """
        ...

    async def read(self, transaction: Transaction[T]) -> T:
        """Run `transaction`, which only reads, on one snapshot."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of the files or connections. Idempotent."""
        ...


def one(name: str, /, **params: Value) -> Transaction[Row | None]:
    """The first row of one query, or None."""
    rows = yield Query(name, params)
    return rows[0] if rows else None


def now() -> Transaction[int]:
    """The transaction's moment by the database's clock, in epoch µs."""
    rows = yield Query("clock", {})
    return int(rows[0]["now"])


def many(name: str, /, **params: Value) -> Transaction[Rows]:
    """All rows of one query."""
    return (yield Query(name, params))
