"""Local cache of remote blobs, limited in bytes; the least recently used files are deleted first.

Several processes may share a folder. Files are not synced, so each boot of the machine uses a separate
folder. A file that was lent recently is not deleted even above the limit, because a worker may be about to
open it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
import uuid
from pathlib import Path

import msgspec

from sixfold.store.file_store import STALE_SECONDS

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NEW = "~new"
_LOW_WATER = 0.9
_MAX_LENT = 10_000


class CacheLimits(msgspec.Struct, frozen=True):
    """The maximum size of the cache in bytes, and the seconds for which a lent file is not deleted."""

    bytes: int
    lent_seconds: float


class BlobCache:
    """A folder of files whose names are letters and digits; its methods block and raise `OSError`."""

    def __init__(self, folder: Path, bounds: CacheLimits) -> None:
        self._folder = folder.absolute()
        self._root = self._folder / _this_boot()
        self._bounds = bounds
        self._lock = threading.Lock()
        self._lent: dict[str, float] = {}
        self._bytes: int | None = None
        self._prepared = False

    def takes(self, size: int) -> bool:
        """Return whether a file of this size is cached when it is written."""
        return size <= self._bounds.bytes // 4

    def find(self, name: str) -> Path | None:
        """Return the path of a cached file, which must be opened immediately, or None if it is not cached."""
        path = self._root / name
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def lend(self, name: str) -> Path | None:
        """Return the path of a file that stays cached for `lent_seconds`, or None if it is not cached."""
        self._remember(name)
        return self.find(name)

    def _remember(self, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._lent) >= _MAX_LENT:
                since = now - self._bounds.lent_seconds
                self._lent = {other: at for other, at in self._lent.items() if at > since}
            self._lent[name] = now

    def new(self) -> Path:
        """Return a path for a new file, to be moved into the cache by `keep`."""
        folder = self._root / _NEW
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._prepared:
            self._tidy(folder)
            self._prepared = True
        return folder / uuid.uuid4().hex

    def keep(self, name: str, file: Path) -> Path:
        """Move a complete file, which must be on the same filesystem, into the cache."""
        path = self._root / name
        file.chmod(0o600)
        os.utime(file)
        size = file.stat().st_size
        file.rename(path)
        self._count(size)
        return path

    def write(self, name: str, data: bytes) -> None:
        """Cache bytes under a name."""
        file = self.new()
        try:
            file.write_bytes(data)
            self.keep(name, file)
        except OSError:
            file.unlink(missing_ok=True)
            raise

    def drop(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._root / name).unlink()

    def _count(self, size: int) -> None:
        with self._lock:
            if self._bytes is None:
                self._bytes = sum(stat.st_size for _, stat in self._files())
            else:
                self._bytes += size
            if self._bytes > self._bounds.bytes:
                self._bytes = self._shrink()

    def _shrink(self) -> int:
        """Delete the least recently used files; return the total size of the remaining ones."""
        since = time.monotonic() - self._bounds.lent_seconds
        files = sorted(self._files(), key=lambda item: item[1].st_mtime_ns)
        remaining = sum(status.st_size for _, status in files)
        for name, status in files:
            if remaining <= self._bounds.bytes * _LOW_WATER:
                break
            if self._lent.get(name, -math.inf) > since:
                continue
            with contextlib.suppress(FileNotFoundError):
                (self._root / name).unlink()
            remaining -= status.st_size
        return remaining

    def _files(self) -> list[tuple[str, os.stat_result]]:
        files: list[tuple[str, os.stat_result]] = []
        with os.scandir(self._root) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        files.append((entry.name, entry.stat(follow_symlinks=False)))
        return files

    def _tidy(self, new: Path) -> None:
        """Delete the folders of earlier boots, and temporary files of killed processes."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name != self._root.name:
                    shutil.rmtree(entry.path, ignore_errors=True)
        with os.scandir(new) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat().st_mtime < time.time() - STALE_SECONDS:
                        Path(entry.path).unlink()


def _this_boot() -> str:
    """Return the id of this boot, or a random one if the system has none."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text("ascii").strip()
    return uuid.uuid4().hex
