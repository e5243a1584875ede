"""Reading PostgreSQL: connections that cannot write, each snapshot with one for itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from sixfold.core.clock import Clock
from sixfold.core.database import Row, Transaction, Value
from sixfold.store.postgres import connection as link
from sixfold.store.postgres.binding import PostgresBinder, PreparedStatement
from sixfold.store.postgres.connection import GONE, PATIENCE_SECONDS, PostgresConnection
from sixfold.store.sql import SqlStatement, turns

T = TypeVar("T")

_READERS = 8


@dataclass(frozen=True, slots=True)
class PooledRead:
    """How a transaction that only reads is driven, on whichever connection."""

    queries: Mapping[str, SqlStatement]
    bind: PostgresBinder
    clock: Clock | None = None

    async def drive(self, connection: PostgresConnection, transaction: Transaction[T]) -> T:
        """Its value."""
        fresh = True
        bound = {} if self.clock is None else {"now": self.clock()}
        try:
            query = next(transaction)
            while True:
                statement, rows = self.queries[query.name], list[Row]()
                for params in turns(query):
                    given = {**params, **bound} if statement.needs_now else params
                    prepared = self.bind(statement.sql, given)
                    if fresh:
                        rows += await _first(connection, prepared, given)
                    else:
                        rows += await connection.fetch(prepared.text, *prepared.arguments(given))
                    fresh = False
                query = transaction.send(rows)
        except StopIteration as end:
            return end.value


async def _first(
    connection: PostgresConnection, prepared: PreparedStatement, given: Mapping[str, Value]
) -> list[Row]:
    """What a snapshot's first statement gives; where another server has migrated since, on a new snapshot."""
    arguments = prepared.arguments(given)
    try:
        return await connection.fetch(prepared.text, *arguments)
    except link.Migrated:
        await connection.execute("ROLLBACK; BEGIN")
        return await connection.fetch(prepared.text, *arguments)


class ReaderPool:
    """Connections that only read, the last used first; each snapshot has one for itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[PostgresConnection] = []
        self._closed = False
        self._room = asyncio.Semaphore(_READERS)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[PostgresConnection]:
        """A connection in a transaction that sees one moment of the database."""
        async with self._room:
            connection = await self._begin()
            try:
                yield connection
                await connection.execute("COMMIT")
            except BaseException as error:
                connection.terminate()
                if isinstance(error, link.Migrated):  # what the others have prepared is as old
                    await self._forget()
                raise
            self._idle.append(connection)
            if self._closed:
                await self.close()

    async def _begin(self) -> PostgresConnection:
        while self._idle:
            with contextlib.suppress(*GONE):  # the server was restarted since: try the next, then a new one
                return await _begun(self._idle.pop())
        return await _begun(await link.connect(self._url, **link.READ_ONLY))

    async def close(self) -> None:
        """Let them go; those that read go when they are done."""
        self._closed = True
        await self._forget()

    async def _forget(self) -> None:
        while self._idle:
            await link.close(self._idle.pop())


async def _begun(connection: PostgresConnection) -> PostgresConnection:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.execute("BEGIN")
    except BaseException:
        connection.terminate()
        raise
    return connection
