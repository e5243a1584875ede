"""Backups that operators start on the pages, by `sixfold backup` in a separate process.

The files are in `DATA/backups` of the machine whose server started the backup. The process continues after
the request and after the server ends. It holds the lock of `DATA/backups/lock` while it runs, and writes its
output to the `.log` file next to the backup, so every process of the server sees the same state.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.ports import BackupFile, BackupState, BackupView
from sixfold.core.database import Database, Transaction
from sixfold.settings import Settings, environment_with
from sixfold.store import file_locks
from sixfold.store.file_store import FileStore

MAX_BACKUPS = 50
_LOG_BYTES = 32_768
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02
_NAME = re.compile(r"sixfold-\d{8}-\d{6}(?:-\d{1,3})?\.tar")
_MISSING = re.compile(r'"missing_blobs":\s*(\d+)')
# The settings that the process needs besides the environment of the server.
_PASSED = ("database_url", "blob_url", "upload_url", "config")


_BOOT, _PROCESS_IDS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


class _RunningBackup(NamedTuple):
    """A backup that is being written, and the id of its process in a `space`, a container or a machine."""

    name: str = ""
    process: int = 0
    space: str = ""


class BackupFiles:
    """Implements `core.configuration.ports.BackupService`."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._folder = settings.data_dir / "backups"
        self._lock = self._folder / "lock"
        self._database = database
        self._store = FileStore(self._folder)

    @property
    def folder(self) -> str:
        """The path of the folder on this machine."""
        return str(self._folder)

    async def view(self) -> tuple[BackupView, ...]:
        """Return the backups on this machine, newest first."""
        return await asyncio.to_thread(lambda: tuple(self._views()))

    async def start(self, actor: Principal) -> str:
        """Begin a backup and return its name; raises `Conflict`."""
        if len(await self.view()) >= MAX_BACKUPS:
            raise errors.Conflict(f"This server keeps at most {MAX_BACKUPS} backups: delete one first")
        name = await asyncio.to_thread(self._spawn)
        await self._database.write(_noted(actor, "backup.start", name))
        return name

    async def open(self, actor: Principal, name: str) -> BackupFile:
        """Return a complete backup for a download, which is recorded; raises `NotFound`."""
        view = await self._find(name)
        if view.state != "ready":
            raise errors.NotFound(f"The backup {name[:60]} is not complete")
        await self._database.write(_noted(actor, "backup.download", name))
        tag = f"{view.created_at:x}-{view.size_bytes:x}"
        return BackupFile(self._store, view.name, view.size_bytes, tag)

    async def remove(self, actor: Principal, name: str) -> None:
        """Delete a backup, or stop one that is being written; raises `NotFound` and `Conflict`."""
        view = await self._find(name)
        await asyncio.to_thread(self._remove, view)
        action = "backup.stop" if view.state == "running" else "backup.remove"
        await self._database.write(_noted(actor, action, name))

    async def _find(self, name: str) -> BackupView:
        view = next((view for view in await self.view() if view.name == name), None)
        if view is None:
            raise errors.NotFound(f"The backup {name[:60]!r} was not found on this machine")
        return view

    def _views(self) -> Iterator[BackupView]:
        if not self._folder.is_dir():
            return
        running = self._running().name
        files = {path.name for path in self._folder.iterdir()}
        names = {name.removesuffix(".log") for name in files}
        for name in sorted(filter(_NAME.fullmatch, names), reverse=True):
            # A backup may be deleted meanwhile.
            with contextlib.suppress(FileNotFoundError):
                yield self._view(name, is_running=running == name, is_complete=name in files)

    def _view(self, name: str, *, is_running: bool, is_complete: bool) -> BackupView:
        state: BackupState = "running" if is_running else "ready" if is_complete else "failed"
        log = _read_end(self._folder / f"{name}.log")
        size, began = 0, datetime.strptime(name[8:23], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        if state != "failed":
            file = self._folder / (f"{name}.tmp" if is_running else name)
            with contextlib.suppress(FileNotFoundError):
                size = file.stat().st_size
        return BackupView(name, state, size, int(began.timestamp()) * 1_000_000, _problem(state, log))

    def _running(self) -> _RunningBackup:
        """Return the backup that is being written; its process is 0 while it is being started."""
        if not file_locks.is_locked(self._lock):
            return _RunningBackup()
        with contextlib.suppress(OSError, ValueError):
            process, space, name = self._lock.read_text().split(" ")
            return _RunningBackup(name, int(process), space)
        return _RunningBackup()

    def _spawn(self) -> str:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(lock)
            # The process of the backup before must not be waited for or killed in place of the new one.
            os.truncate(lock, 0)
            # A killed backup leaves these behind.
            for path in (*self._folder.glob("*.tmp"), *self._folder.glob("*.db")):
                path.unlink(missing_ok=True)
            log, name = self._new_log()
            _write_lock(lock, 0, name)
            command = [sys.executable, "-m", "sixfold", "backup", str(self._folder / name)]
            command += ["--json", "--data-dir", str(self._settings.data_dir)]
            with os.fdopen(log, "wb") as out:
                process = subprocess.Popen(  # noqa: S603 - the words are this module's
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=environment_with(_environment(self._settings)),
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            _write_lock(lock, process.pid, name)
        finally:
            # The process has its own copy of the descriptor, and with it the lock.
            os.close(lock)
        threading.Thread(target=process.wait, name="backup", daemon=True).start()
        return name

    def _new_log(self) -> tuple[int, str]:
        """Create the log of a backup with a new name; return its descriptor and the name."""
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        for ending in ("", *(f"-{number}" for number in range(2, 1000))):
            name = f"sixfold-{now}{ending}.tar"
            with contextlib.suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                return os.open(self._folder / f"{name}.log", flags, 0o600), name
        raise errors.Conflict("Too many backups were started in this second: try again")

    def _remove(self, view: BackupView) -> None:
        running = self._running()
        if running.name == view.name:
            if not running.process:
                raise errors.Conflict("The backup is being started: wait a second, then stop it")
            if running.space != _process_space():
                # Here, another process has this id.
                raise errors.Conflict(
                    "The backup is written by a server in another container or on another machine: stop it "
                    "there, or wait until it ends"
                )
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process, signal.SIGKILL)
            # The kernel releases the lock when the process has ended.
            with self._lock.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
        for ending in ("", ".tmp", ".db", ".log"):
            (self._folder / f"{view.name}{ending}").unlink(missing_ok=True)


def _lock(lock: int) -> None:
    """Lock the file; raises `Conflict`. A page that shows the backups holds its lock for a moment."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_SECONDS)
    raise errors.Conflict("A backup is being written: wait until it ends, or stop it")


def _write_lock(lock: int, process: int, name: str) -> None:
    os.truncate(lock, 0)
    os.pwrite(lock, f"{process} {_process_space()} {name}".encode(), 0)


def _process_space() -> str:
    """Identify the container, or the machine since its start, whose process ids this process sees."""
    with contextlib.suppress(OSError):
        return f"{_BOOT.read_text().strip()}/{_PROCESS_IDS.stat().st_ino}"
    return socket.gethostname()


def _noted(actor: Principal, action: str, name: str) -> Transaction[None]:
    yield actions.note(actor, action, f"backups.{name}")


def _environment(settings: Settings) -> Mapping[str, str]:
    values = {name: getattr(settings, name) for name in _PASSED}
    return {f"SIXFOLD_{name.upper()}": str(value) for name, value in values.items() if value}


def _problem(state: BackupState, log: str) -> str:
    """Return what is wrong with a backup in one sentence, or an empty string."""
    if state == "failed":
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        return lines[-1][:500] if lines else "The backup was interrupted: start another one"
    missing = _MISSING.search(log)
    if missing is None or missing[1] == "0":
        return ""
    return f"{missing[1]} files were missing from the store: the backup contains everything else"


def _read_end(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode(errors="replace")
    return ""
