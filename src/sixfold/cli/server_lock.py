"""One server per data folder: a lock file that also stores the server's process ID and URL."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sixfold.cli.terminal import CommandError
from sixfold.settings import Settings

try:
    import fcntl
except ImportError:
    # Windows does not support these locks; only commands that call a remote server run there.
    fcntl = None

_NAME = "server.lock"
_UPLOADS = "tmp"
_TRIES, _PAUSE_SECONDS = 5, 0.02


def take_file_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Try to acquire a lock without waiting; return True if that succeeds or locks are not supported.

    The system releases it when the process ends.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RunningServer(msgspec.Struct, frozen=True):
    """The server of a data folder: its process ID, its URL once it listens, and the kind of its database.

    `on_postgres` is None if the server has not written it yet.
    """

    pid: int
    url: str
    on_postgres: bool | None = None


class ServerLock:
    """The lock of a data folder, held until the server's process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_url(self, url: str, *, on_postgres: bool | None = None) -> None:
        """Write the URL and the kind of database of this server to the lock file, for other commands."""
        text = json.dumps({"pid": os.getpid(), "url": url, "on_postgres": on_postgres}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


def _delete_uploads(folder: Path) -> None:
    """Delete incomplete uploads left by a server that was killed."""
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.is_file():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def hold(data_dir: Path) -> Iterator[ServerLock]:
    """Hold the lock of a data folder; raises `CommandError` if another server holds it."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(data_dir / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _take_with_retries(descriptor):
            running_server = _read(descriptor)
            where = f" at {running_server.url}" if running_server.url else ""
            process = f" (process {running_server.pid})" if running_server.pid else ""
            raise CommandError(
                f"A server{process} is already running{where} for the data folder {data_dir}: stop it first, "
                "or use another --data-dir"
            )
        lock = ServerLock(descriptor)
        lock.write_url("")
        _delete_uploads(data_dir / _UPLOADS)
        yield lock
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def running(data_dir: Path) -> RunningServer | None:
    """Return the server that runs on a data folder, or None."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(data_dir / _NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if take_file_lock(descriptor, shared=True):
            return None
        return _read(descriptor)
    finally:
        os.close(descriptor)


def link_origin(settings: Settings) -> str:
    """Return the origin for links: the public URL, that of the running server, or that of the settings."""
    server = running(settings.data_dir)
    return settings.base_url if settings.public_url or not server or not server.url else server.url


def _take_with_retries(descriptor: int) -> bool:
    """Return whether the lock was acquired; retry, as commands that check for a server hold it briefly."""
    for _ in range(_TRIES):
        if take_file_lock(descriptor):
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _read(descriptor: int) -> RunningServer:
    try:
        data = json.loads(os.pread(descriptor, 4096, 0))
        return RunningServer(int(data["pid"]), str(data["url"]), data.get("on_postgres"))
    except (ValueError, KeyError, TypeError):
        return RunningServer(0, "")
