"""File locks that the system releases when their process ends."""

from __future__ import annotations

try:
    import fcntl
except ImportError:
    # Windows has no such locks; only commands that call a remote server run there.
    fcntl = None

AVAILABLE = fcntl is not None


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Try to take a lock without waiting; return True if it is held, or if the system has no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
