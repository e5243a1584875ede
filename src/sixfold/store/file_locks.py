"""Locks on files that show whether another process is running.

A process locks a file with `flock` while it runs; the kernel releases the lock when the process ends for any
reason.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(path: Path | str, dir_fd: int | None = None) -> bool:
    """Return whether a process holds the lock of a file; `path` may be relative to the folder `dir_fd`.

    The result is True also if the lock cannot be tested, for example for lack of file descriptors.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        # Shared, so that two processes that check at once do not mistake each other for the holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
