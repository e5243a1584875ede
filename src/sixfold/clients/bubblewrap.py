"""Bubblewrap: programs that see of this machine only what they run on.

Source: its manual, bwrap(1), and what 0.4 to 0.11 do. A cell has namespaces of its own for processes, users,
mounts, IPC and, unless it is granted, the network; in it are the system's programs and libraries, this
interpreter, an empty `/tmp`, and what it is shown. No file of the user's is there, and no other process.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sixfold

UNLOCK = "install Bubblewrap (`apt install bubblewrap`)"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_FACTS = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
)
_HOSTS = Path(sixfold.__file__).parent / "data" / "hosts"  # a server asks itself by `localhost`
_NETWORK = (
    "/etc/resolv.conf",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pip.conf",
)
_NOBODY = "65534"
_TRY_SECONDS = 10
_MEMORY_BYTES = 256 * 2**20  # of each disk that is in memory


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a program is shut in with: paths that it may read, folders that it may write, the network.

    It stands `at` a folder, or in its `/tmp`.
    """

    shown: tuple[Path, ...] = ()
    own: tuple[Path, ...] = ()
    network: bool = False
    at: Path | None = None


def command(cell: Sandbox) -> list[str]:
    """What stands before a program's own command line; everything in it dies with who started it."""
    size = ["--size", str(_MEMORY_BYTES)] if _recent() else []
    facts = (*_FACTS, *(_NETWORK if cell.network else ()), *map(str, _interpreter()))
    return [
        *(_program() or "bwrap", "--unshare-all", *(["--share-net"] if cell.network else [])),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", _NOBODY, "--gid", _NOBODY),
        *("--hostname", "sixfold", "--proc", "/proc", "--dev", "/dev"),
        *(*size, "--tmpfs", "/dev/shm", *size, "--tmpfs", "/tmp"),  # noqa: S108 - its own
        *(word for path in map(Path, _SYSTEM) for word in _system(path)),
        *(word for path in facts for word in ("--ro-bind-try", path, path)),
        *("--ro-bind-try", "/etc/hosts" if cell.network else str(_HOSTS), "/etc/hosts"),
        *(word for path in map(str, cell.shown) for word in ("--ro-bind", path, path)),
        *(word for path in map(str, cell.own) for word in ("--bind", path, path)),
        *(["--unshare-user", "--disable-userns"] if _recent() else []),
        *("--remount-ro", "/", "--chdir", str(cell.at or "/tmp"), "--"),  # noqa: S108 - the same
    ]


def _system(path: Path) -> tuple[str, ...]:
    """How a folder of the system is shown: as the link or the folder that it is here, if it is here."""
    if path.is_symlink():
        return "--symlink", str(path.readlink()), str(path)
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


def fault() -> str:
    """Why no program can be shut in here, as a clause; nothing where one can."""
    return _tried() if _program() else "bubblewrap is not installed"


@functools.cache
def _tried() -> str:
    try:
        tried = _try([*command(Sandbox()), sys.executable, "-c", ""])
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot run here: {error}"
    said = tried.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
    return f"bubblewrap cannot run here: {said[-300:]}" if tried.returncode else ""


def _program() -> str | None:
    return shutil.which("bwrap", path=os.defpath)


def _interpreter() -> Iterator[Path]:
    """This interpreter, its packages and this program, none below another; no other folder of its path."""
    packages = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    wanted = [Path(sys.prefix), Path(sys.base_prefix), *packages, Path(sixfold.__file__).parents[1]]
    found = sorted({path.absolute() for path in wanted if path.is_dir()})
    for path in found:
        if not any(path != above and path.is_relative_to(above) for above in (Path("/usr"), *found)):
            yield path


@functools.cache
def _recent() -> bool:
    """Whether this version can limit memory that serves as a disk, and refuse user namespaces inside."""
    asked = ("--unshare-user", "--disable-userns", "--unshare-pid", "--ro-bind", "/", "/")
    try:
        said = _try(
            [_program() or "bwrap", *asked, "--size", "4096", "--tmpfs", "/tmp", "--", "/bin/true"]  # noqa: S108 - its own
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0


def _try(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - the system's program, with words of our own
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECONDS, check=False
    )
