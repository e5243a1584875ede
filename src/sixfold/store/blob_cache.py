"""Files that lie elsewhere, kept at hand: bounded by bytes, and what was used longest ago goes first.

Several processes may share a folder. Nothing in it is synced, so it is believed until the machine starts anew
and no longer: each start of the machine has a folder of its own. What was lent lately stays, even over the
bound, as a worker may be about to open it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from sixfold.store.file_store import STALE_SECONDS

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NEW = "~new"
_LOW_WATER = 0.9
_MAX_LENT = 10_000


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How many bytes may lie there, and for how many seconds a file that was lent stays."""

    bytes: int
    lent_seconds: float


class BlobCache:
    """A folder of files by name (plain letters and digits); its methods block and raise `OSError`."""

    def __init__(self, folder: Path, bounds: CacheLimits) -> None:
        self._folder = folder.absolute()
        self._root = self._folder / _this_boot()
        self._bounds = bounds
        self._lock = threading.Lock()
        self._lent: dict[str, float] = {}
        self._bytes: int | None = None
        self._prepared = False

    def takes(self, size: int) -> bool:
        """Whether a file of this size is worth keeping without having been asked for."""
        return size <= self._bounds.bytes // 4

    def find(self, name: str) -> Path | None:
        """The file of that name, to be opened at once; None when there is none."""
        path = self._root / name
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def lend(self, name: str) -> Path | None:
        """The file of that name, which stays for a while now; None when there is none."""
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
        """The path of a new file, to be filled and then kept by `keep`."""
        folder = self._root / _NEW
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._prepared:
            self._tidy(folder)
            self._prepared = True
        return folder / uuid.uuid4().hex

    def keep(self, name: str, file: Path) -> Path:
        """Take a whole file (of this filesystem) in under a name."""
        path = self._root / name
        file.chmod(0o600)
        os.utime(file)
        size = file.stat().st_size
        file.rename(path)
        self._count(size)
        return path

    def write(self, name: str, data: bytes) -> None:
        """Keep some bytes under a name."""
        file = self.new()
        try:
            file.write_bytes(data)
            self.keep(name, file)
        except OSError:
            file.unlink(missing_ok=True)
            raise

    def drop(self, name: str) -> None:
        """Forget a file."""
        with contextlib.suppress(OSError):
            (self._root / name).unlink()

    def _count(self, size: int) -> None:
        with self._lock:
            if self._bytes is None:
                self._bytes = sum(found.st_size for _, found in self._files())
            else:
                self._bytes += size
            if self._bytes > self._bounds.bytes:
                self._bytes = self._shrink()

    def _shrink(self) -> int:
        """Remove what was used longest ago; gives how many bytes are left."""
        since = time.monotonic() - self._bounds.lent_seconds
        files = sorted(self._files(), key=lambda item: item[1].st_mtime_ns)
        left = sum(found.st_size for _, found in files)
        for name, found in files:
            if left <= self._bounds.bytes * _LOW_WATER:
                break
            if self._lent.get(name, -math.inf) > since:
                continue
            with contextlib.suppress(FileNotFoundError):
                (self._root / name).unlink()
            left -= found.st_size
        return left

    def _files(self) -> list[tuple[str, os.stat_result]]:
        found: list[tuple[str, os.stat_result]] = []
        with os.scandir(self._root) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        return found

    def _tidy(self, new: Path) -> None:
        """Remove what a power cut may have torn, and what a process that was killed never finished."""
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
    """A name that this start of the machine has alone; of this process where the system tells none."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text("ascii").strip()
    return uuid.uuid4().hex
