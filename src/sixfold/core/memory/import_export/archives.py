"""Readers of untrusted archives of pages, which do not unpack to disk and do not follow links."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import secrets
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import msgspec

from sixfold import errors
from sixfold.core import documents
from sixfold.core.input_limits import tar_headers
from sixfold.core.input_limits.budget import InputBudget, Limit
from sixfold.core.input_limits.zip_directories import BoundedDirectory
from sixfold.core.memory.import_export import attachments, hidden_files, paths
from sixfold.core.memory.limits import MemoryLimits

MAX_ERRORS = 1_000
MAX_LEFT_OUT = 100
# Maximum bytes of a zip's directory, which must be held in memory.
MAX_DIRECTORY = 48 * 2**20
# Maximum bytes of the headers of a tar member.
_MAX_HEADERS = 2**18
# Maximum unpacked bytes of an archive of any size.
_FREE_BYTES = 64 * 2**20
# Maximum compression ratio beyond these bytes.
_RATIO = 100
# Maximum memory for xz in bytes; `xz -9` needs 65 MiB.
MAX_DICTIONARY = 66 * 2**20
XZ = b"\xfd7zXZ\0"
_GZIP, _BZIP2 = b"\x1f\x8b\x08", b"BZh"
# Streams of an archive of any size, and the bytes for each further one.
_FREE_STREAMS, _STREAM_BYTES = 20_000, 1024
_SCANNED_BYTES = 2**20
_CHUNK = 2**16
# The library does not limit the output of one read for other methods.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NO_ARCHIVE = "The file is not a readable zip or tar archive"
_DEVICE = "is a link or a device, which is not followed"
_ENCRYPTED = 1
_UTF8_NAME = 0x800
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


class ArchiveMember(msgspec.Struct, frozen=True):
    """A Markdown file, with its path in the archive, and its text or the reason why it is unreadable.

    For a document, `file` is a copy on disk. `is_hidden_page` is set for a hidden file of an export.
    """

    path: str
    text: str = ""
    error: str = ""
    file: Path | None = None
    is_hidden_page: bool = False


class ImportReport(msgspec.Struct):
    """The progress of an import."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    # The skipped files that are not pages: their number, and the paths of the first of them.
    left_out: int = 0
    left_out_paths: list[str] = []
    errors: list[tuple[str, str]] = []
    documents: list[DocumentResult] = []

    def add(self, part: ImportReport) -> None:
        self.created += part.created
        self.updated += part.updated
        self.skipped += part.skipped
        self.left_out += part.left_out
        self.left_out_paths += part.left_out_paths[: MAX_LEFT_OUT - len(self.left_out_paths)]
        for path, reason in part.errors:
            self.refuse(path, reason)

    def leave_out(self, path: str) -> None:
        """Record a file that is not a page."""
        self.skipped += 1
        self.left_out += 1
        if len(self.left_out_paths) < MAX_LEFT_OUT:
            self.left_out_paths.append(path[: paths.MAX_CHARS])

    def refuse(self, path: str, reason: str) -> None:
        """Record a file that could not be imported."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append((path[: paths.MAX_CHARS], reason))
        elif len(self.errors) == MAX_ERRORS:
            self.errors.append(("", f"More files were not imported: only the first {MAX_ERRORS} are listed"))


class DocumentResult(msgspec.Struct, frozen=True):
    """A document of an import, with its path, the slug of its first page, and the number of its pages."""

    path: str
    slug: str
    title: str
    parts: int
    changed: bool


class DocumentFolder(msgspec.Struct, frozen=True):
    """A folder on disk to which the documents of an archive are copied, one at a time."""

    path: Path
    max_bytes: int

    def save(self, path: str, stream: IO[bytes], budget: InputBudget | None = None) -> ArchiveMember:
        """Copy a document to the folder; the caller removes the file."""
        target, size = self.path / secrets.token_hex(16), 0
        with target.open("xb") as copy:
            while size <= self.max_bytes and (chunk := stream.read(_CHUNK)):
                size += len(chunk)
                if budget is not None:
                    budget.spend(bytes=len(chunk))
                copy.write(chunk)
        if size > self.max_bytes:
            target.unlink()
            return ArchiveMember(path, error=f"is larger than {self.max_bytes} bytes")
        return ArchiveMember(path, file=target)


def files(
    archive: Path, limits: MemoryLimits, report: ImportReport, folder: DocumentFolder | None = None
) -> Iterator[ArchiveMember]:
    """Yield the Markdown files of a zip or tar archive in order; all other files count as skipped.

    If `folder` is set, documents are yielded as well.

    Raises `BadRequest` for an invalid archive, and `TooLarge` above `limits`.
    """
    with _reading():
        if zipfile.is_zipfile(archive):
            yield from _zipped(archive, limits, report, folder)
        else:
            yield from _tarred(archive, limits, report, folder)


@contextlib.contextmanager
def _reading() -> Generator[None]:
    """Convert the exceptions of readers of damaged archives to `BadRequest`."""
    try:
        yield
    except OSError as error:
        # Disk errors have an error number, errors of decompressors do not.
        if error.errno is not None:
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
    """Return the folder of an outliner's files in an archive, or None if the archive has no such files.

    Raises `TooLarge` above `limits`, before any file is read.
    """
    with contextlib.suppress(errors.BadRequest), _reading():
        if zipfile.is_zipfile(archive):
            with _opened(archive, limits) as opened:
                return paths.outliner([_zip_name(info) for info in _listed(opened, _budget(archive, limits))])
        with _members(archive, limits) as members:
            return paths.outliner([member.name for member in members if member.name.endswith(paths.SETTINGS)])
    return None


def _budget(archive: Path, limits: MemoryLimits) -> InputBudget:
    """Return the limits on the files, folders and unpacked bytes of an archive."""
    entries = Limit(limits.import_files, "The archive must have at most {} entries", errors.TooLarge)
    size = Limit(limits.import_bytes, "The archive contains more than {} bytes", errors.TooLarge)
    unpacked = _FREE_BYTES + _RATIO * archive.stat().st_size
    if unpacked < size.maximum:
        message = f"The archive unpacks to more than {_RATIO} times its size"
        size = Limit(unpacked, message, errors.TooLarge)
    return InputBudget(files=entries, folders=entries, bytes=size)


def _zipped(
    archive: Path, limits: MemoryLimits, report: ImportReport, folder: DocumentFolder | None
) -> Iterator[ArchiveMember]:
    budget = _budget(archive, limits)
    with _opened(archive, limits) as opened:
        for info in _listed(opened, budget):
            path = _zip_name(info)
            if not paths.is_markdown(path) and not (folder is not None and is_file(path)):
                report.leave_out(path)
            elif problem := _problem(info):
                yield from _visible(ArchiveMember(path, error=problem), report)
            elif folder is not None and not paths.is_markdown(path):
                member = file(path, b"", limits)
                yield member if member.error else _unzipped_document(opened, info, folder, budget)
            else:
                data = _unzipped(opened, info, limits.page_bytes + 1)
                budget.spend(bytes=len(data or b""))
                yield from _visible(file(path, data, limits), report)


def _visible(member: ArchiveMember, report: ImportReport) -> Iterator[ArchiveMember]:
    """Yield a Markdown file, unless it is in a hidden or application folder, and not a page of an export."""
    if member.is_hidden_page or paths.is_visible(member.path):
        yield member
    else:
        report.leave_out(member.path)


def _problem(info: zipfile.ZipInfo) -> str:
    """Return why an entry of a zip file is not read, or an empty string."""
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link, which is not followed"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.compress_type not in _METHODS:
        return f"is compressed with method {info.compress_type}: use deflate instead"
    return ""


@contextlib.contextmanager
def _opened(archive: Path, limits: MemoryLimits) -> Generator[zipfile.ZipFile]:
    with archive.open("rb") as raw:
        bounded = BoundedDirectory(raw, MAX_DIRECTORY, 2 * limits.import_files)
        with zipfile.ZipFile(cast("IO[bytes]", bounded)) as opened:
            bounded.loaded()
            yield opened


def _listed(archive: zipfile.ZipFile, budget: InputBudget) -> Iterator[zipfile.ZipInfo]:
    for info in archive.infolist():
        budget.spend(folders=info.is_dir(), files=not info.is_dir())
        if not info.is_dir():
            yield info


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes | None:
    """Return the first bytes of a member; None if it is damaged, which does not affect other members."""
    with contextlib.suppress(*_DAMAGE), archive.open(info) as member:
        return member.read(limit)
    return None


def _unzipped_document(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: DocumentFolder, budget: InputBudget
) -> ArchiveMember:
    path = _zip_name(info)
    with contextlib.suppress(*_DAMAGE), archive.open(info) as member:
        return folder.save(path, member, budget)
    return ArchiveMember(path, error="is damaged")


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Return the full name of a member, decoded as UTF-8 if possible even without the flag."""
    # `filename` is truncated at the first U+0000.
    name = info.orig_filename
    if not info.flag_bits & _UTF8_NAME:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return paths.plain(name)


class _BoundedStream:
    """A decompressed stream that seeks only forward, within the limits of an archive."""

    def __init__(self, stream: IO[bytes], budget: InputBudget) -> None:
        self._stream = stream
        self._budget = budget
        self._left = _MAX_HEADERS
        self._position = 0

    def allow(self, size: int) -> None:
        """Set the number of bytes that the next reads may return in total."""
        self._left = size

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise tarfile.ReadError("a header is too large")
        self._left -= size
        self._check(self.tell() + size)
        return self._read_bytes(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset < self.tell():
            raise tarfile.ReadError("a header refers to an earlier position")
        self._check(offset)
        if self._stream.seekable():
            return self._stream.seek(offset)
        while (missing := offset - self._position) > 0 and self._read_bytes(min(missing, _CHUNK)):
            pass
        return self._position

    def tell(self) -> int:
        return self._stream.tell() if self._stream.seekable() else self._position

    def _read_bytes(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def _check(self, offset: int) -> None:
        # The headers add three blocks for each entry.
        entries = 1 + self._budget.amount("files") + self._budget.amount("folders")
        self._budget.check(bytes=offset - 3 * tarfile.BLOCKSIZE * entries)


def _tarred(
    archive: Path, limits: MemoryLimits, report: ImportReport, folder: DocumentFolder | None
) -> Iterator[ArchiveMember]:
    with _members(archive, limits) as members:
        for member in members:
            if not paths.is_markdown(member.name) and not (folder is not None and is_file(member.name)):
                report.leave_out(member.name)
            elif not member.isreg():
                yield from _visible(ArchiveMember(member.name, error=_DEVICE), report)
            elif folder is not None and not paths.is_markdown(member.name):
                archive_file = file(member.name, b"", limits)
                yield archive_file if archive_file.error else members.copied(member, folder)
            else:
                yield from _visible(file(member.name, members.data(member), limits), report)


class _Members:
    """The members of a tar except folders, each counted before its data is read."""

    def __init__(
        self, archive: tarfile.TarFile, stream: _BoundedStream, budget: InputBudget, limit: int
    ) -> None:
        self._archive = archive
        self._stream = stream
        self._budget = budget
        self._most = limit

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        for member in self._archive:
            # Otherwise the library would keep all members and global headers in memory.
            self._archive.members = []  # pyright: ignore[reportAttributeAccessIssue] # not in the stubs
            self._archive.pax_headers = {}
            member.name = paths.plain(member.name)
            self._budget.spend(folders=member.isdir(), files=not member.isdir())
            self._budget.spend(bytes=member.size if member.isreg() else 0)
            if not member.isdir():
                yield member
            self._stream.allow(_MAX_HEADERS)

    def data(self, member: tarfile.TarInfo) -> bytes:
        """Return the first bytes of a member, up to one more than the limit of a page."""
        self._stream.allow(self._most + 1)
        reader = self._archive.extractfile(member)
        return reader.read(self._most + 1) if reader is not None else b""

    def copied(self, member: tarfile.TarInfo, folder: DocumentFolder) -> ArchiveMember:
        self._stream.allow(folder.max_bytes + _CHUNK)
        reader = self._archive.extractfile(member)
        return folder.save(member.name, reader if reader is not None else io.BytesIO())


@contextlib.contextmanager
def _members(archive: Path, limits: MemoryLimits) -> Generator[_Members]:
    budget = _budget(archive, limits)
    with contextlib.closing(_decompressed(archive)) as stream:
        bounded = _BoundedStream(stream, budget)
        file = cast("IO[bytes]", bounded)
        with tarfile.open(fileobj=file, mode="r:", tarinfo=tar_headers.CheckedTarInfo) as opened:
            yield _Members(opened, bounded, budget, limits.page_bytes)


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as opened:
        head = opened.read(len(XZ))
    magic = next((magic for magic in (_GZIP, _BZIP2, XZ) if head.startswith(magic)), b"")
    if magic:
        _check_streams(archive, magic)
    if magic == _GZIP:
        return cast("IO[bytes]", gzip.open(archive, "rb"))
    if magic == _BZIP2:
        return cast("IO[bytes]", bz2.open(archive, "rb"))
    return io.BufferedReader(_XzReader(archive), _CHUNK) if magic else archive.open("rb")


def _check_streams(archive: Path, magic: bytes) -> None:
    """Raise `BadRequest` for too many compressed streams: empty ones take time, but unpack to no bytes."""
    limit = _FREE_STREAMS + archive.stat().st_size // _STREAM_BYTES
    with archive.open("rb") as opened:
        streams = sum(chunk.count(magic) for chunk in iter(lambda: opened.read(_SCANNED_BYTES), b""))
    if streams > limit:
        raise errors.BadRequest(
            f"The archive must have at most {limit:,} compressed streams (got {streams:,}): "
            "compress it as a whole"
        )


class _XzReader(io.RawIOBase):
    """An xz reader that limits the memory of the dictionary, which `lzma.open` does not support."""

    def __init__(self, archive: Path) -> None:
        self._raw = archive.open("rb")
        self._unpacker = _xz()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Unpack into a buffer; raises `EOFError` if the file is truncated."""
        view = memoryview(buffer)
        data = b""
        while not data:
            compressed = b""
            if self._unpacker.eof:
                compressed = (self._unpacker.unused_data or self._raw.read(_CHUNK)).lstrip(b"\0")
                if not compressed:
                    return 0
                self._unpacker = _xz()
            elif self._unpacker.needs_input:
                compressed = self._raw.read(_CHUNK)
                if not compressed:
                    raise EOFError("the file is truncated")
            data = self._unpacker.decompress(compressed, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)


def is_page(path: str) -> bool:
    """Return whether a path is a Markdown file outside hidden and application folders."""
    return paths.is_markdown(path) and paths.is_visible(path)


def is_document(path: str) -> bool:
    """Return whether a path is a document other than Markdown, outside hidden and application folders."""
    return bool(documents.kind_of(path)) and not is_page(path) and paths.is_visible(path)


def is_file(path: str) -> bool:
    """Return whether a path is a document or an attachment."""
    return is_document(path) or is_attachment(path)


def is_attachment(path: str) -> bool:
    """Return whether a path is an image, audio or video file outside hidden and application folders."""
    return attachments.is_attachment(path) and paths.is_visible(path)


def decoded_page(data: bytes) -> str:
    """Return the text of a page's file in UTF-8, or in UTF-16 with a byte order mark as Windows writes it."""
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")


def file(path: str, data: bytes | None, limits: MemoryLimits) -> ArchiveMember:
    """Return the file of a page, or the reason why it cannot be a page; `data` is None if it is damaged."""
    if data is None:
        return ArchiveMember(path, error="is damaged")
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or len(path) > paths.MAX_CHARS:
        return ArchiveMember(path, error="has a path that is too long, or that leads out of the archive")
    if len(data) > limits.page_bytes:
        return ArchiveMember(path, error=f"is larger than {limits.page_bytes} bytes")
    try:
        text = decoded_page(data)
    except UnicodeDecodeError:
        return ArchiveMember(path, error="is not text in UTF-8")
    if "\0" in text:
        return ArchiveMember(path, error="contains the character U+0000, which is not allowed in text")
    page = hidden_files.unmarked(path, text)
    # The file may contain a user's text, so it is reported instead of skipped.
    hidden = "is hidden: its name begins with a dot" if page is None and parts[-1].startswith(".") else ""
    return ArchiveMember(path, text if page is None else page, hidden, is_hidden_page=page is not None)
