"""A SQLite file that several processes of one server write, each in a separate writer thread.

SQLite admits one writer at a time; a second writer sleeps and tries again. A file lock around each commit
makes the processes take turns instead. Changed states of predictions are sent to the other processes after
the commit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Generator
from pathlib import Path

from sixfold.core.clock import Clock
from sixfold.store.process_channel import MAX_BYTES, ProcessChannel
from sixfold.store.sqlite.database import BUSY_MS, SqliteDatabase, WriteJob

STATE_CHANGED = b"s"
# A temporary trigger exists only on its connection, so it does not slow down a server with one process.
_TRIGGERS = """
CREATE TEMP TRIGGER prediction_queued AFTER INSERT ON main.prediction WHEN NEW.state = 'queued'
BEGIN SELECT prediction_changed(NEW.state, NEW.id, NEW.engine); END;
CREATE TEMP TRIGGER prediction_moved AFTER UPDATE OF state ON main.prediction WHEN OLD.state <> NEW.state
BEGIN SELECT prediction_changed(NEW.state, NEW.id, NEW.engine); END;
"""

OnEvent = Callable[[str, str, str], None]


class _TurnLock:
    """A file lock with a timeout, for use by one thread."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._requests: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self._helper: threading.Thread | None = None
        self._is_waiting = False

    def acquire(self, seconds: float) -> None:
        """Acquire the lock; raises `TimeoutError`, or the `OSError` of the system."""
        if not self._is_waiting:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._start_waiting()
            else:
                return
        try:
            error = self._results.get(timeout=seconds)
        except queue.Empty:
            # The helper thread still waits. If it gets the lock, the next caller holds it.
            raise TimeoutError(
                errno.ETIMEDOUT, f"the database was locked by another process for {seconds:g} s"
            ) from None
        self._is_waiting = False
        if error is not None:
            raise error

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _start_waiting(self) -> None:
        self._is_waiting = True
        if self._helper is None:
            # Waiting for a file lock has no timeout and cannot be interrupted, so another thread waits.
            self._helper = threading.Thread(target=self._wait_forever, name="sqlite-turn", daemon=True)
            self._helper.start()
        self._requests.put(self._descriptor)

    def _wait_forever(self) -> None:
        while True:
            descriptor = self._requests.get()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                self._results.put(error)
            else:
                self._results.put(None)


class SharedSqliteDatabase(SqliteDatabase):
    """A database file opened by all processes of a server, which communicate over `channel`."""

    def __init__(self, path: Path, channel: ProcessChannel, *, clock: Clock | None = None) -> None:
        self._channel = channel
        self._changes: list[str] = []
        self._turn = _TurnLock(f"{path}.lock")
        super().__init__(path, clock=clock, is_alive=channel.is_alive)
        self._watch(self._writer)

    async def join(self, boot: str, on_event: OnEvent) -> None:
        """Call `on_event` with the state, id and engine of each prediction that another process changes."""
        if not self._channel.is_alive(boot):
            raise RuntimeError("the channel must be open under the name of this server")

        def notified(_sender: str, body: bytes) -> None:
            for line in body.decode().splitlines():
                state, prediction_id, engine = line.split(" ", 2)
                on_event(state, prediction_id, engine)

        self._channel.subscribe(STATE_CHANGED, notified)

    async def close(self) -> None:
        """Commit queued transactions, then close the file."""
        await super().close()
        self._turn.close()

    def commit_group(self, group: list[WriteJob]) -> None:
        """Run and commit a group, then notify the other processes."""
        self._changes.clear()
        super().commit_group(group)
        if self._changes:
            self._notify(group[0], "\n".join(self._changes).encode())

    def run_job(self, writer: sqlite3.Connection, job: WriteJob, *, alone: bool) -> None:
        """Run one transaction; the changes of a failed transaction are not announced."""
        before = len(self._changes)
        super().run_job(writer, job, alone=alone)
        if job.error is not None:
            del self._changes[before:]

    def _watch(self, writer: sqlite3.Connection) -> None:
        def changed(state: str, prediction_id: str, engine: str) -> None:
            self._changes.append(f"{state} {prediction_id} {engine}")

        writer.create_function("prediction_changed", 3, changed)
        writer.executescript(_TRIGGERS)

    def _notify(self, job: WriteJob, text: bytes) -> None:
        """Send the changes from the event loop, which owns the channel."""
        # Only the end of a long list is sent: a process that misses a change finds it by polling.
        body = text if len(text) <= MAX_BYTES else text[-MAX_BYTES:].split(b"\n", 1)[1]
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            job.loop.call_soon_threadsafe(self._channel.send, STATE_CHANGED, body)

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """Wait until no other process is writing, for at most as long as SQLite waits for a lock."""
        self._turn.acquire(BUSY_MS / 1000)
        try:
            yield
        finally:
            self._turn.release()
