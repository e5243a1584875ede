"""Temporary folders that are removed after their process has ended, even if the process was killed.

A killed process cannot remove its folders, so the next process that creates such a folder removes them. A
folder is in use while its process holds the lock on the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from pathlib import Path

_UNLOCKED, _LOCKED = "sixfold-new-", "sixfold-temp-"
# The beginnings of the names of folders, with that of earlier versions.
_PREFIXES = (_LOCKED, "sixfold-room-")


class OwnedTempDir:
    """A temporary folder that only its creator can read."""

    def __init__(self) -> None:
        clear()
        folder = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
        self._ending = contextlib.ExitStack()
        self._ending.callback(os.close, _lock(folder, fcntl.LOCK_EX))
        self.path = folder.rename(folder.with_name(folder.name.replace(_UNLOCKED, _LOCKED, 1)))
        self._ending.callback(shutil.rmtree, self.path, ignore_errors=True)

    def leave(self) -> None:
        """Remove the folder with its contents. Idempotent."""
        self._ending.close()


def clear() -> None:
    """Remove the folders on this machine whose creators have ended."""
    folder = Path(tempfile.gettempdir())
    for path in itertools.chain.from_iterable(folder.glob(f"{prefix}*") for prefix in _PREFIXES):
        # The creator of the folder is alive, or the folder belongs to another user.
        with contextlib.suppress(OSError):
            lock = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                shutil.rmtree(path)
            finally:
                os.close(lock)


def _lock(path: Path, how: int) -> int:
    """Return the descriptor that holds the lock on a folder; raises `OSError` if the folder is locked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
