"""What Linux tells of memory: how much this machine has, and how much a process has taken."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_OURS = 0.9  # the rest is the server's own, and the system's
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def for_workers(proc: Path = Path("/proc"), limits: tuple[str, ...] = _LIMITS) -> int:
    """What workers may take of this machine or of the container it is; 0 where nobody tells."""
    found = [_kilobytes(proc / "meminfo", "MemTotal:")]
    for limit in limits:
        with suppress(OSError, ValueError):  # the other version's, or `max`
            found.append(int(Path(limit).read_text("ascii")))
    return int(min(found) * _OURS)


def peak(pid: int | None) -> int:
    """The most that a process and what it has started have taken; 0 where it is gone."""
    if pid is None:
        return 0
    started: list[str] = []
    with suppress(OSError):
        started = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") + sum(peak(int(child)) for child in started)


def folder(place: Path) -> int:
    """The bytes of the largest folder in this one, such as a family of weights has one for each model."""
    models = [model for model in place.glob("[!.]*") if model.is_dir()]
    sizes = (sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) for model in models)
    return max(sizes, default=0)


def _kilobytes(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0
