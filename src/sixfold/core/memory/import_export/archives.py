"""Files of pages: archives are read here, without trust. Nothing is unpacked to disk, no link is followed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from sixfold import errors
from sixfold.core.input_budget import InputBudget, Limit
from sixfold.core.memory.import_export import paths
from sixfold.core.memory.limits import MemoryLimits

MAX_ERRORS = 1_000
_MAX_DIRECTORY = 48 * 2**20  # bytes of a zip's list of members, which must be held in memory
_MAX_HEADERS = 2**20  # bytes of the headers of one member of a tar
_FREE_BYTES = 64 * 2**20  # unpacked bytes that an archive of any size may have
_RATIO = 100  # unpacked bytes for each byte beyond
_ENTRY = b"PK\1\2"
_MAX_TAIL = 2**17
_MAX_DICTIONARY = 128 * 2**20  # bytes of memory for xz; `xz -9` asks for 65 MiB
_CHUNK = 2**16
# The library unpacks other methods without a limit on the output of one read.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NO_ARCHIVE = "The file is no zip or tar archive that can be read"
_ENCRYPTED = 1
_UTF8_NAME = 0x800
_NOT_PAGES = re.compile(r"__MACOSX/|([^/]+/)?logseq/(bak|version-files)/|(.*/)?\._[^/]*$", re.DOTALL)
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One markdown file: its path in the archive, and its text or why there is none."""

    path: str
    text: str = ""
    error: str = ""


@dataclass(slots=True)
class ImportReport:
    """What an import has done so far."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def refuse(self, path: str, why: str) -> None:
        """Note a file that could not be taken."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append((path[: paths.MAX_CHARS], why))
        elif len(self.errors) == MAX_ERRORS:
            self.errors.append(("", f"More files were not taken: the first {MAX_ERRORS} are told here"))


def files(archive: Path, limits: MemoryLimits, report: ImportReport) -> Iterator[ArchiveMember]:
    """The markdown files of a zip or tar archive in its order; everything else counts as skipped.

    Raises `BadRequest` for what is no archive, `TooLarge` when it holds more than `limits` allow.
    """
    with _reading():
        if zipfile.is_zipfile(archive):
            yield from _zipped(archive, limits, report)
        else:
            yield from _tarred(archive, limits, report)


@contextlib.contextmanager
def _reading() -> Generator[None]:
    """Whatever a damaged archive makes its readers say, said as `BadRequest`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # the disk's own; a decompressor's has none
            raise
        raise errors.BadRequest(_NO_ARCHIVE) from error
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise errors.BadRequest(_NO_ARCHIVE) from error


def outliner(archive: Path, limits: MemoryLimits) -> str | None:
    """Where in an archive the folders of an outliner lie; None where there are none.

    Raises `TooLarge` when the archive holds more than `limits` allow, before any of its files is read.
    """
    with contextlib.suppress(errors.BadRequest), _reading():
        if zipfile.is_zipfile(archive):
            with _opened(archive, limits) as opened:
                return paths.outliner([_zip_name(info) for info in _listed(opened, _budget(archive, limits))])
        with _members(archive, limits) as members:
            return paths.outliner([member.name for member in members if member.name.endswith(paths.SETTINGS)])
    return None


def _budget(archive: Path, limits: MemoryLimits) -> InputBudget:
    """How many files, folders and unpacked bytes an archive may have."""
    entries = Limit(limits.import_files, "The archive has more than {} entries", errors.TooLarge)
    size = Limit(limits.import_bytes, "The archive holds more than {} bytes", errors.TooLarge)
    unpacked = _FREE_BYTES + _RATIO * archive.stat().st_size
    if unpacked < size.most:
        message = f"The archive unpacks to more than {_RATIO} times its size"
        size = Limit(unpacked, message, errors.TooLarge)
    return InputBudget(files=entries, folders=entries, bytes=size)


def _count(budget: InputBudget, *, folder: bool) -> None:
    budget.spend(folders=int(folder), files=int(not folder))


# -- zip -----------------------------------------------------------------------------------------


def _zipped(archive: Path, limits: MemoryLimits, report: ImportReport) -> Iterator[ArchiveMember]:
    budget = _budget(archive, limits)
    with _opened(archive, limits) as opened:
        for info in _listed(opened, budget):
            path = _zip_name(info)
            if not is_page(path):
                report.skipped += 1
            elif stat.S_ISLNK(info.external_attr >> 16):
                yield ArchiveMember(path, error="is a link, which is not followed")
            elif info.flag_bits & _ENCRYPTED:
                yield ArchiveMember(path, error="is encrypted")
            elif info.compress_type not in _METHODS:
                yield ArchiveMember(path, error=f"is packed by method {info.compress_type}; use deflate")
            else:
                data = _unzipped(opened, info, limits.page_bytes + 1)
                budget.spend(bytes=len(data or b""))
                yield (
                    file(path, data, limits) if data is not None else ArchiveMember(path, error="is damaged")
                )


@contextlib.contextmanager
def _opened(archive: Path, limits: MemoryLimits) -> Generator[zipfile.ZipFile]:
    with archive.open("rb") as raw:
        bounded = _BoundedDirectory(raw, 2 * limits.import_files)
        with zipfile.ZipFile(cast("IO[bytes]", bounded)) as opened:
            bounded.loaded()
            yield opened


def _listed(opened: zipfile.ZipFile, budget: InputBudget) -> Iterator[zipfile.ZipInfo]:
    for info in opened.infolist():
        _count(budget, folder=info.is_dir())
        if not info.is_dir():
            yield info


class _BoundedDirectory:
    """A zip file whose list of entries is counted before it is parsed; `zipfile` reads it in one piece."""

    def __init__(self, raw: IO[bytes], entries: int) -> None:
        self._raw = raw
        self._entries = entries
        self._loading = True
        self.seek, self.tell, self.close = raw.seek, raw.tell, raw.close

    def loaded(self) -> None:
        """End the checks: the list is in memory."""
        self._loading = False

    def seekable(self) -> bool:
        """Return True: the file is on disk."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read some bytes; raises `TooLarge` for a list of too many bytes or entries."""
        if not self._loading:
            return self._raw.read(size)
        if size > _MAX_DIRECTORY:
            raise errors.TooLarge("The archive has more entries than can be listed")
        data = self._raw.read(size if size >= 0 else _MAX_TAIL)
        if data.count(_ENTRY) > self._entries:
            raise errors.TooLarge(f"The archive has more than {self._entries} entries")
        return data


def _unzipped(opened: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes | None:
    """The first bytes of a member; None where it is damaged, which says nothing of the others."""
    with contextlib.suppress(*_DAMAGE), opened.open(info) as member:
        return member.read(most)
    return None


def _zip_name(info: zipfile.ZipInfo) -> str:
    """A member's name, all of it; without the flag for UTF-8 it often is UTF-8 all the same."""
    name = info.orig_filename  # `filename` ends at the first U+0000, and so would the page's name
    if not info.flag_bits & _UTF8_NAME:
        with contextlib.suppress(UnicodeError):
            return name.encode("cp437").decode("utf-8")
    return name


# -- tar -----------------------------------------------------------------------------------------


class _BoundedStream:
    """A decompressed stream that only goes forward, within the limits of an archive."""

    def __init__(self, stream: IO[bytes], budget: InputBudget) -> None:
        self._stream = stream
        self._budget = budget
        self._left = _MAX_HEADERS
        self._position = 0

    def allow(self, size: int) -> None:
        """Set how many bytes the next reads may have together."""
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """Read some bytes."""
        if size < 0 or size > self._left:
            raise tarfile.ReadError("a header is too large")
        self._left -= size
        self._check(self.tell() + size)
        return self._taken(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Skip to a place ahead."""
        if whence != 0 or offset < self.tell():
            raise tarfile.ReadError("a header leads back")
        self._check(offset)
        if self._stream.seekable():
            return self._stream.seek(offset)
        while (missing := offset - self._position) > 0 and self._taken(min(missing, _CHUNK)):
            pass
        return self._position

    def tell(self) -> int:
        """The position in the stream."""
        return self._stream.tell() if self._stream.seekable() else self._position

    def _taken(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def _check(self, offset: int) -> None:
        # The blocks of the headers come on top: three for each entry.
        entries = 1 + self._budget.spent("files") + self._budget.spent("folders")
        self._budget.check(bytes=offset - 3 * tarfile.BLOCKSIZE * entries)


def _tarred(archive: Path, limits: MemoryLimits, report: ImportReport) -> Iterator[ArchiveMember]:
    with _members(archive, limits) as members:
        for member in members:
            if not is_page(member.name):
                report.skipped += 1
            elif not member.isreg():
                yield ArchiveMember(member.name, error="is a link or a device, which is not followed")
            else:
                yield file(member.name, members.data(member), limits)


class _Members:
    """The members of a tar that are no folders, each counted before its data is read."""

    def __init__(
        self, opened: tarfile.TarFile, stream: _BoundedStream, budget: InputBudget, most: int
    ) -> None:
        self._opened = opened
        self._stream = stream
        self._budget = budget
        self._most = most

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        for member in self._opened:
            # The library would keep all members and global headers.
            self._opened.members = []  # pyright: ignore[reportAttributeAccessIssue] # not in the stubs
            self._opened.pax_headers = {}
            _count(self._budget, folder=member.isdir())
            self._budget.spend(bytes=member.size if member.isreg() else 0)
            if not member.isdir():
                yield member
            self._stream.allow(_MAX_HEADERS)

    def data(self, member: tarfile.TarInfo) -> bytes:
        """The first bytes of a member, one more than a page may have."""
        self._stream.allow(self._most + 1)
        reader = self._opened.extractfile(member)
        return reader.read(self._most + 1) if reader is not None else b""


@contextlib.contextmanager
def _members(archive: Path, limits: MemoryLimits) -> Generator[_Members]:
    budget = _budget(archive, limits)
    with contextlib.closing(_decompressed(archive)) as stream:
        bounded = _BoundedStream(stream, budget)
        with tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r:") as opened:
            yield _Members(opened, bounded, budget, limits.page_bytes)


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as opened:
        magic = opened.read(6)
    if magic[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.open(archive, "rb"))
    if magic[:3] == b"BZh":
        return cast("IO[bytes]", bz2.open(archive, "rb"))
    if magic == b"\xfd7zXZ\0":
        return io.BufferedReader(_XzReader(archive), _CHUNK)
    return archive.open("rb")


class _XzReader(io.RawIOBase):
    """Reads an xz file with a limit on the memory of its dictionary, which `lzma.open` has not."""

    def __init__(self, archive: Path) -> None:
        self._raw = archive.open("rb")
        self._unpacker = _xz()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Unpack into a buffer; raises `EOFError` where the file ends too early."""
        view = memoryview(buffer)
        data = b""
        while not data:
            packed = b""
            if self._unpacker.eof:
                packed = (self._unpacker.unused_data or self._raw.read(_CHUNK)).lstrip(b"\0")
                if not packed:
                    return 0
                self._unpacker = _xz()
            elif self._unpacker.needs_input:
                packed = self._raw.read(_CHUNK)
                if not packed:
                    raise EOFError("the file is truncated")
            data = self._unpacker.decompress(packed, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()
        super().close()


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_DICTIONARY)


# -- one file ------------------------------------------------------------------------------------


def is_page(path: str) -> bool:
    """Whether a path is a page's: markdown, and not in a hidden folder or one of a program's own."""
    if not path.lower().endswith(paths.ENDINGS) or _NOT_PAGES.match(path):
        return False
    return not any(part.startswith(".") and part.strip(".") for part in path.split("/")[:-1])


def file(path: str, data: bytes, limits: MemoryLimits) -> ArchiveMember:
    """A page's file; one that cannot be a page says why."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or len(path) > paths.MAX_CHARS:
        return ArchiveMember(path, error="has a path that leads out of the archive, or is too long")
    if parts[-1].startswith("."):  # somebody's text may be in it, so it does not go without a word
        return ArchiveMember(path, error="is hidden: its name begins with a dot")
    if len(data) > limits.page_bytes:
        return ArchiveMember(path, error=f"is larger than {limits.page_bytes} bytes")
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError:
        return ArchiveMember(path, error="is not text in UTF-8")
    if "\0" in text:
        return ArchiveMember(path, error="has the character U+0000, which no text may have")
    return ArchiveMember(path, text)
