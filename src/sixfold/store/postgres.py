"""PostgreSQL behind the Database port: groups of writes to one commit, one group at a time.

Writes that arrive while a commit is under way share the next one; each has a savepoint, so one that fails
leaves its neighbours alone. A group holds a lock on the whole database: it is alone as on SQLite, whichever
server it runs on, so no transaction has to think of another. Reads have connections of their own and wait for
nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none

from sixfold import errors
from sixfold.core.clock import Clock
from sixfold.core.database import Query, Row, Transaction, TransactionConflict
from sixfold.store import postgres_connect as link
from sixfold.store import sql
from sixfold.store.postgres_binding import Binder, Prepared
from sixfold.store.postgres_connect import GONE, Connection
from sixfold.store.postgres_folding import Folder
from sixfold.store.postgres_listen import Listener, Told
from sixfold.store.sql import Statement

T = TypeVar("T")

_MAX_GROUP = 512
_READERS = 8
_PATIENCE_SECONDS = 60.0  # for a server that says nothing any more
_TRIES = 3  # of a statement that PostgreSQL gave up for another session's sake
_CLOSE_SECONDS = 5.0
_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock({link.WRITING}); SAVEPOINT request"
_RELAXED = f"BEGIN; SET LOCAL synchronous_commit = off; {_BEGIN.removeprefix('BEGIN; ')}"
_NEXT = "RELEASE SAVEPOINT request; SAVEPOINT request"
_UNDO = "ROLLBACK TO SAVEPOINT request"
# Transactions that begin so are run together: each touches rows that only it names, and adds to sums.
_ALIKE = frozenset({"prediction_succeed", "ledger_reserve"})
_OURS = (
    "22",
    "42",
)  # SQLSTATE classes of a wrong value and a wrong statement: nothing is wrong with the store


@dataclass(frozen=True, slots=True)
class _Seen:
    """A statement that a transaction has run, and what it was told."""

    text: str
    arguments: Sequence[Any]
    rows: Sequence[Row]

    @property
    def wrote(self) -> bool:
        """Whether it may have changed anything: it does, unless it tells of its rows and there were none."""
        return not self.text.startswith("SELECT") and (bool(self.rows) or "RETURNING" not in self.text)


@dataclass(slots=True, eq=False)
class _Job:
    """A transaction on its way: `query` is what it asks next, None once it has ended."""

    transaction: Transaction[Any]
    durable: bool
    future: asyncio.Future[Any]
    query: Query | None = None
    seen: list[_Seen] = field(default_factory=list["_Seen"])
    value: Any = None
    error: BaseException | None = None

    def ask(self, step: Callable[[], Query]) -> None:
        """Let it come to its next question, or to its end."""
        try:
            self.query = step()
        except StopIteration as end:
            self.query, self.value = None, end.value
        except Exception as error:  # noqa: BLE001 - whatever a transaction raises is its caller's answer
            self.fail(error)

    def begin(self) -> None:
        """The first question."""
        self.ask(partial(next, self.transaction))

    def tell(self, seen: _Seen) -> None:
        """An answer."""
        self.seen.append(seen)
        self.ask(partial(self.transaction.send, seen.rows))

    def refuse_half(self) -> None:
        """Raise `_Apart` where it failed after it had written."""
        if self.error is not None and any(step.wrote for step in self.seen):
            raise _Apart

    def fail(self, error: BaseException) -> None:
        """The end, without a value."""
        self.query, self.error = None, error


_Crowd = list[tuple[_Job, list[Any]]]  # who asks for the same, and with which arguments


class _Apart(Exception):
    """Transactions that ran together must be run one by one: one of them failed after it had written."""


class PostgresDatabase:
    """One PostgreSQL database, shared by any number of servers. Connects when it is first used.

    Everything raises `Unreachable`, a `StoreFailed`, while the server cannot be reached. For one event loop.
    """

    dialect = "postgres"

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock
        self._queries = sql.queries(self.dialect)
        self._bind = Binder()
        self._folder = Folder()
        self._opening = asyncio.Lock()
        self._writer: Connection | None = None
        self._readers = _Readers(url)
        self._listener = Listener(url, self._is_own)
        self._jobs: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._migrated = False
        self._closed = False
        self._anchor: int | None = None

    # -- the port --------------------------------------------------------------------------------

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Hand `transaction` to the next group; returns after the commit that holds it."""
        self._refuse_closed()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(transaction, durable, future))
        self._arrived.set()
        if self._task is None:
            self._task = asyncio.create_task(self._write_forever(), name="postgres-writer")
        return await future

    async def read(self, transaction: Transaction[T]) -> T:
        """Run `transaction` on a connection of its own, on one snapshot."""
        self._refuse_closed()
        try:
            if not self._migrated:
                await self._open_writer()
            async with self._readers.snapshot() as connection:
                return await Reading(self._queries, self._bind, self._clock).drive(connection, transaction)
        except GONE as error:
            raise _verdict(error) from error

    async def join(self, boot: str, told: Told) -> None:
        """Be one of the servers of this database, under the name `boot`, and hear what the others do.

        `told` is called with the state, the id and the engine of each prediction that another server moves.
        """
        await self._open_writer()
        await self._listener.join(boot, told)

    async def close(self) -> None:
        """Commit what was accepted, then let go of the connections."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        await self._listener.close()
        await self._readers.close()
        await _close(self._writer)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise asyncpg.InterfaceError("Cannot operate on a closed database.")

    # -- the writer ------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        while not self._closed or self._jobs:
            await self._arrived.wait()
            self._arrived.clear()
            while self._jobs:
                group = [self._jobs.popleft() for _ in range(min(_MAX_GROUP, len(self._jobs)))]
                await self._commit_group(group)
                _settle(group)

    async def _commit_group(self, group: list[_Job]) -> None:
        durable = any(job.durable for job in group)
        for job in group:
            job.begin()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._run_group(group, _BEGIN if durable else _RELAXED)
        except Exception as error:  # noqa: BLE001 - the outermost loop: it ends a group, not the writer
            self._drop_writer()
            for job in group:
                job.fail(job.error or _verdict(error))

    async def _run_group(self, group: list[_Job], begin: str) -> None:
        connection = await self._begin(begin)
        alike = [job for job in group if job.query is not None and job.query.name in _ALIKE]
        alone = group
        if len(alike) > 1 and await self._run_together(connection, alike):
            done = set(map(id, alike))
            alone = [job for job in group if id(job) not in done]
            await connection.execute(_NEXT)
        for number, job in enumerate(alone):
            if number:
                await connection.execute(_NEXT)
            await self._run(connection, job)
        await connection.execute("COMMIT")

    async def _begin(self, statement: str) -> Connection:
        self._anchor = None
        connection = await self._open_writer()
        try:
            await connection.execute(statement)
        except GONE:
            if not connection.is_closed():
                raise
            self._drop_writer()  # the server was restarted since the last group: nothing has been lost
            connection = await self._open_writer()
            await connection.execute(statement)
        return connection

    async def _run_together(self, connection: Connection, jobs: list[_Job]) -> bool:
        """Take each job a step at a time, all in one statement; False when that came to nothing."""
        asking = jobs
        try:
            while asking:
                for prepared, crowd in (await self._crowds(connection, asking)).items():
                    given = [arguments for _, arguments in crowd]
                    told = await self._folder.run(connection, prepared, given)
                    for (job, arguments), rows in zip(crowd, told, strict=True):
                        job.tell(_Seen(prepared.text, arguments, rows))
                        job.refuse_half()
                asking = [job for job in asking if job.query is not None]
        except (_Apart, asyncpg.PostgresError):
            if connection.is_closed():
                raise
            self._folder.forget()
            await connection.execute(_UNDO)
            return False
        return True

    async def _crowds(self, connection: Connection, jobs: list[_Job]) -> dict[Prepared, _Crowd]:
        """The jobs by the statement that they ask for, in their order."""
        crowds: dict[Prepared, _Crowd] = {}
        for job in jobs:
            if job.query is not None:
                prepared, arguments = await self._prepared(connection, job.query)
                crowds.setdefault(prepared, []).append((job, arguments))
        return crowds

    async def _run(self, connection: Connection, job: _Job) -> None:
        if job.error is not None:
            return
        await _again(connection, job)
        while job.query is not None:
            try:
                await self._answer(connection, job, job.query)
            except Exception as error:
                if connection.is_closed():  # the whole group went down with it
                    raise
                job.fail(_verdict(error))
        if job.error is not None:
            await connection.execute(_UNDO)

    async def _answer(self, connection: Connection, job: _Job, query: Query) -> None:
        prepared, arguments = await self._prepared(connection, query)
        for _ in range(_TRIES):
            try:
                rows = await connection.fetch(prepared.text, *arguments)
            except asyncpg.IntegrityConstraintViolationError as error:
                conflict = TransactionConflict(_broken(error))
                await self._back(connection, job)
                if job.query is not None:
                    job.ask(partial(job.transaction.throw, conflict))
                return
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                await self._back(connection, job)
            else:
                job.tell(_Seen(prepared.text, arguments, rows))
                return
        raise errors.StoreFailed("The database is too busy right now; nothing was changed")

    async def _back(self, connection: Connection, job: _Job) -> None:
        """Bring a request to where it stood before the statement that failed."""
        await connection.execute(_UNDO)
        await _again(connection, job)

    async def _prepared(self, connection: Connection, query: Query) -> tuple[Prepared, list[Any]]:
        statement, params = self._queries[query.name], query.params
        if statement.needs_now:
            params = {**params, "now": await self._now(connection)}
        prepared = self._bind(statement.sql, params)
        return prepared, prepared.arguments(params)

    async def _now(self, connection: Connection) -> int:
        """The database's clock, asked once for a group and carried on by the monotonic one."""
        if self._clock is not None:
            return self._clock()
        if self._anchor is None:
            self._anchor = int(await connection.fetchval(f"SELECT {link.CLOCK}")) - _monotonic_us()
        return self._anchor + _monotonic_us()

    async def _open_writer(self) -> Connection:
        async with self._opening:
            if self._writer is None or self._writer.is_closed():
                writer = await link.connect(self._url)
                self._writer = writer
                if not self._migrated:
                    await link.migrate(writer)
                    self._migrated = True
            return self._writer

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.terminate()
        self._writer = None
        self._folder.forget()

    def _is_own(self, pid: int) -> bool:
        """Whether a session of the database server is this one's writer."""
        return (
            self._writer is not None and not self._writer.is_closed() and self._writer.get_server_pid() == pid
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """How a transaction that only reads is driven, on whichever connection."""

    queries: Mapping[str, Statement]
    bind: Binder
    clock: Clock | None = None

    async def drive(self, connection: Connection, transaction: Transaction[T]) -> T:
        """Its value."""
        try:
            query = next(transaction)
            while True:
                statement, params = self.queries[query.name], query.params
                if statement.needs_now and self.clock is not None:
                    params = {**params, "now": self.clock()}
                prepared = self.bind(statement.sql, params)
                query = transaction.send(await connection.fetch(prepared.text, *prepared.arguments(params)))
        except StopIteration as end:
            return end.value


class _Readers:
    """Connections that only read, the last used first; each snapshot has one for itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self._closed = False
        self._room = asyncio.Semaphore(_READERS)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Connection]:
        """A connection in a transaction that sees one moment of the database."""
        async with self._room:
            connection = await self._begin()
            try:
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                connection.terminate()
                raise
            self._idle.append(connection)
            if self._closed:
                await self.close()

    async def _begin(self) -> Connection:
        while self._idle:
            with contextlib.suppress(*GONE):  # the server was restarted since: try the next, then a new one
                return await _begun(self._idle.pop())
        return await _begun(await link.connect(self._url, **link.READ_ONLY))

    async def close(self) -> None:
        """Let them go; those that read go when they are done."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop())


async def _begun(connection: Connection) -> Connection:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await connection.execute("BEGIN")
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _again(connection: Connection, job: _Job) -> None:
    """Run once more what was undone; a request was told what it is told now, or nothing holds."""
    for step in job.seen:
        rows = [tuple(row) for row in await connection.fetch(step.text, *step.arguments)]
        width = len(rows[0]) if rows else 0  # what was folded has a number behind its columns
        if rows != [tuple(row)[:width] for row in step.rows]:
            job.fail(errors.StoreFailed("The database changed under a request; nothing was changed by it"))
            return


def _broken(error: asyncpg.PostgresError) -> str:
    name: Any = getattr(error, "constraint_name", None)
    return str(name or error)


def _verdict(error: BaseException) -> BaseException:
    """What a caller is told: `StoreFailed` unless the fault is in what was asked."""
    state: Any = getattr(error, "sqlstate", None)
    if not isinstance(error, GONE) or isinstance(error, asyncpg.DataError | errors.StoreFailed):
        return error
    if state is not None and str(state).startswith(_OURS):
        return error
    failure = errors.StoreFailed()
    failure.__cause__ = error
    return failure


async def _close(connection: Connection | None) -> None:
    if connection is not None and not connection.is_closed():
        with contextlib.suppress(*GONE):
            await connection.close(timeout=_CLOSE_SECONDS)


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def _settle(group: list[_Job]) -> None:
    for job in group:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
