"""Edits of a file's bytes, and memory-mapped files as bytes."""

from __future__ import annotations

import io
import itertools
import mmap
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.core.provenance.manifest import MAX_TEXT_BYTES

_PIECE_BYTES = 1 << 20
_ZEROS = bytes(1 << 16)


class Unembeddable(MalformedFile):
    """The file is malformed, or its format cannot contain a manifest."""


class FileEdit(NamedTuple):
    """The replacement of the bytes from `start` to `end` with `new`."""

    start: int
    end: int
    new: bytes


def ordered(changes: Iterable[FileEdit]) -> list[FileEdit]:
    """Sort edits by position, stably; raises `Unembeddable` if they overlap."""
    result = sorted(changes, key=lambda edit: edit.start)
    if any(one.end > other.start for one, other in itertools.pairwise(result)):
        raise Unembeddable("the file's parts overlap")
    return result


def zeros(start: int, end: int) -> Iterator[FileEdit]:
    """Yield edits that overwrite these bytes; all pieces have the same zeros, so they take little memory."""
    for at in range(start, end, len(_ZEROS)):
        yield FileEdit(at, min(at + len(_ZEROS), end), _ZEROS[: end - at])


def zeros_of(spans: Iterable[tuple[int, int]]) -> Iterator[FileEdit]:
    """Yield edits that overwrite these spans, which may overlap; each byte is overwritten once."""
    done = 0
    for start, end in sorted(spans):
        yield from zeros(max(start, done), end)
        done = max(done, end)


def splice(data: bytes, changes: Iterable[FileEdit]) -> bytes:
    """Apply sorted edits."""
    parts: list[bytes] = []
    at = 0
    for start, end, new in changes:
        parts += [data[at:start], new]
        at = end
    return b"".join([*parts, data[at:]])


class MappedFile(mmap.mmap):
    """A memory-mapped file with the methods of `bytes` that readers use."""

    def startswith(self, prefix: bytes | tuple[bytes, ...], at: int = 0) -> bool:
        prefixes = prefix if isinstance(prefix, tuple) else (prefix,)
        return any(self[at : at + len(prefix)] == prefix for prefix in prefixes)

    def decode(self) -> str:
        """Decode the whole content, which is read into memory."""
        return self[:].decode()


@contextmanager
def mapped(file: IO[bytes]) -> Generator[bytes]:
    """Map an open file; for a file in memory, return its content."""
    if isinstance(file, io.BytesIO):
        yield file.getvalue()
    elif os.fstat(file.fileno()).st_size == 0:
        # An empty file cannot be mapped.
        yield b""
    else:
        with MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # A mapping supports the methods of `bytes` that readers use.
            yield cast("bytes", data)


def apply(path: Path, changes: Sequence[FileEdit]) -> None:
    """Apply sorted edits to a file: in place if all data keeps its position, else with a temporary file."""
    size = path.stat().st_size
    if all(len(edit.new) == edit.end - edit.start or edit.start == size for edit in changes):
        with path.open("r+b") as file:
            for edit in changes:
                file.seek(edit.start)
                file.write(edit.new)
        return
    beside = path.with_name(f"{path.name}.edited")
    try:
        with path.open("rb") as file, beside.open("wb") as out:
            for start, end, new in changes:
                _copy(file, out, start - file.tell())
                out.write(new)
                file.seek(end)
            _copy(file, out, size - file.tell())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _copy(file: BinaryIO, out: BinaryIO, count: int) -> None:
    while count > 0 and (piece := file.read(min(count, _PIECE_BYTES))):
        out.write(piece)
        count -= len(piece)


def text_of(raw: bytes) -> str | None:
    """Decode an embedded text; return None if it is too long or not UTF-8."""
    if len(raw) > MAX_TEXT_BYTES:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
