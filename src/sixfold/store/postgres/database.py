"""The Database port on PostgreSQL: transactions are committed in groups, one group at a time.

Transactions that arrive during a commit share the next one. Each has a savepoint, so a failing one does not
affect the others. A group holds an advisory lock on the whole database, so the writes of all servers are
serialized as on SQLite. Reads use separate connections and do not take the lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none

from sixfold import errors
from sixfold.core.clock import SECOND_US, Clock
from sixfold.core.database import ChangeRefused, Query, Row, Transaction, TransactionConflict, Value
from sixfold.store import sql
from sixfold.store.postgres import connection as connections
from sixfold.store.postgres.binding import Changes, PostgresBinder, PreparedStatement
from sixfold.store.postgres.connection import GONE, PostgresConnection
from sixfold.store.postgres.listener import NotificationListener, OnEvent
from sixfold.store.postgres.pipelining import StatementBatcher, refused_part
from sixfold.store.postgres.readers import ReaderPool, ReadRunner
from sixfold.store.postgres.transactions import (
    ChangesResult,
    Members,
    RunSeparately,
    StatementResult,
    TransactionJob,
)

T = TypeVar("T")

_LOG = logging.getLogger("sixfold.store")
_MAX_GROUP = 512
_TRIES = 3  # attempts at a statement that fails with a deadlock or a serialization error
_BEGIN = "BEGIN; SELECT {lock}; SAVEPOINT request"
_RELAXED = f"BEGIN; SET LOCAL synchronous_commit = off; {_BEGIN.removeprefix('BEGIN; ')}"
_LOCK = f"pg_advisory_xact_lock({connections.WRITING})"
# Transactions that begin with these queries change only rates, and wait only for transactions that do the
# same.
_RATES = frozenset({"key_rate_add", "key_rate_return", "key_rate_spend"})
_RATE_LOCK = (
    f"pg_advisory_xact_lock_shared({connections.WRITING}), pg_advisory_xact_lock({connections.RATING})"
)
_NEXT = "RELEASE SAVEPOINT request; SAVEPOINT request"
_UNDO = "ROLLBACK TO SAVEPOINT request"
# Transactions whose first query is one of these run in lockstep, one statement for all of them at each step.
# Each changes only rows that its parameters name, adds to sums, or contains its condition.
_BATCHED = frozenset(
    {
        "account_below_zero",
        "budgets_spend",
        "key_rate_add",
        "key_rate_spend",
        "key_spend_add",
        "ledger_reserve",
        "prediction_by_idempotency",
        "prediction_succeed",
    }
)
_CHANGED = "The database changed under a request; nothing was changed by it"
_OURS = ("22", "42")  # SQLSTATE classes of invalid data and invalid statements, which are not store failures


class PostgresDatabase:
    """A PostgreSQL database shared by any number of servers; connected at first use.

    Raises `StoreFailed` while the database server cannot be reached; the first use raises
    `DatabaseUnreachable` with the reason. Use it from one event loop.
    """

    dialect = "postgres"

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock
        self.queries = sql.queries(self.dialect)
        self._bind = PostgresBinder()
        self._batcher = StatementBatcher()
        self._opening = asyncio.Lock()
        self._writer: PostgresConnection | None = None
        self._readers = ReaderPool(url)
        self._listener = NotificationListener(url, self._is_own)
        self._jobs: deque[TransactionJob] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._migrated = False
        self._closed = False
        # When the database's clock was read, and how far it is ahead of this server's clock.
        self._clock_read_at, self._ahead = -SECOND_US, 0

    # -- the port --------------------------------------------------------------------------------

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Queue `transaction` for the next group; returns after its commit."""
        self._refuse_closed()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(TransactionJob(transaction, durable, future))
        self._arrived.set()
        if self._task is None:
            self._task = asyncio.create_task(self._write_forever(), name="postgres-writer")
        return await future

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True, in_thread: bool = False) -> T:
        """Run `transaction` on a separate connection: on one snapshot, or one statement at a time."""
        self._refuse_closed()
        runner = ReadRunner(self.queries, self._bind, self._clock, in_thread)
        try:
            if not self._migrated:
                await self._open_writer()
            if not snapshot:
                return await runner.run(self._readers.fetch, transaction)
            async with self._readers.snapshot() as opened:
                return await runner.run(opened.fetch, transaction)
        except (*GONE, connections.DatabaseUnreachable) as error:
            raise self._error_for_caller(error) from error

    async def join(self, boot: str, on_event: OnEvent) -> None:
        """Register this server under the name `boot`, and subscribe to the other servers' events.

        `on_event` is called with the state, id and engine of each prediction that another server changes.
        """
        await self._open_writer()
        session = await self._listener.join(boot, on_event)
        other = await self._readers.fetch(connections.SESSION_ID, ())
        connections.require_sessions(self._url, session, int(other[0]["id"]))

    async def close(self) -> None:
        """Commit queued transactions, then close the connections."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        await self._listener.close()
        await self._readers.close()
        async with self._opening:  # a read that began earlier may be opening it
            await connections.close(self._writer)

    def _error_for_caller(self, error: BaseException) -> BaseException:
        """Return the error for the caller; only the first connection's error contains the address."""
        if isinstance(error, connections.DatabaseUnreachable) and self._migrated:
            return _failed(error)
        return _translated(error)

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
        for job in group:
            job.start()
        rates = [job for job in group if job.query is not None and job.query.name in _RATES]
        others = [job for job in group if job not in rates]
        try:
            async with asyncio.timeout(connections.PATIENCE_SECONDS):
                if rates:
                    await self._run_group(rates, _RATE_LOCK)
                failed = [job for job in others if not await self._run_alone(job)]
                if failed:
                    await self._run_group(failed, _LOCK)
        except Exception as error:  # noqa: BLE001 - the outermost loop: it ends a group, not the writer
            self._drop_writer()
            _LOG.warning(
                "a group of transactions failed", extra={"reason": str(error) or type(error).__name__}
            )
            for job in group:
                job.fail(job.error or self._error_for_caller(error))

    async def _run_group(self, group: list[TransactionJob], lock: str) -> None:
        begin = _BEGIN if any(job.durable for job in group) else _RELAXED
        connection = await self._begin(begin.format(lock=lock))
        batched = _batchable(group)
        alone = group
        if len(batched) > 1 and await self._run_together(connection, batched):
            done = set(map(id, batched))
            alone = [job for job in group if id(job) not in done]
        for number, job in enumerate(alone):
            if number or alone is not group:
                await connection.execute(_NEXT)
            await self._run(connection, job)
        await connection.execute("COMMIT")
        self._batcher.committed()
        _settle(group)

    async def _begin(self, statement: str) -> PostgresConnection:
        connection = await self._open_writer()
        try:
            await connection.execute(statement)
        except GONE:
            if not connection.is_closed():
                raise
            self._drop_writer()  # the database server was restarted since the last group
            connection = await self._open_writer()
            await connection.execute(statement)
        return connection

    async def _run_together(self, connection: PostgresConnection, jobs: list[TransactionJob]) -> bool:
        """Run the jobs in lockstep; return False if they must be run one by one."""
        active = jobs
        try:
            while active:
                for prepared, members in (await self._groups(connection, active)).items():
                    parameter_rows = [arguments for _, arguments in members]
                    together = self._together(prepared, members[0][0].query)
                    results = await self._batcher.run(connection, prepared, parameter_rows, together)
                    for (job, arguments), rows in zip(members, results, strict=True):
                        job.receive(StatementResult(prepared.text, arguments, rows))
                        job.require_unwritten()
                await self._change_together(connection, active)
                active = [job for job in active if job.query is not None]
        except (RunSeparately, asyncpg.PostgresError):
            if connection.is_closed():
                raise
            await self._rollback(connection)
            return False
        return True

    def _together(self, prepared: PreparedStatement, query: Query | None) -> str:
        """Return the statement that runs a query for many transactions at once, or an empty string."""
        if query is None or (statement := self.queries.get(f"{query.name}_together")) is None:
            return ""
        return self._bind(statement.sql, query.params).renumbered(prepared.names)

    async def _change_together(self, connection: PostgresConnection, jobs: list[TransactionJob]) -> None:
        """Run the changes that are the next query of each job; equal ones share one round trip."""
        groups: dict[tuple[str, ...], list[tuple[TransactionJob, list[Changes]]]] = {}
        for job in jobs:
            if job.query is not None and job.query.is_change:
                changes = await self._changes(connection, job, job.query)
                groups.setdefault(tuple(change.text for change in changes), []).append((job, changes))
        for members in groups.values():
            numbers = await self._batcher.change_all(connection, [changes for _, changes in members])
            for (job, changes), changed in zip(members, numbers, strict=True):
                job.receive(ChangesResult(changes, _numbered(changed, job.moment)))
                job.require_unwritten()

    async def _groups(
        self, connection: PostgresConnection, jobs: list[TransactionJob]
    ) -> dict[PreparedStatement, Members]:
        """Group the jobs, in order, by their next statement, except jobs that change more than one row."""
        groups: dict[PreparedStatement, Members] = {}
        for job in jobs:
            query = job.query
            if query is not None and not query.is_change:
                try:
                    prepared, arguments = await self._prepared(connection, job, query.name, query.params)
                except KeyError as error:  # unknown query or missing parameter
                    job.fail(error)
                    job.require_unwritten()
                else:
                    groups.setdefault(prepared, []).append((job, arguments))
        return groups

    async def _run(self, connection: PostgresConnection, job: TransactionJob) -> None:
        if job.error is not None:
            return
        await self._repeat(connection, job)
        while job.query is not None:
            try:
                await self._answer(connection, job, job.query)
            except Exception as error:
                if connection.is_closed():  # the whole group was rolled back
                    raise
                job.fail(_translated(error))
        if job.error is not None:
            await self._rollback(connection)

    async def _answer(self, connection: PostgresConnection, job: TransactionJob, query: Query) -> None:
        for _ in range(_TRIES):
            try:
                if query.is_change:
                    await self._run_changes(connection, job, query)
                else:
                    prepared, arguments = await self._prepared(connection, job, query.name, query.params)
                    rows = await connection.fetch(prepared.text, *arguments)
                    job.receive(StatementResult(prepared.text, arguments, rows))
            except asyncpg.IntegrityConstraintViolationError as error:
                conflict = TransactionConflict(_constraint(error))
                await self._restart(connection, job)
                if job.query is not None:
                    job.advance(partial(job.transaction.throw, conflict))
                return
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, connections.Migrated):
                await self._restart(connection, job)
            except asyncpg.PostgresError as error:
                part = refused_part(error)
                if part is None:
                    raise
                refused = ChangeRefused(query.parts[part].name)
                await self._restart(connection, job)
                if job.query is not None:
                    job.advance(partial(job.transaction.throw, refused))
                return
            else:
                return
        raise errors.StoreFailed("The database is too busy; nothing was changed")

    async def _run_changes(self, connection: PostgresConnection, job: TransactionJob, query: Query) -> None:
        """Run a query with `each` or `parts` in one round trip."""
        changes = await self._changes(connection, job, query)
        numbers = await self._batcher.change(connection, changes)
        job.receive(ChangesResult(changes, _numbered(numbers, job.moment)))

    async def _changes(
        self, connection: PostgresConnection, job: TransactionJob, query: Query
    ) -> list[Changes]:
        changes: list[Changes] = []
        for part in query.parts or (query,):
            statement, rows = self.queries[part.name], part.each or ()
            moment = await self._moment(connection, job)
            if statement.needs_now:
                rows = [{**row, "now": moment} for row in rows]
            changes.append(self._bind.changes(statement.sql, rows, part))
        return changes

    async def _run_alone(self, job: TransactionJob) -> bool:
        """Run a transaction whose first query has `parts` without a group.

        Returns False for any other transaction, and for one that failed and must run in a group to find the
        cause.
        """
        query = job.query
        if query is None or not query.parts:
            return False
        connection = await self._open_writer()
        try:
            changes = await self._changes(connection, job, query)
            numbers = await self._batcher.change(connection, changes, alone=True, durable=job.durable)
        except (asyncpg.InterfaceError, asyncpg.InternalClientError):
            self._drop_writer()  # the database server was restarted; the job was not sent
            return False
        except (asyncpg.PostgresError, KeyError):
            if connection.is_closed():
                raise
            self._batcher.rolled_back()
            return False
        job.receive(ChangesResult(changes, _numbered(numbers, job.moment)))
        if job.query is not None:
            raise AssertionError("A query with parts must be the last one of its transaction")
        _settle([job])
        return True

    async def _repeat(self, connection: PostgresConnection, job: TransactionJob) -> None:
        """Repeat the statements of a job that was rolled back; the job fails if their rows have changed."""
        for step in job.seen:
            if isinstance(step, ChangesResult):
                numbers = await self._batcher.change(connection, step.changes)
                rows: Sequence[Row] = _numbered(numbers, job.moment)
            else:
                rows = await connection.fetch(step.text, *step.arguments)
            if not _is_same(rows, step.rows):
                job.fail(errors.StoreFailed(_CHANGED))
                return

    async def _restart(self, connection: PostgresConnection, job: TransactionJob) -> None:
        """Roll back to the savepoint and repeat the job's statements before the one that failed."""
        await self._rollback(connection)
        await self._repeat(connection, job)

    async def _rollback(self, connection: PostgresConnection) -> None:
        """Roll back to the savepoint, which also removes the batch functions created since then."""
        self._batcher.rolled_back()
        await connection.execute(_UNDO)

    async def _prepared(
        self, connection: PostgresConnection, job: TransactionJob, name: str, params: Mapping[str, Value]
    ) -> tuple[PreparedStatement, list[Any]]:
        statement = self.queries[name]
        if statement.needs_now:
            params = {**params, "now": await self._moment(connection, job)}
        prepared = self._bind(statement.sql, params)
        return prepared, prepared.arguments(params)

    async def _moment(self, connection: PostgresConnection, job: TransactionJob) -> int:
        if job.moment is None:
            job.moment = await self._now(connection)
        return job.moment

    async def _now(self, connection: PostgresConnection) -> int:
        """Return the database's time in epoch µs, read once a second and advanced by the monotonic clock."""
        if self._clock is not None:
            return self._clock()
        local_time = _monotonic_us()
        if local_time - self._clock_read_at > SECOND_US:
            clock = int(await connection.fetchval(f"SELECT {connections.CLOCK}"))
            # Read after the reply, so that the time is never ahead of the clock of the readers.
            local_time = self._clock_read_at = _monotonic_us()
            self._ahead = clock - local_time
        return self._ahead + local_time

    async def _open_writer(self) -> PostgresConnection:
        async with self._opening:
            if self._writer is None or self._writer.is_closed():
                writer = await connections.connect(self._url)
                try:
                    if not self._migrated:
                        await connections.migrate(writer)
                except BaseException:
                    writer.terminate()
                    raise
                self._writer, self._migrated = writer, True
                self._batcher.reset()
            return self._writer

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.terminate()
        self._writer = None
        self._clock_read_at = -SECOND_US

    def _is_own(self, pid: int) -> bool:
        """Return whether a database session belongs to this object's writer."""
        return (
            self._writer is not None and not self._writer.is_closed() and self._writer.get_server_pid() == pid
        )


def _batchable(group: list[TransactionJob]) -> list[TransactionJob]:
    """Return the jobs that can run in lockstep; of jobs with the same Idempotency-Key, only the first."""
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


def _numbered(numbers: Sequence[int], moment: int | None) -> list[Row]:
    return [{"changed": number, "now": moment} for number in numbers]


def _is_same(rows: Sequence[Row], earlier: Sequence[Row]) -> bool:
    """Compare results by the columns that both contain.

    A batch adds a number, and a migration may add columns.
    """
    first, second = ([tuple(row.values()) for row in each] for each in (rows, earlier))
    width = min((len(row) for row in (*first[:1], *second[:1])), default=0)
    return [row[:width] for row in first] == [row[:width] for row in second]


def _constraint(error: asyncpg.PostgresError) -> str:
    name: Any = getattr(error, "constraint_name", None)
    return str(name or error)


def _translated(error: BaseException) -> BaseException:
    """Return the error for a caller: `StoreFailed`, unless the statement or its data are invalid."""
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
