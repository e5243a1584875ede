"""Backup archives: one tar file with the rows of every table and all stored files, for any database.

    manifest.json        the format, the schema version, and for each table its columns, rows and hash
    tables/<name>.jsonl  one JSON array per row, in the order of the primary key; bytes as {"base64": "…"}
    store/<key>          the blobs that the media table names
    uploads/<key>        the upload folder of the image API, if it is in the data folder
    blobs.jsonl          size and BLAKE3 hash of each file above, and the files that were missing; last member

A row comes after the rows that it refers to, and all rows are of one snapshot. Writing and reading hold at
most one row or one chunk of a file in memory.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import re
import tarfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, cast

import blake3
import msgspec

from sixfold import errors
from sixfold.core.input_limits import json_limits, tar_headers

FORMAT = "sixfold-backup/1"
Value = str | int | float | bytes | None
Row = Sequence[Value]

MANIFEST, BLOBS = "manifest.json", "blobs.jsonl"
_TABLE = re.compile(r"tables/([a-z_][a-z0-9_]{0,62})\.jsonl", re.ASCII)
_FILE = re.compile(r"(store|uploads)/((?:(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,255}(?:/(?!$)|$))+)", re.ASCII)
_MAX_MANIFEST_BYTES = 4 << 20
_MAX_LINE_BYTES = 256 << 20
# The most bytes of one read: the reader of tar files reads all bytes of an extended header at once.
_PIECE = 1 << 16
# The values of larger rows are counted before they are decoded: empty arrays take 30 times their size.
_LARGE_ROW_BYTES = 1 << 20


class ArchiveDamaged(Exception):
    """The file is not a complete backup; the message states the reason."""


class ArchiveTable(msgspec.Struct, frozen=True):
    """A table of a backup: its columns, and the count, size and hash of its rows."""

    name: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    blake3: str


class ArchiveManifest(msgspec.Struct, frozen=True):
    """The first member of a backup: its format, schema version, creation time and tables."""

    format: str
    schema: int
    sixfold: str
    created_at: int
    tables: tuple[ArchiveTable, ...]


class BlobLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry of one file.

    `missing` is set if the database refers to the file but the store does not contain it.
    """

    name: str
    bytes: int = 0
    blake3: str = ""
    missing: bool = False


def without_nul(row: Row) -> Row:
    """Return a row with U+FFFD in place of NUL, which PostgreSQL cannot store in text."""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row)


class TableReader(Protocol):
    """A reader of one snapshot of a database."""

    @property
    def schema(self) -> int:
        """The schema version."""
        ...

    def tables(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return the names and columns of all tables; each table comes after those that it refers to."""
        ...

    def rows(self, table: str) -> Iterator[Row]:
        """Yield all rows in the order of the primary key; strings are compared by code point."""
        ...

    def blobs(self) -> Iterator[tuple[str, int | None]]:
        """Yield each blob key with the time, in epoch µs, at which its last name expires.

        Keys that expire first come first, so that they are copied before they are deleted.
        """
        ...


class TableWriter(Protocol):
    """A writer of a backup's rows into an empty database."""

    def begin(self, schema: int) -> Mapping[str, tuple[str, ...]]:
        """Create the schema of this version without rows; return its tables and their columns."""
        ...

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert the rows of a table; raises `ArchiveDamaged` for a row that does not fit the schema."""
        ...

    def commit(self) -> None: ...


# -- encoding of rows ------------------------------------------------------------------------------


def encode_row(row: Row) -> bytes:
    """Return a row as a line of JSON, with its newline."""
    return msgspec.json.encode([_plain(value) for value in row]) + b"\n"


def _plain(value: Value) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def decode_row(line: bytes, columns: int) -> list[Value]:
    """Parse a line into a row; raises `ArchiveDamaged`."""
    try:
        if len(line) > _LARGE_ROW_BYTES:
            # A value is at most an object with one member.
            json_limits.JsonLimits(1 + columns, columns, 3 * columns + 1, len(line)).check(line)
        values = msgspec.json.decode(line, type=list[Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged("a row is not a JSON array") from error
    except errors.InputTooLarge as error:
        raise ArchiveDamaged(f"a row has more values than the {columns} columns of its table") from error
    if len(values) != columns or not line.endswith(b"\n"):
        raise ArchiveDamaged(f"a row has {len(values)} values, but its table has {columns} columns")
    return [_value(value) for value in values]


def _value(value: Any) -> Value:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    tagged = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    match tagged:
        case {"base64": str(text), **rest} if not rest:
            with contextlib.suppress(binascii.Error, ValueError):
                return base64.b64decode(text, validate=True)
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case _:
            pass
    raise ArchiveDamaged("a row has a value of an unknown type")


class HashingStream:
    """A file wrapper that hashes bytes as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = blake3.blake3()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def blob_line(line: BlobLine) -> bytes:
    """Return a file entry as a line of JSON."""
    return msgspec.json.encode(line) + b"\n"


def forget_members(tar: tarfile.TarFile) -> None:
    """Clear the tar file's list of members, which would otherwise grow with each file."""
    cast("Any", tar).members.clear()


# -- reading ---------------------------------------------------------------------------------------


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file of a backup being read: its folder in the data folder, its key and its content."""

    folder: str
    key: str
    size: int
    _file: HashingStream

    def pieces(self) -> Iterator[bytes]:
        """Yield the content; can be called once."""
        while piece := self._file.read(_PIECE):
            yield piece

    @property
    def blake3(self) -> str:
        """The hash of the bytes read so far; after `pieces`, the hash of the whole file."""
        return self._file.digest.hexdigest()


class Archive:
    """A backup read from start to end: `tables`, then `files`, then `missing`.

    Names in the archive are never used as paths. All methods raise `ArchiveDamaged` for an incomplete file.
    """

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._pending: tarfile.TarInfo | None = None
        self._seen = blake3.blake3()
        info = self._next()
        if info is None or info.name != MANIFEST or info.size > _MAX_MANIFEST_BYTES:
            raise ArchiveDamaged("it does not start with manifest.json")
        self.manifest = _manifest(self._open(info).read())
        self.missing: list[str] = []

    def tables(self) -> Iterator[tuple[ArchiveTable, Iterator[list[Value]]]]:
        """Yield each table with its rows, which the caller must read to the end."""
        for table in self.manifest.tables:
            info = self._next()
            if info is None or info.name != f"tables/{table.name}.jsonl" or info.size != table.bytes:
                raise ArchiveDamaged(f"the table {table.name} is not where the manifest lists it")
            yield table, self._rows(table, self._open(info))

    def _rows(self, table: ArchiveTable, file: IO[bytes]) -> Iterator[list[Value]]:
        digest, count = blake3.blake3(), 0
        while line := _read_line(file):
            digest.update(line)
            count += 1
            yield decode_row(line, len(table.columns))
        if count != table.rows or digest.hexdigest() != table.blake3:
            raise ArchiveDamaged(f"the rows of {table.name} do not match the hash in the manifest")

    def files(self) -> Iterator[ArchivedFile]:
        """Yield each file, which the caller must read to the end; `missing` is set afterwards."""
        while True:
            info = self._next()
            if info is None:
                raise ArchiveDamaged("it is truncated")
            if info.name == BLOBS:
                self._finish(self._open(info))
                return
            match = _FILE.fullmatch(info.name)
            if match is None:
                raise ArchiveDamaged(f"it has a file {info.name[:80]!r} that is not part of a backup")
            hashing = HashingStream(self._open(info))
            yield ArchivedFile(match[1], match[2], info.size, hashing)
            self._seen.update(blob_line(BlobLine(info.name, info.size, hashing.digest.hexdigest())))

    def _finish(self, lines: IO[bytes]) -> None:
        hasher = blake3.blake3()
        while line := _read_line(lines):
            try:
                entry = msgspec.json.decode(line, type=BlobLine)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ArchiveDamaged("its list of files cannot be read") from error
            if entry.missing:
                self.missing.append(entry.name)
            else:
                hasher.update(line)
        if hasher.digest() != self._seen.digest():
            raise ArchiveDamaged("its files do not match the hashes in blobs.jsonl")
        if self._next() is not None:
            raise ArchiveDamaged("it has members after blobs.jsonl")

    def _next(self) -> tarfile.TarInfo | None:
        try:
            info = self._tar.next()
        except (tarfile.TarError, ValueError, EOFError, OSError, RecursionError) as error:
            raise ArchiveDamaged(f"reading failed ({error})") from error
        forget_members(self._tar)
        plain = info is None or (
            info.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and cast("object", info.sparse) is None
        )
        if not plain:
            raise ArchiveDamaged("it has a member that is not a regular file")
        return info

    def _open(self, info: tarfile.TarInfo) -> IO[bytes]:
        file = self._tar.extractfile(info)
        if file is None:
            raise ArchiveDamaged(f"{info.name} cannot be read")
        return cast("IO[bytes]", _Member(file))


class _Member:
    """The content of a member; a truncated file raises `ArchiveDamaged`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ArchiveDamaged(f"reading failed ({error})") from error

    def readline(self, size: int = -1) -> bytes:
        try:
            return self._file.readline(size)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ArchiveDamaged(f"reading failed ({error})") from error


class _TarFile:
    """A file of which at most `_PIECE` bytes are read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > _PIECE:
            raise ArchiveDamaged(f"it has a header of more than {_PIECE:,} bytes")
        return self._file.read(size)


@contextlib.contextmanager
def open_archive(path: Path) -> Generator[Archive]:
    """Open a backup for reading; raises `ArchiveDamaged` and `OSError`."""
    with path.open("rb") as file:
        try:
            tar = tarfile.open(  # noqa: SIM115 - closed below; the error is translated
                fileobj=cast("IO[bytes]", _TarFile(file)), mode="r:", tarinfo=tar_headers.CheckedTarInfo
            )
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise ArchiveDamaged("it is not a tar file") from error
        with tar:
            yield Archive(tar)


def _manifest(data: bytes) -> ArchiveManifest:
    try:
        manifest = msgspec.json.decode(data, type=ArchiveManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged("its manifest cannot be read") from error
    if manifest.format != FORMAT:
        raise ArchiveDamaged(f"its format is {manifest.format[:40]!r}, but this version reads {FORMAT!r}")
    names = [table.name for table in manifest.tables]
    odd = [name for name in names if not _TABLE.fullmatch(f"tables/{name}.jsonl")]
    if odd or len(set(names)) != len(names):
        raise ArchiveDamaged("its manifest has an invalid or repeated table name")
    return manifest


def _read_line(file: IO[bytes]) -> bytes:
    line = file.readline(_MAX_LINE_BYTES)
    if line and not line.endswith(b"\n"):
        raise ArchiveDamaged(f"a line is longer than {_MAX_LINE_BYTES:,} bytes or has no newline")
    return line
