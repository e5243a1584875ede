"""Directories of zip archives, which are limited before `zipfile` reads them.

`zipfile` holds an object for each entry, and copies the rest of an extra field for each of its records, so
that a directory of 48 MB with long fields took 15 s.
"""

from __future__ import annotations

import struct
from typing import IO

from sixfold import errors

_ENTRY = b"PK\1\2"
# The lengths of the name, the extra field and the comment of an entry.
_RECORD = struct.Struct("<28x3H12x")
# Programs write at most 100 bytes, and the name in another encoding.
MAX_EXTRA = 4096
_MAX_TAIL = 2**17


class BoundedDirectory:
    """A zip file whose directory has at most `max_bytes` and `max_entries`."""

    def __init__(self, raw: IO[bytes], max_bytes: int, max_entries: int) -> None:
        self._raw = raw
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._loading = True
        self.seek, self.tell, self.close = raw.seek, raw.tell, raw.close

    def loaded(self) -> None:
        """Disable the checks after the directory has been read."""
        self._loading = False

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read bytes; raises `TooLarge` or `BadRequest` for a directory that exceeds a limit."""
        if not self._loading:
            return self._raw.read(size)
        if size > self._max_bytes:
            raise errors.TooLarge(
                f"The directory of the archive must have at most {self._max_bytes:,} bytes (got {size:,}): "
                "import its files in several archives"
            )
        data = self._raw.read(size if size >= 0 else _MAX_TAIL)
        if (entries := data.count(_ENTRY)) > self._max_entries:
            raise errors.TooLarge(
                f"The archive must have at most {self._max_entries:,} entries (got {entries:,}): "
                "import its files in several archives"
            )
        _check_extra_fields(data)
        return data


def _check_extra_fields(directory: bytes) -> None:
    at = 0
    while directory.startswith(_ENTRY, at) and len(directory) - at >= _RECORD.size:
        name, extra, comment = _RECORD.unpack_from(directory, at)
        if extra > MAX_EXTRA:
            raise errors.BadRequest(
                f"An extra field in the directory of the archive must have at most {MAX_EXTRA:,} bytes "
                f"(got {extra:,}): create it without additional metadata of files"
            )
        at += _RECORD.size + name + extra + comment
