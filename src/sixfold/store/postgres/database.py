"""PostgreSQL behind the Database port: groups of writes to one commit, one group at a time.

Writes that arrive while a commit is under way share the next one; each has a savepoint, so one that fails
leaves its neighbours alone. A group holds a lock on the whole database: it is alone as on SQLite, whichever
server it runs on, so no transaction has to think of another. Reads have connections of their own and wait for
nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none

from sixfold import errors
from sixfold.core.clock import SECOND_US, Clock
from sixfold.core.database import Query, Transaction, TransactionConflict, Value
from sixfold.store import sql
from sixfold.store.postgres import connection as link
from sixfold.store.postgres.binding import PostgresBinder, PreparedStatement
from sixfold.store.postgres.connection import GONE, PostgresConnection
from sixfold.store.postgres.listener import NotificationListener, Told
from sixfold.store.postgres.pipelining import StatementBatcher
from sixfold.store.postgres.readers import ReaderPool, ReadRunner
from sixfold.store.postgres.transactions import Crowd, RunSeparately, StepResultRow, TransactionJob

T = TypeVar("T")

_LOG = logging.getLogger("sixfold.store")
_MAX_GROUP = 512
_TRIES = 3  # of a statement that PostgreSQL gave up for another session's sake
_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock({link.WRITING}); SAVEPOINT request"
_RELAXED = f"BEGIN; SET LOCAL synchronous_commit = off; {_BEGIN.removeprefix('BEGIN; ')}"
_NEXT = "RELEASE SAVEPOINT request; SAVEPOINT request"
_UNDO = "ROLLBACK TO SAVEPOINT request"
# Transactions whose first query is one of these run in lockstep, one statement for all of them at each step.
# Each changes rows that only it names, adds to sums, or has its condition in the statement itself.
_BATCHED = frozenset(
    {
        "account_below_zero",
        "key_rate_add",
        "key_rate_spend",
        "key_spend_add",
        "ledger_reserve",
        "prediction_by_idempotency",
        "prediction_succeed",
    }
)
_OURS = ("22", "42")  # classes of SQLSTATE: a wrong value, a wrong statement; the store is well


class PostgresDatabase:
    """One PostgreSQL database, shared by any number of servers. Connects when it is first used.

    What cannot be done while the server is out of reach raises `StoreFailed`; at the first use that says why
    (`DatabaseUnreachable`). For one event loop.
    """

    dialect = "postgres"

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock
        self._queries = sql.queries(self.dialect)
        self._bind = PostgresBinder()
        self._folder = StatementBatcher()
        self._opening = asyncio.Lock()
        self._writer: PostgresConnection | None = None
        self._readers = ReaderPool(url)
        self._listener = NotificationListener(url, self._is_own)
        self._jobs: deque[TransactionJob] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._migrated = False
        self._closed = False
        self._asked, self._ahead = -SECOND_US, 0  # when its clock was read, and how far it is ahead of ours

    # -- the port --------------------------------------------------------------------------------

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Hand `transaction` to the next group; returns after the commit that holds it."""
        self._refuse_closed()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(TransactionJob(transaction, durable, future))
        self._arrived.set()
        if self._task is None:
            self._task = asyncio.create_task(self._write_forever(), name="postgres-writer")
        return await future

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True) -> T:
        """Run `transaction` on a connection of its own: on one snapshot, or one statement at a time."""
        self._refuse_closed()
        runner = ReadRunner(self._queries, self._bind, self._clock)
        try:
            if not self._migrated:
                await self._open_writer()
            if not snapshot:
                return await runner.run(self._readers.fetch, transaction)
            async with self._readers.snapshot() as opened:
                return await runner.run(opened.fetch, transaction)
        except (*GONE, link.DatabaseUnreachable) as error:
            raise self._told(error) from error

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
        await link.close(self._writer)

    def _told(self, error: BaseException) -> BaseException:
        """What callers are told. Where the database lies is for the log, and for whoever starts a server."""
        if isinstance(error, link.DatabaseUnreachable) and self._migrated:
            return _failed(error)
        return _verdict(error)

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

    async def _commit_group(self, group: list[TransactionJob]) -> None:
        durable = any(job.durable for job in group)
        for job in group:
            job.begin()
        try:
            async with asyncio.timeout(link.PATIENCE_SECONDS):
                await self._run_group(group, _BEGIN if durable else _RELAXED)
        except Exception as error:  # noqa: BLE001 - the outermost loop: it ends a group, not the writer
            self._drop_writer()
            _LOG.warning("a group of writes failed", extra={"reason": str(error) or type(error).__name__})
            for job in group:
                job.fail(job.error or self._told(error))

    async def _run_group(self, group: list[TransactionJob], begin: str) -> None:
        connection = await self._begin(begin)
        batched = _batchable(group)
        alone = group
        if len(batched) > 1 and await self._run_together(connection, batched):
            done = set(map(id, batched))
            alone = [job for job in group if id(job) not in done]
            await connection.execute(_NEXT)
        for number, job in enumerate(alone):
            if number:
                await connection.execute(_NEXT)
            await self._run(connection, job)
        await connection.execute("COMMIT")
        self._folder.kept()

    async def _begin(self, statement: str) -> PostgresConnection:
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

    async def _run_together(self, connection: PostgresConnection, jobs: list[TransactionJob]) -> bool:
        """Take each job a step at a time, all in one statement; False when that came to nothing."""
        asking = jobs
        try:
            while asking:
                for prepared, crowd in (await self._crowds(connection, asking)).items():
                    given = [arguments for _, arguments in crowd]
                    told = await self._folder.run(connection, prepared, given)
                    for (job, arguments), rows in zip(crowd, told, strict=True):
                        job.tell(StepResultRow(prepared.text, arguments, rows))
                        job.refuse_half()
                for job in asking:
                    if job.query is not None and job.query.each is not None:
                        await self._run_each(connection, job, job.query)
                        job.refuse_half()
                asking = [job for job in asking if job.query is not None]
        except (RunSeparately, asyncpg.PostgresError):
            if connection.is_closed():
                raise
            await self._undo(connection)
            return False
        return True

    async def _crowds(
        self, connection: PostgresConnection, jobs: list[TransactionJob]
    ) -> dict[PreparedStatement, Crowd]:
        """Group the jobs by their next statement, in their order, without those that change several rows."""
        crowds: dict[PreparedStatement, Crowd] = {}
        for job in jobs:
            query = job.query
            if query is not None and query.each is None:
                try:
                    prepared, arguments = await self._prepared(connection, job, query.name, query.params)
                except KeyError as error:  # no such query, or one without all of its values
                    job.fail(error)
                    job.refuse_half()
                else:
                    crowds.setdefault(prepared, []).append((job, arguments))
        return crowds

    async def _run(self, connection: PostgresConnection, job: TransactionJob) -> None:
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
            await self._undo(connection)

    async def _answer(self, connection: PostgresConnection, job: TransactionJob, query: Query) -> None:
        for _ in range(_TRIES):
            try:
                if query.each is not None:
                    await self._run_each(connection, job, query)
                else:
                    prepared, arguments = await self._prepared(connection, job, query.name, query.params)
                    rows = await connection.fetch(prepared.text, *arguments)
                    job.tell(StepResultRow(prepared.text, arguments, rows))
            except asyncpg.IntegrityConstraintViolationError as error:
                conflict = TransactionConflict(_broken(error))
                await self._back(connection, job)
                if job.query is not None:
                    job.ask(partial(job.transaction.throw, conflict))
                return
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, link.Migrated):
                await self._back(connection, job)
            else:
                return
        raise errors.StoreFailed("The database is too busy right now; nothing was changed")

    async def _run_each(self, connection: PostgresConnection, job: TransactionJob, query: Query) -> None:
        """Run a query once for each of its sets of parameters."""
        groups: dict[PreparedStatement, list[list[Any]]] = {}
        for params in sql.turns(query):
            prepared, arguments = await self._prepared(connection, job, query.name, params)
            groups.setdefault(prepared.counting(), []).append(arguments)
        steps = [
            StepResultRow(prepared.text, arguments, rows)
            for prepared, given in groups.items()
            for arguments, rows in zip(
                given, await self._folder.run(connection, prepared, given), strict=True
            )
        ]
        job.count(steps)

    async def _back(self, connection: PostgresConnection, job: TransactionJob) -> None:
        """Bring a request to where it stood before the statement that failed."""
        await self._undo(connection)
        await _again(connection, job)

    async def _undo(self, connection: PostgresConnection) -> None:
        """Back to the savepoint, behind which folded statements may have been made."""
        self._folder.undone()
        await connection.execute(_UNDO)

    async def _prepared(
        self, connection: PostgresConnection, job: TransactionJob, name: str, params: Mapping[str, Value]
    ) -> tuple[PreparedStatement, list[Any]]:
        statement = self._queries[name]
        if statement.needs_now:
            if job.moment is None:
                job.moment = await self._now(connection)
            params = {**params, "now": job.moment}
        prepared = self._bind(statement.sql, params)
        return prepared, prepared.arguments(params)

    async def _now(self, connection: PostgresConnection) -> int:
        """The database's clock, asked once a second and carried on by the monotonic one."""
        if self._clock is not None:
            return self._clock()
        here = _monotonic_us()
        if here - self._asked > SECOND_US:
            clock = int(await connection.fetchval(f"SELECT {link.CLOCK}"))
            # Read after the reply, so that no moment lies ahead of the clock that readers compare with.
            here = self._asked = _monotonic_us()
            self._ahead = clock - here
        return self._ahead + here

    async def _open_writer(self) -> PostgresConnection:
        async with self._opening:
            if self._writer is None or self._writer.is_closed():
                writer = await link.connect(self._url)
                try:
                    if not self._migrated:
                        await link.migrate(writer)
                except BaseException:
                    writer.terminate()
                    raise
                self._writer, self._migrated = writer, True
            return self._writer

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.terminate()
        self._writer = None
        self._asked = -SECOND_US
        self._folder.forget()

    def _is_own(self, pid: int) -> bool:
        """Whether a session of the database server is this one's writer."""
        return (
            self._writer is not None and not self._writer.is_closed() and self._writer.get_server_pid() == pid
        )


def _batchable(group: list[TransactionJob]) -> list[TransactionJob]:
    """Select the jobs that can run in lockstep: of those with one Idempotency-Key only the first."""
    selected: list[TransactionJob] = []
    claimed: set[Value] = set()
    for job in group:
        if job.query is None or job.query.name not in _BATCHED:
            continue
        if (key := job.query.params.get("idempotency_id")) is not None:
            if key in claimed:
                continue
            claimed.add(key)
        selected.append(job)
    return selected


async def _again(connection: PostgresConnection, job: TransactionJob) -> None:
    """Run once more what was undone; a request was told what it is told now, or nothing holds.

    Columns behind those that both have do not count: a number of what was folded, or what a migration added.
    """
    for step in job.seen:
        rows = [tuple(row) for row in await connection.fetch(step.text, *step.arguments)]
        width = min((len(row) for row in (*rows[:1], *step.rows[:1])), default=0)
        if [row[:width] for row in rows] != [tuple(row)[:width] for row in step.rows]:
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
    return _failed(error)


def _failed(error: BaseException) -> errors.StoreFailed:
    failure = errors.StoreFailed()
    failure.__cause__ = error
    return failure


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def _settle(group: list[TransactionJob]) -> None:
    for job in group:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
