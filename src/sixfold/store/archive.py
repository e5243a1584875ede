"""Backups in a form that no database owns: one tar with a stream of rows per table, and every file.

    manifest.json        the format, the schema's number, and per table its columns, rows and hash
    tables/<name>.jsonl  one JSON array per row, in the order of the primary key; bytes as {"base64": "…"}
    store/<key>          what the media table names, by content
    uploads/<key>        the image kit's own folder, where that lies in the data folder
    blobs.jsonl          every file above with its size and BLAKE3 hash; what was missing; the end

Tables stand so that a row comes after those that it refers to. All rows are of one snapshot. Neither writing
nor reading holds more than a row, or a piece of a file, in memory.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import re
import tarfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

import blake3
import msgspec

FORMAT = "sixfold-backup/1"
Value = str | int | float | bytes | None
Row = Sequence[Value]

MANIFEST, BLOBS = "manifest.json", "blobs.jsonl"
_TABLE = re.compile(r"tables/([a-z_][a-z0-9_]{0,62})\.jsonl", re.ASCII)
_FILE = re.compile(r"(store|uploads)/((?:(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,255}(?:/(?!$)|$))+)", re.ASCII)
_MAX_MANIFEST_BYTES = 4 << 20
_MAX_LINE_BYTES = 256 << 20
_PIECE = 1 << 20


class ArchiveDamaged(Exception):
    """The file is no whole backup; the text says what is wrong with it."""


class ArchiveTable(msgspec.Struct, frozen=True):
    """One table of a backup."""

    name: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    blake3: str


class ArchiveManifest(msgspec.Struct, frozen=True):
    """What a backup says of itself, first of all."""

    format: str
    schema: int
    sixfold: str
    created_at: int
    tables: tuple[ArchiveTable, ...]


class BlobLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a backup; `missing` when its name was there and its bytes were not."""

    name: str
    bytes: int = 0
    blake3: str = ""
    missing: bool = False


class TableReader(Protocol):
    """One snapshot of a database, whatever writes beside it."""

    @property
    def schema(self) -> int:
        """The number of its schema."""
        ...

    def tables(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Names and columns; a table comes after those that it refers to."""
        ...

    def rows(self, table: str) -> Iterator[Row]:
        """Every row in the order of the primary key, texts compared by code point."""
        ...

    def blobs(self) -> Iterator[tuple[str, int | None]]:
        """Every key that a named file points to, with the epoch µs at which its last name expires.

        What expires first comes first, so that it is copied before it can go.
        """
        ...


class TableWriter(Protocol):
    """An empty database that takes a backup's rows."""

    def begin(self, schema: int) -> Mapping[str, tuple[str, ...]]:
        """Make the schema of this number, without a row; gives its tables and their columns."""
        ...

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Take a table's rows; raises `ArchiveDamaged` for one that the schema refuses."""
        ...

    def commit(self) -> None:
        """Keep what was loaded."""
        ...


# -- rows as text ----------------------------------------------------------------------------------


def encode_row(row: Row) -> bytes:
    """One line, its end included."""
    return msgspec.json.encode([_plain(value) for value in row]) + b"\n"


def _plain(value: Value) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def decode_row(line: bytes, columns: int) -> list[Value]:
    """The row of a line; raises `ArchiveDamaged`."""
    try:
        values = msgspec.json.decode(line, type=list[Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged("a row is no JSON array") from error
    if len(values) != columns or not line.endswith(b"\n"):
        raise ArchiveDamaged(f"a row has {len(values)} values where its table has {columns} columns")
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
    raise ArchiveDamaged("a row has a value that no column can hold")


class HashingStream:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = blake3.blake3()

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def blob_line(line: BlobLine) -> bytes:
    """The line that lists a file."""
    return msgspec.json.encode(line) + b"\n"


def forget_members(tar: tarfile.TarFile) -> None:
    """Let a tar forget what it has passed: it would remember each file of the store."""
    cast("Any", tar).members.clear()


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of a backup while it is read: which folder of the data folder, which key, its bytes."""

    folder: str
    key: str
    size: int
    _file: HashingStream

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, once."""
        while piece := self._file.read(_PIECE):
            yield piece

    @property
    def blake3(self) -> str:
        """The hash of what was read so far: of the whole after `pieces`."""
        return self._file.digest.hexdigest()


class Archive:
    """A backup that is read from its beginning to its end: `tables`, then `files`, then `missing`.

    Names in it are never used as paths. Everything raises `ArchiveDamaged` when the file is not whole.
    """

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._pending: tarfile.TarInfo | None = None
        self._seen = blake3.blake3()
        info = self._next()
        if info is None or info.name != MANIFEST or info.size > _MAX_MANIFEST_BYTES:
            raise ArchiveDamaged("it does not begin with a manifest")
        self.manifest = _manifest(self._open(info).read())
        self.missing: list[str] = []

    def tables(self) -> Iterator[tuple[ArchiveTable, Iterator[list[Value]]]]:
        """Each table with its rows, which must be read to the end."""
        for table in self.manifest.tables:
            info = self._next()
            if info is None or info.name != f"tables/{table.name}.jsonl" or info.size != table.bytes:
                raise ArchiveDamaged(f"the table {table.name} is not where the manifest has it")
            yield table, self._rows(table, self._open(info))

    def _rows(self, table: ArchiveTable, file: IO[bytes]) -> Iterator[list[Value]]:
        digest, count = blake3.blake3(), 0
        while line := _read_line(file):
            digest.update(line)
            count += 1
            yield decode_row(line, len(table.columns))
        if count != table.rows or digest.hexdigest() != table.blake3:
            raise ArchiveDamaged(f"the rows of {table.name} are not those that the manifest speaks of")

    def files(self) -> Iterator[ArchivedFile]:
        """Each file, whose bytes must be read to the end; then `missing` is known."""
        while True:
            info = self._next()
            if info is None:
                raise ArchiveDamaged("it ends too early")
            if info.name == BLOBS:
                self._finish(self._open(info))
                return
            found = _FILE.fullmatch(info.name)
            if found is None:
                raise ArchiveDamaged(f"it has a file {info.name[:80]!r} that no backup has")
            hashing = HashingStream(self._open(info))
            yield ArchivedFile(found[1], found[2], info.size, hashing)
            self._seen.update(blob_line(BlobLine(info.name, info.size, hashing.digest.hexdigest())))

    def _finish(self, lines: IO[bytes]) -> None:
        listed = blake3.blake3()
        while line := _read_line(lines):
            try:
                entry = msgspec.json.decode(line, type=BlobLine)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ArchiveDamaged("its list of files cannot be read") from error
            if entry.missing:
                self.missing.append(entry.name)
            else:
                listed.update(line)
        if listed.digest() != self._seen.digest():
            raise ArchiveDamaged("its files are not those that its list names")
        if self._next() is not None:
            raise ArchiveDamaged("something follows its end")

    def _next(self) -> tarfile.TarInfo | None:
        try:
            info = self._tar.next()
        except (tarfile.TarError, ValueError, EOFError, OSError, RecursionError) as error:
            raise ArchiveDamaged(f"it cannot be read on ({error})") from error
        forget_members(self._tar)
        plain = info is None or (
            info.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and cast("object", info.sparse) is None
        )
        if not plain:
            raise ArchiveDamaged("it holds something that is no plain file")
        return info

    def _open(self, info: tarfile.TarInfo) -> IO[bytes]:
        file = self._tar.extractfile(info)
        if file is None:
            raise ArchiveDamaged(f"{info.name} cannot be read")
        return cast("IO[bytes]", _Whole(file))


class _Whole:
    """A member's bytes; an early end of the file is `ArchiveDamaged`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        try:
            return self._file.read(size)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ArchiveDamaged(f"it cannot be read on ({error})") from error

    def readline(self, size: int = -1) -> bytes:
        """One line."""
        try:
            return self._file.readline(size)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ArchiveDamaged(f"it cannot be read on ({error})") from error


@contextlib.contextmanager
def opened(path: Path) -> Generator[Archive]:
    """A backup to read; raises `ArchiveDamaged` and `OSError`."""
    with path.open("rb") as file:
        try:
            tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - closed below; the error is translated
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise ArchiveDamaged("it is no tar file") from error
        with tar:
            yield Archive(tar)


def _manifest(data: bytes) -> ArchiveManifest:
    try:
        manifest = msgspec.json.decode(data, type=ArchiveManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged("its manifest cannot be read") from error
    if manifest.format != FORMAT:
        raise ArchiveDamaged(f"its format is {manifest.format[:40]!r}, and this program reads {FORMAT!r}")
    names = [table.name for table in manifest.tables]
    odd = [name for name in names if not _TABLE.fullmatch(f"tables/{name}.jsonl")]
    if odd or len(set(names)) != len(names):
        raise ArchiveDamaged("its manifest names a table that cannot be")
    return manifest


def _read_line(file: IO[bytes]) -> bytes:
    line = file.readline(_MAX_LINE_BYTES)
    if line and not line.endswith(b"\n"):
        raise ArchiveDamaged("a line has no end")
    return line
