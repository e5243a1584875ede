"""Locks on files that end with the process that holds them."""

from __future__ import annotations

try:
    import fcntl
except ImportError:
    # Windows has no such locks. Only commands that call a server elsewhere run there.
    fcntl = None

AVAILABLE = fcntl is not None


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Take a lock without waiting; True where the system has no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
