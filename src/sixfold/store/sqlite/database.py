"""The Database port on SQLite: WAL, one writer thread, many transactions per durable commit.

Each write has a savepoint, so a failed write does not affect other writes, and one fsync covers all writes
that arrived during the previous one. Reads are short and run in the caller's thread, except for reports and
large rows. Each of these kinds has a thread, since a request for a large row must not wait for a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sixfold import errors
from sixfold.core.clock import Clock, steady_clock
from sixfold.core.concurrency.single_thread import SingleThread
from sixfold.core.database import ChangeRefused, Query, Row, Transaction, TransactionConflict
from sixfold.store import sql
from sixfold.store.sqlite.binding import SqliteBinder

T = TypeVar("T")

_MAX_GROUP = 512
BUSY_MS = 30_000
_STORE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_STATEMENTS = 512  # prepared statements kept per connection
_REPORTS, _LARGE_ROWS = SingleThread("sqlite-reports"), SingleThread("sqlite-rows")
# Rows with a larger text are read in a thread, as a text of 66 MB takes 0.1 s.
LOOP_TEXT_BYTES = 2**20
_MAX_TEXT_BYTES = 2**31 - 1


IsAlive = Callable[[str], bool]


def _is_nobody_alive(_server: str) -> bool:
    """Return False: only one server at a time opens the file, so all other servers have ended."""
    return False


class _LargeText(Exception):
    """Raised by the query of a row with a text above `LOOP_TEXT_BYTES`."""

    def __init__(self, query: Query) -> None:
        super().__init__(query.name)
        self.query = query


class WriteJob(msgspec.Struct):
    """A transaction in the queue of the writer thread, with its result."""

    transaction: Transaction[Any]
    durable: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None


class SqliteDatabase:
    """A database file (or `:memory:`) opened by one server; other processes may administer it."""

    dialect = "sqlite"

    def __init__(
        self, path: Path | str, *, clock: Clock | None = None, is_alive: IsAlive = _is_nobody_alive
    ) -> None:
        self._path = str(path)
        self._is_alive = is_alive
        self._clock = clock or steady_clock()
        self._uri = self._path == ":memory:"
        if self._uri:
            self._path = f"file:sixfold-{id(self)}?mode=memory&cache=shared"
        self._writer = self._connect()
        migrate(self._writer)
        self._reader = self._connect()
        self._thread_readers: dict[SingleThread, sqlite3.Connection] = {}
        self._durable = True  # the value that `connect` sets
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self.queries = sql.queries(self.dialect)
        self._bind = SqliteBinder()
        self._closed = False
        self._thread = threading.Thread(target=self._write_forever, name="sqlite-writer", daemon=True)
        self._thread.start()

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path, uri=self._uri, is_alive=self._is_alive)

    # -- the port --------------------------------------------------------------------------------

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Queue `transaction` for the writer; return its result after the commit."""
        if self._closed:
            raise sqlite3.ProgrammingError("the database is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(WriteJob(transaction, durable, loop, future))
        return await future

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True, in_thread: bool = False) -> T:
        """Run `transaction`, on one snapshot unless `snapshot` is False."""
        # A database in memory does not support concurrent reads and writes of a table.
        if in_thread and not self._uri:
            return await self._read_in(_REPORTS if snapshot else _LARGE_ROWS, transaction)
        if snapshot or self._uri:
            return self._read(self._reader, transaction, snapshot=snapshot)
        try:
            return self._read_small(transaction)
        except _LargeText as large:
            query = large.query
        return await self._read_in(_LARGE_ROWS, transaction, query)

    async def _read_in(
        self, thread: SingleThread, transaction: Transaction[T], query: Query | None = None
    ) -> T:
        """Run `transaction` in a thread, from its start, or from the `query` that it has yielded."""

        def read() -> T:
            if self._closed:
                raise sqlite3.ProgrammingError("the database is closed")
            if thread not in self._thread_readers:
                self._thread_readers[thread] = self._connect()
            return self._read(self._thread_readers[thread], transaction, query)

        return await thread.run(read)

    def _read_small(self, transaction: Transaction[T]) -> T:
        """Run `transaction` up to a query that returns a large text, which raises `_LargeText`."""
        self._reader.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LOOP_TEXT_BYTES)
        try:
            return self._drive(self._reader, transaction)
        finally:
            self._reader.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT_BYTES)

    def _read(
        self,
        reader: sqlite3.Connection,
        transaction: Transaction[T],
        query: Query | None = None,
        *,
        snapshot: bool = True,
    ) -> T:
        if not snapshot:
            return self._drive(reader, transaction)
        reader.execute("BEGIN")
        try:
            return self._drive(reader, transaction, query)
        finally:
            reader.execute("ROLLBACK")

    async def close(self) -> None:
        """Commit queued transactions, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._reader.close()
        self._writer.close()
        for thread, reader in self._thread_readers.items():
            await thread.run(reader.close)

    # -- the writer thread -----------------------------------------------------------------------

    def _write_forever(self) -> None:
        while True:
            job = self._jobs.get()
            group, stop = list[WriteJob](), False
            try:
                # Jobs that arrive during the wait for the lock join the group.
                with self.turn():
                    group, stop = self._next_group(job)
                    if group:
                        self.commit_group(group)
            except OSError as error:  # the lock file cannot be locked, or not in time
                # Otherwise each job would wait as long as all earlier jobs together.
                if not group:
                    group, stop = self._next_group(job)
                for transaction in group:
                    transaction.error = transaction.error or _store_failed(error)
            _settle(group)
            if stop:
                return

    def turn(self) -> AbstractContextManager[None]:
        """Return a context in which this process may write."""
        return contextlib.nullcontext()

    def _next_group(self, job: WriteJob | None) -> tuple[list[WriteJob], bool]:
        group: list[WriteJob] = []
        while True:
            if job is None:
                return group, True
            group.append(job)
            if len(group) >= _MAX_GROUP:
                return group, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group, False

    def commit_group(self, group: list[WriteJob]) -> None:
        """Run the transactions of a group and commit them together."""
        writer = self._writer
        durable = any(job.durable for job in group)
        try:
            if durable != self._durable:
                writer.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            writer.execute("BEGIN IMMEDIATE")
            for job in group:
                self.run_job(writer, job, alone=len(group) == 1)
            if writer.in_transaction:
                writer.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                writer.execute("ROLLBACK")
            for job in group:
                job.error = job.error or _store_failed(error)

    def run_job(self, writer: sqlite3.Connection, job: WriteJob, *, alone: bool) -> None:
        """Run one transaction of a group; a failed transaction stores its error in `job`."""
        if not alone:
            writer.execute("SAVEPOINT request")
        try:
            job.value = self._drive(writer, job.transaction)
        except Exception as error:
            if not writer.in_transaction:  # the whole group was rolled back: disk full, I/O error
                raise
            job.error = _store_failed(error) if _is_store_error(error) else error
            writer.execute("ROLLBACK" if alone else "ROLLBACK TO request")
        if not alone:
            writer.execute("RELEASE request")

    def _drive(
        self, connection: sqlite3.Connection, transaction: Transaction[T], query: Query | None = None
    ) -> T:
        """Run a transaction from its start, or from the `query` that it has yielded."""
        moment = self._clock()
        try:
            query = query or next(transaction)
            while True:
                try:
                    rows = self._execute(connection, query, moment)
                except sqlite3.IntegrityError as error:
                    query = transaction.throw(TransactionConflict(str(error)))
                except ChangeRefused as refused:
                    query = transaction.throw(refused)
                except sqlite3.DataError as error:
                    if connection is self._reader and error.sqlite_errorcode == sqlite3.SQLITE_TOOBIG:
                        raise _LargeText(query) from error
                    raise
                else:
                    query = transaction.send(rows)
        except StopIteration as end:
            return end.value

    def _execute(self, connection: sqlite3.Connection, query: Query, moment: int) -> list[Any]:
        if query.parts:
            return self._run_parts(connection, query.parts, moment)
        bound = self._bind(self.queries[query.name].sql)
        if query.each is None:
            rows = connection.execute(bound.text, bound.arguments(query.params, moment)).fetchall()
            if bound.reading is None:
                return rows
            return [connection.execute(bound.reading, tuple(row)).fetchone() for row in rows]
        values = bound.rows(query.each, moment)
        return [{"changed": connection.executemany(bound.text, values).rowcount}]

    def _run_parts(self, connection: sqlite3.Connection, parts: Sequence[Query], moment: int) -> list[Row]:
        """Run all parts, or none if one fails or affects an unexpected number of rows."""
        rows: list[Row] = []
        connection.execute("SAVEPOINT parts")
        try:
            for part in parts:
                rows += ({**row, "now": moment} for row in self._execute(connection, part, moment))
                part.check(rows[-1]["changed"])
        except (sqlite3.IntegrityError, ChangeRefused):
            connection.execute("ROLLBACK TO parts")
            raise
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE parts")
        return rows


def _is_store_error(error: BaseException) -> bool:
    """Return whether an error was caused by the disk or the file, rather than by a statement."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _STORE_ERRORS


def _store_failed(error: BaseException) -> errors.StoreFailed:
    failure = errors.StoreFailed()
    failure.__cause__ = error
    return failure


def connect(path: str, *, uri: bool = False, is_alive: IsAlive = _is_nobody_alive) -> sqlite3.Connection:
    """Open a connection in autocommit mode, with the settings of this store.

    In SQL, the function `server_lives(boot)` calls `is_alive`.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, uri=uri, cached_statements=_STATEMENTS
    )
    connection.row_factory = sqlite3.Row
    connection.create_function("server_lives", 1, is_alive)
    for pragma in (
        f"busy_timeout={BUSY_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "cache_size=-16000",
        "temp_store=MEMORY",
        "wal_autocheckpoint=4000",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def migrate(connection: sqlite3.Connection, target: int | None = None) -> tuple[int, int]:
    """Migrate the schema to `target` (default: the newest); return the versions before and after."""
    before = version(connection)
    if not sql.plan("sqlite", before, target):
        return before, before
    connection.execute("BEGIN IMMEDIATE")  # processes that start at the same time wait for the first
    try:
        before = after = version(connection)
        for script, number in sql.plan("sqlite", before, target):
            for statement in _statements(script):
                connection.execute(statement)
            after = number
        connection.execute(f"PRAGMA user_version={after}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return before, after


def version(connection: sqlite3.Connection) -> int:
    """Return the schema version of a database file; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; a trigger is one statement."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _settle(group: list[WriteJob]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[WriteJob]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
