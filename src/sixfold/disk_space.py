"""Files whose size a client, another server or a program decides: they leave a part of the disk free."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any, Protocol

# The space that stays free: this much, or a part of a small disk.
_RESERVE_BYTES, _RESERVE_PART = 2**30, 20
# The free space is read again after this much.
_STEP_BYTES = 64 * 2**20


class WritableFile(Protocol):
    """A file that can be written."""

    def write(self, data: bytes | bytearray | memoryview, /) -> Any: ...


class SpaceLimitedFile:
    """A file in a folder; `write` raises `OSError` with ENOSPC before the disk is full."""

    def __init__(self, file: WritableFile, folder: Path) -> None:
        self._file = file
        self._folder = folder
        self._remaining = 0

    def write(self, data: bytes | bytearray | memoryview, /) -> Any:
        if len(data) > self._remaining:
            free, reserve = _free_and_reserve(self._folder)
            self._remaining = min(max(_STEP_BYTES, len(data)), free - reserve)
            if len(data) > self._remaining:
                raise OSError(
                    errno.ENOSPC, f"less than {reserve // 2**20:,} MiB of the disk would remain free", None
                )
        self._remaining -= len(data)
        return self._file.write(data)


def shortage(folder: Path) -> str:
    """Return as a clause that too little of a folder's disk is free, or an empty string."""
    free, reserve = _free_and_reserve(folder)
    return f"less than {reserve // 2**20:,} MiB of the disk were free" if free < reserve else ""


def _free_and_reserve(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.free, min(_RESERVE_BYTES, usage.total // _RESERVE_PART)
