"""A file with the state of a GPU, shared by the processes of one data folder.

The file is replaced under a lock, so readers do not need the lock. Each process also locks a separate file;
the kernel releases that lock when the process ends for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from sixfold.core.gpu.state import GpuState
from sixfold.store import file_locks

_LOG = logging.getLogger("sixfold.gpu")
# A process holds the lock for less than a millisecond, unless it is stopped.
_LOCK_SECONDS, _RETRY_SECONDS = 5.0, 0.002
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MAX_BYTES = 4 * 2**20


class GpuStateFile:
    """The state file of the GPU group `name` in `folder`, for the process `owner`."""

    def __init__(self, folder: Path, name: str, owner: str) -> None:
        self.owner = owner
        self._folder = folder
        self._path = folder / f"{_UNSAFE.sub('-', name)}.json"
        self._guard = -1
        self._own_lock = -1
        self._cached = GpuState()
        self._mark: tuple[int, int] | None = None

    async def update(self, change: Callable[[GpuState], None]) -> None:
        """Apply a change to the current state and store it; raises `OSError`."""
        self._open()
        await self._lock()
        try:
            state = self._load()
            change(state)
            self._store(state)
        finally:
            fcntl.flock(self._guard, fcntl.LOCK_UN)

    def read(self) -> GpuState:
        """Return the state; the file is parsed only if it has changed. Raises `OSError`."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return self._cached
        if (status.st_mtime_ns, status.st_ino) != self._mark:
            self._cached = self._load()
            self._mark = status.st_mtime_ns, status.st_ino
        return self._cached

    def is_alive(self, owner: str) -> bool:
        if owner == self.owner:
            return True
        if file_locks.is_locked(self._lock_path(owner)):
            return True
        # The name of the file is never used again.
        with contextlib.suppress(OSError):
            self._lock_path(owner).unlink()
        return False

    def close(self) -> None:
        """Release the locks. Idempotent."""
        if self._own_lock >= 0:
            with contextlib.suppress(OSError):
                self._lock_path(self.owner).unlink()
            os.close(self._own_lock)
            os.close(self._guard)
            self._own_lock = self._guard = -1

    def _lock_path(self, owner: str) -> Path:
        return self._folder / f"{_UNSAFE.sub('-', owner)}-{self._path.stem}.lock"

    def _open(self) -> None:
        if self._guard >= 0:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock_file = os.open(self._lock_path(self.owner), flags, 0o600)
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._own_lock = lock_file
        self._guard = os.open(self._path.with_suffix(".guard"), flags, 0o600)

    async def _lock(self) -> None:
        deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError(
                        f"{self._path} has been locked for {_LOCK_SECONDS:g} s: "
                        "resume or end the process that locks it"
                    ) from None
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _load(self) -> GpuState:
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_BYTES), type=GpuState)
        except FileNotFoundError:
            return GpuState()
        except msgspec.MsgspecError as error:
            _LOG.warning("the state of the GPU could not be read and was reset", extra={"reason": str(error)})
            return GpuState()

    def _store(self, state: GpuState) -> None:
        new = self._path.with_suffix(f".{_UNSAFE.sub('-', self.owner)}.new")
        new.write_bytes(msgspec.json.encode(state))
        new.replace(self._path)
        status = self._path.stat()
        self._cached, self._mark = state, (status.st_mtime_ns, status.st_ino)
