"""Bubblewrap sandboxes: programs with access to only the files and devices that they need.

Source: the manual bwrap(1), for versions 0.4 to 0.11. A sandbox has its own namespaces for processes, users,
mounts, IPC and, unless granted, the network. It contains the system's programs and libraries, this
interpreter, an empty `/tmp` and the granted paths; other files and processes are not visible.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

import sixfold

UNLOCK = "install Bubblewrap (`apt install bubblewrap`)"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
)
# A server in the sandbox connects to itself through `localhost`.
_HOSTS = Path(sixfold.__file__).parent / "data" / "hosts"
_NETWORK = ("/etc/resolv.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/pip.conf")
_NOBODY = "65534"
_TRY_SECONDS = 10
# Maximum size of each in-memory file system.
_MEMORY_BYTES = 256 * 2**20


class Sandbox(msgspec.Struct, frozen=True):
    """The permissions of a sandboxed process: `readable` paths, `writable` folders and the network.

    The working directory is `at`, or `/tmp` in the sandbox.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    network: bool = False
    at: Path | None = None


def command(cell: Sandbox) -> list[str]:
    """Return the arguments to prepend to a command; the sandbox ends with the process that started it."""
    size = ["--size", str(_MEMORY_BYTES)] if _recent() else []
    facts = (*_SYSTEM_FILES, *(_NETWORK if cell.network else ()), *map(str, _interpreter()))
    return [
        *(_program() or "bwrap", "--unshare-all", *(["--share-net"] if cell.network else [])),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", _NOBODY, "--gid", _NOBODY),
        *("--hostname", "sixfold", "--proc", "/proc", "--dev", "/dev"),
        *(*size, "--tmpfs", "/dev/shm", *size, "--tmpfs", "/tmp"),  # noqa: S108 - its own
        *(word for path in map(Path, _SYSTEM) for word in _system(path)),
        *(word for path in facts for word in ("--ro-bind-try", path, path)),
        *("--ro-bind-try", "/etc/hosts" if cell.network else str(_HOSTS), "/etc/hosts"),
        *(word for path in map(str, cell.readable) for word in ("--ro-bind", path, path)),
        *(word for path in map(str, cell.writable) for word in ("--bind", path, path)),
        *(["--unshare-user", "--disable-userns"] if _recent() else []),
        *("--remount-ro", "/", "--chdir", str(cell.at or "/tmp"), "--"),  # noqa: S108 - the same
    ]


def _system(path: Path) -> tuple[str, ...]:
    """Return the arguments that mount a system folder: as a link or a folder, as on this machine."""
    if path.is_symlink():
        return "--symlink", str(path.readlink()), str(path)
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


def fault() -> str:
    """Return as a clause why sandboxes do not work on this machine, or an empty string if they work."""
    return _probe() if _program() else "bubblewrap is not installed"


@functools.cache
def _probe() -> str:
    try:
        result = _try([*command(Sandbox()), sys.executable, "-c", ""])
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot run here: {error}"
    message = result.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
    return f"bubblewrap cannot run here: {message[-300:]}" if result.returncode else ""


def _program() -> str | None:
    return shutil.which("bwrap", path=os.defpath)


def _interpreter() -> Iterator[Path]:
    """Yield the folders of this interpreter, its packages and this program."""
    packages = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    candidates = [Path(sys.prefix), Path(sys.base_prefix), *packages, Path(sixfold.__file__).parents[1]]
    paths = sorted({path.absolute() for path in candidates if path.is_dir()})
    for path in paths:
        if not any(path != parent and path.is_relative_to(parent) for parent in (Path("/usr"), *paths)):
            yield path


@functools.cache
def _recent() -> bool:
    """Return whether this version of bwrap can limit in-memory file systems and disable user namespaces."""
    arguments = ("--unshare-user", "--disable-userns", "--unshare-pid", "--ro-bind", "/", "/")
    try:
        result = _try(
            [_program() or "bwrap", *arguments, "--size", "4096", "--tmpfs", "/tmp", "--", "/bin/true"]  # noqa: S108 - its own
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def _try(arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - the system's program, with words of our own
        arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECONDS, check=False
    )
