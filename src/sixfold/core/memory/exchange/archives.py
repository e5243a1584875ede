"""Files of pages: archives are read here, without trust. Nothing is unpacked to disk, no link is followed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

from sixfold import errors
from sixfold.core.memory.exchange import paths
from sixfold.core.memory.limits import Limits

MAX_ERRORS = 1_000
MAX_PATH = 1_000
_MAX_DIRECTORY = 48 * 2**20  # bytes of a zip's list of members, which must be held in memory
_MAX_READ = 16 * 2**20  # bytes of one read that a tar's own headers may ask for
_NO_ARCHIVE = "The file is no zip or tar archive that can be read"
_ENCRYPTED = 1
_UTF8_NAME = 0x800
_NOT_PAGES = re.compile(r"__MACOSX/|([^/]+/)?logseq/(bak|version-files)/|(.*/)?\._[^/]*$", re.DOTALL)
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class File:
    """One markdown file: its path in the archive, and its text or why there is none."""

    path: str
    text: str = ""
    error: str = ""


@dataclass(slots=True)
class Report:
    """What an import has done so far."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def refuse(self, path: str, why: str) -> None:
        """Note a file that could not be taken."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append((path[:MAX_PATH], why))
        elif len(self.errors) == MAX_ERRORS:
            self.errors.append(("", f"More files were not taken: the first {MAX_ERRORS} are told here"))


def files(archive: Path, limits: Limits, report: Report) -> Iterator[File]:
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


def outliner(archive: Path) -> str | None:
    """Where in an archive the folders of an outliner lie; None where there are none."""
    with contextlib.suppress(errors.BadRequest, errors.TooLarge), _reading():
        if zipfile.is_zipfile(archive):
            _check_directory(archive)
            with zipfile.ZipFile(archive) as opened:
                return paths.outliner(opened.namelist())
        with contextlib.closing(_decompressed(archive)) as stream:
            careful = cast("IO[bytes]", _Careful(stream, 2**32))
            with tarfile.open(fileobj=careful, mode="r:") as opened:
                return paths.outliner(member.name for member in opened)
    return None


class _Budget:
    """How many members and bytes an archive may still have."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._files = self._bytes = 0

    def count(self) -> None:
        """One more member."""
        self._files += 1
        if self._files > self._limits.import_files:
            raise errors.TooLarge(f"The archive has more than {self._limits.import_files} entries")

    def spend(self, size: int) -> None:
        """So many bytes more."""
        self._bytes += size
        if self._bytes > self._limits.import_bytes:
            raise errors.TooLarge(f"The archive holds more than {self._limits.import_bytes} bytes")


# -- zip -----------------------------------------------------------------------------------------


def _zipped(archive: Path, limits: Limits, report: Report) -> Iterator[File]:
    _check_directory(archive)
    budget = _Budget(limits)
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            path = _zip_name(info)
            if info.is_dir():
                continue
            budget.count()
            if not is_page(path):
                report.skipped += 1
            elif stat.S_ISLNK(info.external_attr >> 16):
                yield File(path, error="is a link, which is not followed")
            elif info.flag_bits & _ENCRYPTED:
                yield File(path, error="is encrypted")
            else:
                data = _unzipped(opened, info, limits.page_bytes + 1)
                budget.spend(len(data or b""))
                yield file(path, data, limits) if data is not None else File(path, error="is damaged")


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


def _check_directory(archive: Path) -> None:
    """Refuse a zip whose list of members alone would fill the memory."""
    size = archive.stat().st_size
    with archive.open("rb") as opened:
        opened.seek(max(0, size - 2**17))
        tail = opened.read()
    end = tail.rfind(b"PK\5\6")
    listed = int.from_bytes(tail[end + 12 : end + 16], "little")
    if listed == 0xFFFFFFFF:
        end = tail.rfind(b"PK\6\6")
        listed = int.from_bytes(tail[end + 40 : end + 48], "little") if end >= 0 else size
    if listed > _MAX_DIRECTORY:
        raise errors.TooLarge("The archive has more entries than can be listed")


# -- tar -----------------------------------------------------------------------------------------


class _Careful:
    """A decompressed stream that no header of the archive can make read without end."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = most

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        if size < 0 or size > _MAX_READ:
            raise tarfile.ReadError("a header is too large")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go on to a place."""
        if whence == 0 and offset > self._most:
            raise errors.TooLarge(f"The archive holds more than {self._most} bytes")
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Where it stands."""
        return self._stream.tell()


def _tarred(archive: Path, limits: Limits, report: Report) -> Iterator[File]:
    budget = _Budget(limits)
    with contextlib.closing(_decompressed(archive)) as stream:
        careful = cast("IO[bytes]", _Careful(stream, limits.import_bytes + 2**30))
        with tarfile.open(fileobj=careful, mode="r:") as opened:
            for member in opened:
                opened.members = []  # pyright: ignore[reportAttributeAccessIssue] # it would keep them all
                if member.isdir():
                    continue
                budget.count()
                budget.spend(member.size if member.isreg() else 0)
                if not is_page(member.name):
                    report.skipped += 1
                elif not member.isreg():
                    yield File(member.name, error="is a link or a device, which is not followed")
                else:
                    reader = opened.extractfile(member)
                    data = reader.read(limits.page_bytes + 1) if reader is not None else b""
                    yield file(member.name, data, limits)


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as opened:
        magic = opened.read(6)
    if magic[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.open(archive, "rb"))
    if magic[:3] == b"BZh":
        return cast("IO[bytes]", bz2.open(archive, "rb"))
    if magic == b"\xfd7zXZ\0":
        return cast("IO[bytes]", lzma.open(archive, "rb"))
    return archive.open("rb")


# -- one file ------------------------------------------------------------------------------------


def is_page(path: str) -> bool:
    """Whether a path is a page's: markdown, and not in a hidden folder or one of a program's own."""
    if not path.lower().endswith(paths.ENDINGS) or _NOT_PAGES.match(path):
        return False
    return not any(part.startswith(".") and part.strip(".") for part in path.split("/")[:-1])


def file(path: str, data: bytes, limits: Limits) -> File:
    """A page's file; one that cannot be a page says why."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or len(path) > MAX_PATH:
        return File(path, error="has a path that leads out of the archive, or is too long")
    if parts[-1].startswith("."):  # somebody's text may be in it, so it does not go without a word
        return File(path, error="is hidden: its name begins with a dot")
    if len(data) > limits.page_bytes:
        return File(path, error=f"is larger than {limits.page_bytes} bytes")
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError:
        return File(path, error="is not text in UTF-8")
    if "\0" in text:
        return File(path, error="has the character U+0000, which no text may have")
    return File(path, text)
