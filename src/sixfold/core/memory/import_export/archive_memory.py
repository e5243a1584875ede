"""Limit on the memory for archives that are imported at the same time.

The directory of a zip and the window of xz are in memory until all documents of the archive have been read.
"""

from __future__ import annotations

import struct
from pathlib import Path

from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.memory.import_export import archives

_MAX_BYTES = 256 * 2**20
# The memory for a zip's directory, in relation to its size.
_DIRECTORY_FACTOR = 10
_END, _END_RECORD = b"PK\5\6", struct.Struct("<4s8xI4xH")
# A record may have a comment of 64 KiB.
_MAX_TAIL = 2**16 + _END_RECORD.size


def limit() -> MemoryLimit:
    """Return a limit for all archives of a server."""
    return MemoryLimit(_MAX_BYTES, "Other archives are being imported: retry when their imports have ended")


def needed(archive: Path) -> int:
    """Return an estimate of the bytes that an archive takes while it is read, 0 for a few KiB."""
    with archive.open("rb") as opened:
        is_xz = opened.read(len(archives.XZ)) == archives.XZ
        opened.seek(max(0, archive.stat().st_size - _MAX_TAIL))
        tail = opened.read()
    return archives.MAX_DICTIONARY if is_xz else _DIRECTORY_FACTOR * _directory_bytes(tail)


def _directory_bytes(tail: bytes) -> int:
    last = len(tail) - _END_RECORD.size
    # As in `zipfile`, a record without a comment has precedence.
    for at in (last, tail.rfind(_END)):
        if 0 <= at <= last:
            mark, size, comment = _END_RECORD.unpack_from(tail, at)
            if mark == _END and (at != last or not comment):
                return min(size, archives.MAX_DIRECTORY)
    return 0
