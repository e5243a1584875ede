"""The zip archive that `memory import` sends for a folder: its pages, documents, images, audio and videos."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from sixfold.core.documents import KINDS
from sixfold.core.memory.import_export import archives, attachments, paths

_ENDINGS = frozenset({*paths.ENDINGS, *KINDS, *attachments.ENDINGS})
# A server accepts 512 MiB unless SIXFOLD_UPLOAD_BODY_BYTES is set. Images, audio and videos beyond this size
# of the archive are omitted, so that the pages and documents of a folder with large videos are imported.
_MAX_BYTES = 480 * 2**20
OMITTED = (
    f"does not fit into the {_MAX_BYTES >> 20} MiB of an import: import it separately, with --folder for its "
    "folder"
)


class ImportFile(NamedTuple):
    """A file or archive to send, its size, and the files of the folder that are too large for the archive."""

    file: IO[bytes]
    size: int
    omitted: Sequence[str] = ()


@contextlib.contextmanager
def opened(source: Path, *, markdown_only: bool) -> Iterator[ImportFile]:
    """Open a file, or the archive of a folder."""
    if not source.is_dir():
        with source.open("rb") as file:
            yield ImportFile(file, source.stat().st_size)
        return
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            media = _add_files(archive, source, markdown_only=markdown_only)
            omitted: list[str] = []
            for path, name in media:
                if file.tell() + path.stat().st_size > _MAX_BYTES:
                    omitted.append(name)
                else:
                    archive.write(path, name)
        size = file.tell()
        file.seek(0)
        yield ImportFile(file, size, omitted)


def _add_files(archive: zipfile.ZipFile, source: Path, *, markdown_only: bool) -> list[tuple[Path, str]]:
    """Add the pages and documents of a folder; return the images, audio and videos with their names.

    Files that a server leaves out are added without their content, so that its report contains their names.
    """
    endings = paths.ENDINGS if markdown_only else _ENDINGS
    left_out, media = 0, list[tuple[Path, str]]()
    for path in sorted(source.rglob("*")):
        name = os.fsencode(path.relative_to(source)).decode("utf-8", "replace")
        ending = path.suffix.lower()
        if not (ending in paths.ENDINGS or _is_shown(name)) or not path.is_file():
            continue
        if ending in endings and path.is_symlink():
            archive.writestr(_link(name), "")
        elif ending in endings and attachments.is_attachment(name):
            media.append((path, name))
        elif ending in endings:
            archive.write(path, name)
        elif name.endswith(paths.SETTINGS) or (not markdown_only and left_out < archives.MAX_LEFT_OUT):
            left_out += 1
            archive.writestr(name, "")
    return media


def _is_shown(name: str) -> bool:
    """Return whether a file is outside hidden folders and is not hidden itself."""
    return not any(part.startswith(".") for part in name.split("/"))


def _link(name: str) -> zipfile.ZipInfo:
    """Return a zip entry for a symbolic link without its target; the server reports that it skips links."""
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info
