"""The number of files and connections that a process may have open at once (RLIMIT_NOFILE).

A server raises its own soft limit as far as it may: each connection takes one descriptor, and each call that
is streamed from a model server takes another. Programs that it starts get a lower soft limit, since some of
them use select(), which cannot take a descriptor above 1,023: workers get the one that the server was started
with, sandboxed programs 1,024. Any of them may raise it again.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

MOST = 1 << 20  # Linux's own default maximum; a container's "unlimited" would be a billion
SELECTABLE = 1_024  # descriptors that select() can take
ENOUGH = 8_192  # below this, a server says so when it starts
_LOG = logging.getLogger("sixfold.server")
_started_with: list[int] = []


def raise_limit() -> int:
    """Raise this process's limit to its hard limit and return it; log a warning when that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft > wanted:
        wanted = soft
    elif soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _started_with[:] = [soft]
    if 0 <= wanted < ENOUGH:
        _LOG.warning(
            "This process may open only %s files and connections; each streamed call takes two. "
            "Raise the hard limit (ulimit -Hn, or LimitNOFILE in the systemd unit) to %s or more",
            f"{wanted:,}",
            f"{ENOUGH:,}",
        )
    return wanted


def restore(pid: int) -> None:
    """Give a child process the soft limit that this process was started with."""
    if _started_with:
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or belongs to another user
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(_started_with[0], hard), hard))


def lower_limit() -> None:
    """Lower the soft limit of this process to what select() can take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > SELECTABLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (SELECTABLE, hard))
