"""Files of a synchronized folder, whose content may come from anyone, such as an archive or a repository.

Only regular files are read: a FIFO would never end, and a symbolic link could lead out of the folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sixfold.cli.sync.state import SyncRefusal
from sixfold.cli.terminal import CommandError
from sixfold.core.memory.import_export import paths
from sixfold.core.memory.import_export.archives import is_file, is_page

FOLDER = ".sixfold"
CONFLICT = ".conflict-"
# A server rejects pages that are much smaller; this limits the memory of this process.
MAX_FILE_BYTES = 64 * 2**20
# About 2,000,000 pages.
MAX_STATE_BYTES = 512 * 2**20


def read(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file; raises `SyncRefusal` if it is not regular or too large, and `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SyncRefusal("it is not a regular file")
        # The size of a file may change while it is read.
        data = b"" if os.fstat(descriptor).st_size > max_bytes else file.read(max_bytes + 1)
        if os.fstat(descriptor).st_size > max_bytes or len(data) > max_bytes:
            raise SyncRefusal(f"it is larger than {max_bytes // 2**20} MiB")
        return data


def write_new(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file in place of any other at its path, which may be a symbolic link."""
    if os.path.lexists(path):
        path.unlink()
    with path.open("xb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def make_state_folder(folder: Path) -> None:
    """Create the folder of the state; raises `CommandError` if it is a link, as its files are deleted."""
    if folder.is_symlink():
        raise CommandError(f"{folder} is a symbolic link: remove it, and run the command again")
    folder.mkdir(mode=0o700, exist_ok=True)


class FolderFiles(NamedTuple):
    """The paths of the Markdown files of a folder, and the slugs that an import gives to its documents."""

    pages: Sequence[str]
    document_slugs: frozenset[str]


def list_files(folder: Path) -> FolderFiles:
    """List the files of a folder except hidden files, links and conflict copies."""
    pages: list[str] = []
    document_slugs: set[str | None] = set()
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(base) / name
            relative = path.relative_to(folder).as_posix()
            if is_page_path(relative):
                if not path.is_symlink():
                    pages.append(relative)
            elif is_file(relative) and is_text(relative):
                document_slugs.add(paths.slug(relative))
    return FolderFiles(pages, frozenset(filter(None, document_slugs)))


def is_page_path(path: str) -> bool:
    """Return whether a relative path belongs to a page: markdown, not hidden, not a conflict copy."""
    parts = path.split("/")
    plain = is_page(path) and CONFLICT not in path and "\\" not in path and "\0" not in path
    return plain and not any(part.startswith(".") or not part for part in parts)


def is_text(path: str) -> bool:
    """Return whether the bytes of a path are UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in path)


def stem(path: str) -> str:
    """Return a path without its suffix."""
    return path[: path.rindex(".")]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
