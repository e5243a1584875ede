"""The Database port: transactions as generators that yield named queries.

A transaction is a generator function in `core`. It yields a `Query` and receives its rows; its return value
is that of the transaction, and an exception rolls it back. It holds no connection and does not await, so the
same function runs on SQLite's writer thread, many per commit, and on a PostgreSQL connection. The SQL of each
query is in `store/sql`.

A transaction has one time (epoch µs by the database's clock), that of its start, however long it takes and
whichever transactions share its commit. So all that it writes around midnight belongs to one day.
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
    """A named query and its parameters. `now`, the transaction's time, is always bound.

    With `each`, the statement runs for each of these parameters and returns one row with the total number
    `changed`. With `parts`, it has no statement: the parts, which have `each`, run in order, and each must
    change the number of rows that it has `expected` (see `finish`). `sums` names the parameters that a
    database may add up for sets of `each` that agree in all others.
    """

    name: str
    params: Mapping[str, Value]
    each: Sequence[Mapping[str, Value]] | None = None
    parts: Sequence[Query] = ()
    expected: int | None = None
    sums: Sequence[str] = ()

    def check(self, changed: int) -> None:
        """Raise `ChangeRefused` if it has not changed the number of rows that is expected."""
        if self.expected not in (None, changed):
            raise ChangeRefused(self.name)

    @property
    def is_change(self) -> bool:
        """Whether it returns numbers of changed rows instead of rows."""
        return self.each is not None or bool(self.parts)


Transaction = Generator[Query, Rows, T]


class TransactionConflict(Exception):
    """A write violated a uniqueness or check constraint, which the message names."""


class ChangeRefused(Exception):
    """A part of a query changed another number of rows than expected; the message is the part's name."""


class Database(Protocol):
    """A database; SQLite and PostgreSQL pass one contract suite."""

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Run `transaction` atomically and return its value after the commit.

        With `durable=False`, the commit survives the process but may be lost in a power failure. This is for
        claims and heartbeats, which a restart repairs anyway.
        """
        ...

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True) -> T:
        """Run a read-only `transaction` on one snapshot.

        With `snapshot=False` its statements may see different moments, which saves two round trips to
        PostgreSQL: for a transaction of one statement.
        """
        ...

    async def close(self) -> None:
        """Finish accepted transactions and close files or connections. Idempotent."""
        ...


def one(name: str, /, **params: Value) -> Transaction[Row | None]:
    """Return the first row of a query, or None."""
    rows = yield Query(name, params)
    return rows[0] if rows else None


def now() -> Transaction[int]:
    """Return the transaction's time by the database's clock, in epoch µs."""
    rows = yield Query("clock", {})
    return int(rows[0]["now"])


def finish(*queries: Query) -> Transaction[int]:
    """Run queries with `each` and return the transaction's time in epoch µs.

    PostgreSQL runs them in one round trip, also those of several transactions. If a transaction begins with
    them, it must end with them, and it runs beside the transactions of other servers. So they may only insert
    rows, add to sums, or change rows by a condition in the statement, and all transactions have to change
    rows that others change in the same order. Raises `ChangeRefused`.
    """
    parts = [query for query in queries if query.each]
    if not parts:
        return (yield from now())
    rows = yield Query("", {}, None, parts)
    return int(rows[0]["now"])


def many(name: str, /, **params: Value) -> Transaction[Rows]:
    return (yield Query(name, params))
