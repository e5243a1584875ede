"""Extended headers (pax) of tar archives, which are checked before `tarfile` reads them.

Before Python 3.11.10 and 3.12.6, it searches digits in a time that grows with the square of their number,
without letting other threads run: 500 KB took hours. Malformed records made it copy the rest of the header
for each of them. Source: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html, "pax Extended
Header".
"""

from __future__ import annotations

import tarfile
from typing import Any, cast

# Consecutive digits in a header, for example in the name of a file.
MAX_DIGITS = 128
_LENGTH_DIGITS = 20
_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))


class CheckedTarInfo(tarfile.TarInfo):
    """A member of an archive, whose extended headers are checked; used as `tarinfo` of `tarfile.open`."""

    def _proc_pax(self, archive: Any) -> Any:
        archive.fileobj = _CheckedRead(archive)
        return cast("Any", super())._proc_pax(archive)


class _CheckedRead:
    """The file of an archive, for one read of records."""

    def __init__(self, archive: Any) -> None:
        self._archive, self._file = archive, archive.fileobj

    def read(self, size: int) -> bytes:
        self._archive.fileobj = self._file
        records: bytes = self._file.read(size)
        check(records)
        return records


def check(records: bytes) -> None:
    """Raise `ReadError` for malformed records, and for more than `MAX_DIGITS` digits in a row.

    A record is its length in bytes, a space, a keyword, an equals sign, a value and a line end. Zeros follow
    the last record.
    """
    if b"0" * (MAX_DIGITS + 1) in records.translate(_DIGITS):
        raise tarfile.ReadError(f"a header has more than {MAX_DIGITS} digits in a row")
    at = 0
    while at < len(records) and records[at]:
        length = records[at : at + _LENGTH_DIGITS + 1].partition(b" ")[0]
        end = at + int(length) if length.isdigit() else 0
        record = records[at:end]
        if not record.endswith(b"\n") or b"=" not in record or end > len(records):
            raise tarfile.ReadError("an extended header is malformed")
        at = end
