"""Memory figures from Linux: the memory of this machine, and the memory that processes use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

# The share for workers; the remaining memory is for the server and the system.
_OURS = 0.9
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def for_workers(proc: Path = Path("/proc"), limits: tuple[str, ...] = _LIMITS) -> int:
    """Return the bytes that workers may use on this machine or in this container, or 0 if unknown."""
    amounts = [_kilobytes(proc / "meminfo", "MemTotal:")]
    for limit in limits:
        # A missing file belongs to the other cgroup version; `max` means that there is no limit.
        with suppress(OSError, ValueError):
            amounts.append(int(Path(limit).read_text("ascii")))
    return int(min(amounts) * _OURS)


def peak(pid: int | None) -> int:
    """Return the peak memory of a process and its descendants in bytes, or 0 if the process has ended."""
    if pid is None:
        return 0
    started: list[str] = []
    with suppress(OSError):
        started = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") + sum(peak(int(child)) for child in started)


def folder(path: Path) -> int:
    """Return the size in bytes of the largest subfolder.

    A family of weights has one subfolder for each model.
    """
    models = [model for model in path.glob("[!.]*") if model.is_dir()]
    sizes = (sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) for model in models)
    return max(sizes, default=0)


def _kilobytes(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0
