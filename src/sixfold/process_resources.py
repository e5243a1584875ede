"""Resources of a process: limits on open files, memory (RLIMIT_DATA) and processes, and its allocator.

A server raises its own soft limit as far as allowed: each connection takes a file descriptor, and each call
that is streamed from a model server another one. Child processes get a lower soft limit, because some of them
use select(), which does not support descriptors above 1,023: workers get the limit with which the server was
started, and sandboxed programs 1,024. Any of them may raise it again.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress
from pathlib import Path

# The default maximum of Linux; "unlimited" in a container would be a billion.
_MAX_FILES = 1 << 20
# Number of descriptors that select() supports.
SELECTABLE = 1_024
# Below this limit, a server logs a warning at startup.
ENOUGH = 8_192
# An option of mallopt, and the size from which blocks are mapped.
_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES = -3, 2**20
# The kernel counts processes per sandbox, except for root.
_MAX_PROCESSES = 1024
_LOG = logging.getLogger("sixfold.server")
_started_with: list[int] = []


def raise_file_limit() -> int:
    """Raise this process's limit to its hard limit and return it; logs a warning if that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft > target:
        target = soft
    elif soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        _started_with[:] = [soft]
    if 0 <= target < ENOUGH:
        _LOG.warning(
            "This process may open only %s files and connections; each streamed call takes two. "
            "Raise the hard limit (ulimit -Hn, or LimitNOFILE in the systemd unit) to %s or more",
            f"{target:,}",
            f"{ENOUGH:,}",
        )
    return target


def restore_file_limit(pid: int) -> None:
    """Set a child process's soft limit to the one with which this process was started."""
    if _started_with:
        # The process may have ended or belong to another user.
        with suppress(ProcessLookupError, PermissionError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(_started_with[0], hard), hard))


def lower_file_limit() -> None:
    """Lower this process's soft limit to what select() supports."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > SELECTABLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (SELECTABLE, hard))


def limit_processes() -> None:
    """Limit the processes of the sandbox in which this process runs."""
    resource.setrlimit(resource.RLIMIT_NPROC, (_MAX_PROCESSES, _MAX_PROCESSES))


def limit_data(added_bytes: int) -> None:
    """Limit the memory that this process may allocate in addition to what it has; requires Linux."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    finite = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([data_bytes() + added_bytes, *finite]), hard))


def data_bytes() -> int:
    """Return the bytes of private memory of this process, which RLIMIT_DATA limits."""
    with suppress(OSError), Path("/proc/self/status").open() as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def return_large_blocks() -> None:
    """Return blocks of 1 MiB and more to the system when they are freed.

    By default, glibc stops doing so for blocks of up to 32 MiB after the first one was freed, and each thread
    may then retain twice as much. Other C libraries do not have this setting.
    """
    import ctypes  # noqa: PLC0415 - sandboxed programs, which import this module, do not need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def trim_heap() -> None:
    """Return unused pages of the heap to the system, which only glibc does not do on its own."""
    import ctypes  # noqa: PLC0415 - see `return_large_blocks`

    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
