"""Folders of this machine that go with the process that made them, however it ends.

A process that is killed removes nothing, so the next process that creates a directory here removes what it
left: a directory is in use for as long as its process holds the lock on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_UNLOCKED, _LOCKED = "sixfold-new-", "sixfold-room-"


class OwnedTempDir:
    """A folder of one's own, for its maker alone to read."""

    def __init__(self) -> None:
        clear()
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
        self._ending = contextlib.ExitStack()
        self._ending.callback(os.close, _lock(made, fcntl.LOCK_EX))
        self.path = made.rename(made.with_name(made.name.replace(_UNLOCKED, _LOCKED, 1)))
        self._ending.callback(shutil.rmtree, self.path, ignore_errors=True)

    def leave(self) -> None:
        """Remove it with all that is in it. Idempotent."""
        self._ending.close()


def clear() -> None:
    """Remove the rooms of this machine whose makers are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_LOCKED}*"):
        with contextlib.suppress(OSError):  # its maker lives, or it is another user's
            lock = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                shutil.rmtree(path)
            finally:
                os.close(lock)


def _lock(path: Path, how: int) -> int:
    """The descriptor that holds the lock on a folder; raises `OSError` where it cannot be had."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
