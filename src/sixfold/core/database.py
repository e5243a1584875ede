"""The Database port: transactions as generators that yield named queries.

A transaction is a generator function in `core`. It yields a `Query` and receives its rows. Its return value
is the result of the transaction, and an exception rolls the transaction back. It does not hold a connection
or await, so the same function runs on SQLite's writer thread, many per commit, and on a PostgreSQL
connection. The SQL of each query is in `store/sql`.

The time of a transaction (epoch µs by the database's clock) is that of its start, regardless of its duration
and of the transactions that share its commit. Therefore all of its writes around midnight belong to the same
day.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

Row = Mapping[str, Any]
Rows = Sequence[Row]
Value = str | int | float | bytes | None
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class Query(msgspec.Struct, frozen=True):
    """A named query and its parameters. `now`, the transaction's time, is always bound.

    If `each` is set, the statement runs for each of these parameter sets and returns one row with the total
    number `changed`. If `parts` is set, the query has no statement: the parts, which use `each`, run in
    order, and each part must change exactly `expected` rows (see `finish`). `sums` names the parameters that
    a database may add up across entries of `each` whose other parameters are equal.
    """

    name: str
    params: Mapping[str, Value]
    each: Sequence[Mapping[str, Value]] | None = None
    parts: Sequence[Query] = ()
    expected: int | None = None
    sums: Sequence[str] = ()

    def check(self, changed: int) -> None:
        """Raise `ChangeRefused` if the number of changed rows is not the expected one."""
        if self.expected not in (None, changed):
            raise ChangeRefused(self.name)

    @property
    def is_change(self) -> bool:
        """Whether the query returns numbers of changed rows instead of rows."""
        return self.each is not None or bool(self.parts)


Transaction = Generator[Query, Rows, T]


def to_struct(kind: type[S], row: Row, **values: Any) -> S:
    """Return a struct whose fields are the columns of a row with their names, except those in `values`."""
    return kind(**{name: row[name] for name in kind.__struct_fields__ if name not in values}, **values)


def encode_json(value: object) -> str:
    """Encode a value, such as a list of ids, as JSON for a query parameter."""
    return msgspec.json.encode(value).decode()


class TransactionConflict(Exception):
    """A write violated a uniqueness or check constraint, which the message names."""


class ChangeRefused(Exception):
    """A part of a query changed an unexpected number of rows; the message is the part's name."""


class Database(Protocol):
    """A database; the implementations for SQLite and PostgreSQL pass the same contract tests."""

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Run `transaction` atomically and return its value after the commit.

        If `durable` is False, the commit survives the end of the process but may be lost in a power failure.
        Use this for claims and heartbeats, which a restart repairs.
        """
        ...

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True, in_thread: bool = False) -> T:
        """Run a read-only `transaction` on one snapshot.

        If `snapshot` is False, the statements may see different moments, which saves two round trips to
        PostgreSQL. Use this for a transaction with one statement. If `in_thread` is True, the transaction
        does not block the event loop. Use this for reports on any number of rows, and for large rows.
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

    PostgreSQL runs them in one round trip, also those of several transactions. A transaction that begins with
    these queries must end with them, and runs concurrently with transactions of other servers. Therefore the
    queries may only insert rows, add to sums, or change rows under a condition in the statement, and all
    transactions must change shared rows in the same order. Raises `ChangeRefused`.
    """
    parts = [query for query in queries if query.each]
    if not parts:
        return (yield from now())
    rows = yield Query("", {}, None, parts)
    return int(rows[0]["now"])


def many(name: str, /, **params: Value) -> Transaction[Rows]:
    return (yield Query(name, params))


def after(check: Transaction[None], transaction: Transaction[T]) -> Transaction[T]:
    """Return a transaction that makes a check first, which raises an error if it fails."""
    yield from check
    return (yield from transaction)
