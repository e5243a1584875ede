"""Pool of read-only PostgreSQL connections."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from sixfold.core.clock import Clock
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Query, Row, Transaction
from sixfold.store.postgres import connection as connections
from sixfold.store.postgres.binding import PostgresBinder
from sixfold.store.postgres.connection import GONE, PATIENCE_SECONDS, PostgresConnection
from sixfold.store.sql import SqlStatement, turns

T = TypeVar("T")
Begin = Callable[[], Awaitable[PostgresConnection]]
Fetch = Callable[[str, Sequence[Any]], Awaitable[Sequence[Row]]]

_MAX_CONNECTIONS = 8
_KEPT_CONNECTIONS = 2
IDLE_SECONDS = 30


class ReadRunner(msgspec.Struct, frozen=True):
    """Runs read transactions; the caller passes the function that fetches the rows of a statement.

    If `in_thread` is True, the code of the transaction runs in a thread.
    """

    queries: Mapping[str, SqlStatement]
    bind: PostgresBinder
    clock: Clock | None = None
    in_thread: bool = False

    async def run(self, fetch: Fetch, transaction: Transaction[T]) -> T:
        moment = {} if self.clock is None else {"now": self.clock()}
        query, value = await self._advance(transaction, None)
        while query is not None:
            statement, rows = self.queries[query.name], list[Row]()
            for params in turns(query):
                values = {**params, **moment} if statement.needs_now else params
                prepared = self.bind(statement.sql, values)
                rows += await fetch(prepared.text, prepared.arguments(values))
            query, value = await self._advance(transaction, rows)
        return cast("T", value)

    async def _advance(
        self, transaction: Transaction[T], rows: list[Row] | None
    ) -> tuple[Query | None, T | None]:
        if self.in_thread:
            return await PARSER.run(_next, transaction, rows)
        return _next(transaction, rows)


def _next(transaction: Transaction[T], rows: list[Row] | None) -> tuple[Query | None, T | None]:
    """Return the next query of a transaction, or None and its value after its end."""
    try:
        return (next(transaction) if rows is None else transaction.send(rows)), None
    except StopIteration as end:
        return None, end.value


class Snapshot:
    """A read-only transaction on one connection, with a consistent snapshot of the database."""

    def __init__(self, connection: PostgresConnection, reopen: Begin | None = None) -> None:
        self.connection = connection
        self._reopen = reopen
        self._has_read = False

    async def fetch(self, text: str, arguments: Sequence[Any]) -> Sequence[Row]:
        try:
            return await self.connection.fetch(text, *arguments)
        except connections.Migrated:
            if self._has_read:
                raise
            # Another server has migrated since it was prepared; a new transaction prepares it again.
            await self.connection.execute("ROLLBACK; BEGIN")
            return await self.connection.fetch(text, *arguments)
        except GONE:
            if self._reopen is None or self._has_read or not self.connection.is_closed():
                raise
            # The session ended before the first statement, so another session can still provide a consistent
            # snapshot.
            self.connection.terminate()
            self.connection = await self._reopen()
            return await self.connection.fetch(text, *arguments)
        finally:
            self._has_read = True


class _IdleConnection(NamedTuple):
    connection: PostgresConnection
    since: float


class ReaderPool:
    """Read-only connections; the one used last is reused first.

    Of the connections that were idle for `IDLE_SECONDS`, `_KEPT_CONNECTIONS` remain open.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[_IdleConnection] = []
        self._closed = False
        self._slots = asyncio.Semaphore(_MAX_CONNECTIONS)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        """Open a read-only transaction with a consistent snapshot of the database."""
        async with self._slots:
            opened = Snapshot(await self._begin(), self._begin)
            try:
                yield opened
                await opened.connection.execute("COMMIT")
            except BaseException as error:
                opened.connection.terminate()
                if isinstance(
                    error, connections.Migrated
                ):  # the other connections have prepared as old statements
                    await self._close_idle()
                raise
            await self._release(opened.connection)

    async def fetch(self, text: str, arguments: Sequence[Any]) -> Sequence[Row]:
        """Return the rows of a statement that runs as a separate transaction."""
        async with self._slots:
            while True:
                is_new = not self._idle
                connection = await self._connect() if is_new else self._idle.pop().connection
                try:
                    rows = await connection.fetch(text, *arguments)
                except connections.Migrated:
                    connection.terminate()
                    await self._close_idle()
                    if is_new:
                        raise
                except GONE:
                    was_closed = connection.is_closed()
                    connection.terminate()
                    if is_new or not was_closed:  # else the database server was restarted since its last use
                        raise
                except BaseException:
                    connection.terminate()
                    raise
                else:
                    await self._release(connection)
                    return rows

    async def close(self) -> None:
        """Close the idle connections; those in use are closed when they are released."""
        self._closed = True
        await self._close_idle()

    async def _connect(self) -> PostgresConnection:
        return await connections.connect(self._url, **connections.READ_ONLY)

    async def _begin(self) -> PostgresConnection:
        while self._idle:
            with contextlib.suppress(*GONE):  # the database server was restarted since its last use
                return await _begun(self._idle.pop().connection)
        return await _begun(await self._connect())

    async def _release(self, connection: PostgresConnection) -> None:
        moment = time.monotonic()
        self._idle.append(_IdleConnection(connection, moment))
        if self._closed:
            await self._close_idle()
        elif len(self._idle) > _KEPT_CONNECTIONS and self._idle[0].since < moment - IDLE_SECONDS:
            await connections.close(self._idle.pop(0).connection)

    async def _close_idle(self) -> None:
        while self._idle:
            await connections.close(self._idle.pop().connection)


async def _begun(connection: PostgresConnection) -> PostgresConnection:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.execute("BEGIN")
    except BaseException:
        connection.terminate()
        raise
    return connection
