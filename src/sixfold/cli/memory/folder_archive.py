"""The zip archive that `memory import` sends for a folder: its pages, documents, images, audio and videos."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sixfold.core.documents import KINDS
from sixfold.core.memory.import_export import attachments, paths

_ENDINGS = frozenset({*paths.ENDINGS, *KINDS, *attachments.ENDINGS})
_MARKDOWN_ENDINGS = frozenset(paths.ENDINGS)
# The server lists at most this many.
_MAX_LEFT_OUT = 100


@contextlib.contextmanager
def opened(source: Path, *, markdown_only: bool) -> Iterator[tuple[IO[bytes], int]]:
    """Open a file, or the archive of a folder, and yield it with its size."""
    if not source.is_dir():
        with source.open("rb") as file:
            yield file, source.stat().st_size
        return
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            _add_files(archive, source, markdown_only=markdown_only)
        size = file.tell()
        file.seek(0)
        yield file, size


def _add_files(archive: zipfile.ZipFile, source: Path, *, markdown_only: bool) -> None:
    """Add the files of a folder.

    Files that a server leaves out are added without their content, so that its report contains their names.
    """
    endings = _MARKDOWN_ENDINGS if markdown_only else _ENDINGS
    left_out = 0
    for path in sorted(source.rglob("*")):
        name = os.fsencode(path.relative_to(source)).decode("utf-8", "replace")
        is_page = path.suffix.lower() in _MARKDOWN_ENDINGS
        if not path.is_file() or not (is_page or _is_shown(name)):
            continue
        if path.suffix.lower() in endings:
            archive.writestr(_link(name), "") if path.is_symlink() else archive.write(path, name)
        elif name.endswith(paths.SETTINGS) or (not markdown_only and left_out < _MAX_LEFT_OUT):
            left_out += 1
            archive.writestr(name, "")


def _is_shown(name: str) -> bool:
    """Return whether a file is outside hidden folders and is not hidden itself."""
    return not any(part.startswith(".") for part in name.split("/"))


def _link(name: str) -> zipfile.ZipInfo:
    """Return a zip entry for a symbolic link without its target; the server reports that it skips links."""
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info
