"""A SQLite file that several processes of one server write, each with a writer thread of its own.

SQLite admits one writer at a time, and one that finds it busy sleeps and tries again. A file lock around each
commit makes the processes take turns instead. Changed states of predictions are sent to the other processes
after the commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path

from sixfold.core.clock import Clock
from sixfold.store.process_channel import MAX_BYTES, ProcessChannel
from sixfold.store.sqlite.database import SqliteDatabase, WriteJob

STATE_CHANGED = b"s"
# A temporary trigger belongs to a connection: a server with one process does not pay for it.
_TRIGGERS = """
CREATE TEMP TRIGGER prediction_queued AFTER INSERT ON main.prediction WHEN NEW.state = 'queued'
BEGIN SELECT prediction_changed(NEW.state, NEW.id, NEW.engine); END;
CREATE TEMP TRIGGER prediction_moved AFTER UPDATE OF state ON main.prediction WHEN OLD.state <> NEW.state
BEGIN SELECT prediction_changed(NEW.state, NEW.id, NEW.engine); END;
"""

OnEvent = Callable[[str, str, str], None]


class SharedSqliteDatabase(SqliteDatabase):
    """A database file opened by all processes of a server, which `channel` connects."""

    def __init__(self, path: Path, channel: ProcessChannel, *, clock: Clock | None = None) -> None:
        self._channel = channel
        self._changes: list[str] = []
        self._turn = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        super().__init__(path, clock=clock, is_alive=channel.is_alive)
        self._watch(self._writer)

    async def join(self, boot: str, on_event: OnEvent) -> None:
        """Call `on_event` with state, id and engine of each prediction that another process changes."""
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
        if self._turn >= 0:
            os.close(self._turn)
            self._turn = -1

    def commit_group(self, group: list[WriteJob]) -> None:
        """Run and commit a group, then notify the other processes."""
        self._changes.clear()
        super().commit_group(group)
        if self._changes:
            self._notify(group[0], "\n".join(self._changes).encode())

    def run_job(self, writer: sqlite3.Connection, job: WriteJob, *, alone: bool) -> None:
        """Run one transaction; the changes of a failing one are not announced."""
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
        """Wait until no other process writes."""
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
