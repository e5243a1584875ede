"""Messages between the processes of one server, and detection of the processes that are alive.

Each process binds a datagram socket in a folder and holds a lock on a file of the same name. The kernel
releases the lock when the process ends for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from sixfold.store import file_locks

_LOG = logging.getLogger("sixfold.processes")
_LOCK = ".lock"
_GUARD = "guard"
# Larger messages do not fit the kernel's default buffer of a socket.
MAX_BYTES = 128 * 1024
_MAX_BACKLOG = 1000
_MAX_BACKLOG_BYTES = 8 * 2**20
_RETRY_SECONDS = 0.002
_GRANULARITY_NS = 100_000_000
_FULL = {errno.ENOBUFS, errno.ENOMEM}
_REFUSED = {errno.ECONNREFUSED, errno.ENOENT, errno.ENOTCONN, errno.ECONNRESET}

Handler = Callable[[str, bytes], None]


class _Backlog:
    """The messages for a peer whose queue is full; the oldest are dropped above a number and a size."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self._size = 0

    def add(self, message: bytes) -> None:
        self.messages.append(message)
        self._size += len(message)
        while len(self.messages) > _MAX_BACKLOG or self._size > _MAX_BACKLOG_BYTES:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        self._size -= len(self.messages.popleft())


class ProcessChannel:
    """A process's socket in a folder that it shares with the other processes of its server.

    Use it from one event loop; `is_alive` may be called by any thread. A message consists of a kind (one
    byte) and a body. It reaches each peer once, or never if the peer's queue stays full.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = ""
        self._directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._lock = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: dict[bytes, Handler] = {}
        self._peers: tuple[str, ...] = ()
        self._read_at = -1
        self._backlogs: dict[str, _Backlog] = {}
        self._retry: asyncio.TimerHandle | None = None

    def open(self, name: str) -> None:
        """Join as `name`, receive messages in the running event loop, and delete files of ended processes."""
        self.name = name
        self._loop = asyncio.get_running_loop()
        with self._guard():
            for other in self._names():
                if not self.is_alive(other):
                    self._unlink(other)
            self._lock = self._open(name + _LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._socket.bind(self._address(name))
        self._loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Stop receiving and delete this process's files. Idempotent."""
        if self._directory < 0:
            return
        if self._retry is not None:
            self._retry.cancel()
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._unlink(self.name)
            os.close(self._lock)
        self._socket.close()
        os.close(self._directory)
        self._directory = -1

    def subscribe(self, kind: bytes, handler: Handler) -> None:
        """Call `handler` with the sender's name and the body of each message of a kind."""
        self._handlers[kind] = handler

    def peers(self) -> tuple[str, ...]:
        """Return the names of the other processes that are alive."""
        changed_at = os.fstat(self._directory).st_mtime_ns
        # A second change within this time could have the same modification time.
        if changed_at != self._read_at or time.time_ns() - changed_at < _GRANULARITY_NS:
            try:
                names = self._names()
            except OSError as error:
                _LOG.warning("the processes of this server cannot be listed", extra={"reason": str(error)})
                return self._peers
            self._read_at = changed_at
            self._peers = tuple(name for name in names if name != self.name and self.is_alive(name))
            self._backlogs = {name: log for name, log in self._backlogs.items() if name in self._peers}
        return self._peers

    def is_alive(self, name: str) -> bool:
        if not name or "/" in name:
            return False
        if name == self.name:
            return True
        return file_locks.is_locked(name + _LOCK, self._directory)

    def send(self, kind: bytes, body: bytes, to: Iterable[str] | None = None) -> None:
        """Send a message to some peers (default: all); raises `ValueError` if the body is too large."""
        if len(body) > MAX_BYTES:
            raise ValueError(
                f"a message between processes must be at most {MAX_BYTES:,} bytes (got {len(body):,})"
            )
        message = kind + self.name.encode() + b"\0" + body
        for peer in self.peers() if to is None else to:
            backlog = self._backlogs.get(peer)
            if (backlog and backlog.messages) or not self._deliver(peer, message):
                self._backlogs.setdefault(peer, _Backlog()).add(message)
                self._retry_later()

    def _deliver(self, peer: str, message: bytes) -> bool:
        """Send a message; return False if the peer's queue is full. A message to an ended peer is dropped."""
        try:
            self._socket.sendto(message, self._address(peer))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _FULL:
                return False
            if error.errno not in _REFUSED:
                _LOG.warning("a message between processes was lost", extra={"reason": str(error)})
                return True
            # A killed process leaves its files; the next one that starts deletes them.
            self._peers = tuple(name for name in self._peers if name != peer)
        return True

    def _retry_later(self) -> None:
        if self._retry is None and self._loop is not None:
            self._retry = self._loop.call_later(_RETRY_SECONDS, self._send_backlogs)

    def _send_backlogs(self) -> None:
        self._retry = None
        for peer, backlog in self._backlogs.items():
            while backlog.messages and self._deliver(peer, backlog.messages[0]):
                backlog.drop_oldest()
        if any(backlog.messages for backlog in self._backlogs.values()):
            self._retry_later()

    def _receive(self) -> None:
        while True:
            try:
                message = self._socket.recv(MAX_BYTES + 1024)
            except (BlockingIOError, InterruptedError):
                return
            sender, _, body = message[1:].partition(b"\0")
            handler = self._handlers.get(message[:1])
            if handler is not None:
                handler(sender.decode(), body)

    def _names(self) -> list[str]:
        names = os.listdir(self._directory)  # noqa: PTH208 - pathlib has no paths of descriptors
        return [name.removesuffix(_LOCK) for name in names if name.endswith(_LOCK)]

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self._directory)

    def _address(self, name: str) -> str:
        """Return the address of a peer's socket, shorter than the system's limit of 107 bytes."""
        return f"/proc/self/fd/{self._directory}/{name}"

    def _unlink(self, name: str) -> None:
        for file in (name, name + _LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file, dir_fd=self._directory)

    @contextlib.contextmanager
    def _guard(self) -> Generator[None]:
        """Hold the lock for joining and leaving, so that one process cannot delete another's new files."""
        descriptor = self._open(_GUARD, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
