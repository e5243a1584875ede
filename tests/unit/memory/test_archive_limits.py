"""Archives that unpack to much more than their size are rejected by count, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.memory.import_export import archive_memory, archives
from sixfold.core.memory.import_export.archives import ArchiveMember, ImportReport
from sixfold.core.memory.import_export.files import FileNaming
from sixfold.core.memory.limits import MemoryLimits
from tests import loop_time

MIB = 2**20
END = bytes(1024)


def saved_archive(folder: Path, data: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(data)
    return path


def read_archive(archive: Path, limits: MemoryLimits) -> list[ArchiveMember]:
    """Return the result of importing an archive."""
    archives.outliner(archive, limits)
    return list(archives.files(archive, limits, ImportReport()))


def tar(*members: tuple[tarfile.TarInfo, bytes], pax: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", pax_headers=pax) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        end = archive.offset
    return packed.getvalue()[:end] + END


def member(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


def large_gzip() -> bytes:
    """Return a tar of 256 MiB, compressed to about 260 KB."""
    about = member("video.bin")
    about.size = 256 * MIB
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as out:
        out.write(about.tobuf())
        for _ in range(256):
            out.write(bytes(MIB))
        out.write(bytes(1024))
    return packed.getvalue()


def many_folders() -> bytes:
    return gzip.compress(tar(*((member(f"a/{n}", tarfile.DIRTYPE), b"") for n in range(2_001))))


def many_global_headers() -> bytes:
    """Return a tar that sets 100,000 header fields for all following members."""
    parts = [
        tar((member(f"{n}.md"), b"x"), pax={f"k{n}-{m}": "v" for m in range(5_000)})[: -len(END)]
        for n in range(20)
    ]
    return gzip.compress(b"".join(parts) + END)


def large_header() -> bytes:
    """Return a tar whose first name has 8 MiB."""
    return gzip.compress(tar((member("a" * 8 * MIB + ".md"), b"x")))


def zip_of_empty_files(entries: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as opened:
        for number in range(entries):
            opened.writestr(f"{number}", b"")
    return packed.getvalue()


def hidden_directory() -> bytes:
    """Return a zip whose end record contains a second end mark."""
    data = zip_of_empty_files(20_000)
    return data[:-6] + b"PK\5\6" + b"\0\0"


@pytest.mark.parametrize(
    "make", [large_gzip, many_folders, lambda: zip_of_empty_files(20_000), hidden_directory]
)
def test_archive_over_the_limits_is_refused_in_bounded_memory(
    tmp_path: Path, make: Callable[[], bytes]
) -> None:
    archive = saved_archive(tmp_path, make())

    def expect_refusal() -> None:
        with pytest.raises(errors.TooLarge):
            archives.outliner(archive, MemoryLimits(import_files=1_000))

    tracemalloc.start()
    try:
        expect_refusal()
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loop_time.cpu_seconds(expect_refusal, 1) < 1
    assert grown < 4 * MIB


def test_a_header_of_a_tar_cannot_be_as_large_as_the_archive(tmp_path: Path) -> None:
    archive = saved_archive(tmp_path, large_header())
    tracemalloc.start()
    try:
        with pytest.raises(errors.BadRequest):
            read_archive(archive, MemoryLimits())
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grown < 4 * MIB


def test_global_headers_of_a_tar_are_not_stored(tmp_path: Path) -> None:
    archive = saved_archive(tmp_path, many_global_headers())
    tracemalloc.start()
    try:
        result = read_archive(archive, MemoryLimits())
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [file.text for file in result] == ["x"] * 20
    assert grown < 8 * MIB


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unbounded_zip_method_is_refused_for_its_file_only(tmp_path: Path, method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as opened:
        opened.writestr("large.md", bytes(16 * MIB))
        opened.writestr("small.md", b"x", zipfile.ZIP_DEFLATED)
    archive = saved_archive(tmp_path, packed.getvalue())
    tracemalloc.start()
    try:
        result = read_archive(archive, MemoryLimits())
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(file.path, file.text) for file in result] == [("large.md", ""), ("small.md", "x")]
    assert result[0].error == f"is compressed with method {method}: use deflate instead"
    assert grown < 4 * MIB


def xz_with_dictionary(data: bytes, size: int) -> bytes:
    """An xz file whose header requires a dictionary of 2 to the power of `size` bytes."""
    packed = bytearray(lzma.compress(data, preset=0))
    end = 12 + (packed[12] + 1) * 4 - 4
    at = packed.index(b"\x21\x01", 12, end) + 2
    packed[at] = 2 * (size - 12)
    packed[end : end + 4] = zlib.crc32(packed[12:end]).to_bytes(4, "little")
    return bytes(packed)


def test_memory_of_an_xz_archive_is_limited(tmp_path: Path) -> None:
    data = tar((member("a.md"), b"x"), (member("b.bin"), bytes(MIB)), (member("c.md"), b"y"))
    for size in (23, 26):
        result = read_archive(saved_archive(tmp_path, xz_with_dictionary(data, size)), MemoryLimits())
        assert [file.text for file in result] == ["x", "y"]
    with pytest.raises(errors.BadRequest):
        read_archive(saved_archive(tmp_path, xz_with_dictionary(data, 30)), MemoryLimits())


def test_a_zip_counts_by_its_directory_and_xz_by_its_window(tmp_path: Path) -> None:
    def needed(data: bytes) -> int:
        return archive_memory.needed(saved_archive(tmp_path, data))

    files = needed(zip_of_empty_files(1_000))
    assert 10 * 46_000 < files < 10 * 60_000
    packed = io.BytesIO(zip_of_empty_files(1_000))
    with zipfile.ZipFile(packed, "a") as opened:
        opened.comment = b"x" * 1_000
    assert needed(packed.getvalue()) == files
    assert needed(hidden_directory()) > 10 * files
    assert needed(lzma.compress(tar((member("a.md"), b"x")))) == archives.MAX_DICTIONARY
    assert needed(tar((member("a.md"), b"x"))) == needed(b"") == 0


def test_multi_stream_xz_is_read_and_truncated_one_refused(tmp_path: Path) -> None:
    data = tar((member("a.md"), b"x" * 1000), (member("c.md"), b"y"))
    packed = lzma.compress(data[:700]) + bytes(4) + lzma.compress(data[700:])
    assert len(read_archive(saved_archive(tmp_path, packed), MemoryLimits())) == 2
    with pytest.raises(errors.BadRequest):
        read_archive(saved_archive(tmp_path, packed[:-200]), MemoryLimits())


def test_an_archive_within_its_ratio_is_read(tmp_path: Path) -> None:
    members = [(member(f"{number}.md"), b"word " * 200_000) for number in range(20)]
    result = read_archive(saved_archive(tmp_path, gzip.compress(tar(*members))), MemoryLimits())
    assert sum(len(file.text) for file in result) == 20_000_000


def test_archive_above_the_ratio_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.TooLarge, match="unpacks to more than 100 times its size"):
        read_archive(saved_archive(tmp_path, large_gzip()), MemoryLimits())


def test_zip_directory_with_long_extra_fields_is_refused(tmp_path: Path) -> None:
    record = struct.pack("<HH", 0x9999, 0)

    def archive(records: int) -> Path:
        info = zipfile.ZipInfo("a.md")
        info.extra = record * records
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as opened:
            opened.writestr(info, "text")
        return saved_archive(tmp_path, packed.getvalue())

    assert [file.text for file in read_archive(archive(1_024), MemoryLimits())] == ["text"]
    with pytest.raises(errors.BadRequest, match=r"at most 4,096 bytes \(got 4,100\)"):
        read_archive(archive(1_025), MemoryLimits())


def test_files_with_the_same_slug_are_numbered_in_linear_time() -> None:
    long = "x" * 199
    names = ["a-3.md", "a.md", "A.md", "a.md", "ä.md", "Ä.md", "A .md", f"{long}.md", f"X{long[1:]}.md"]
    naming = FileNaming()
    numbered = f"{long[:192]}-2"
    assert [naming.slug(name) for name in names] == [
        *("a-3", "a", "a-2", "a", "ä", "ä-2", "a-4", long, numbered),
    ]

    def name_files() -> None:
        files = FileNaming()
        letters = "abcdefghijklmno"
        paths = ("".join(pair) for pair in itertools.product(*((char, char.upper()) for char in letters)))
        assert len({files.slug(f"{path}.md") for path in paths}) == 2 ** len(letters)

    assert loop_time.cpu_seconds(name_files, 1) < 2


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_archive_of_too_many_streams_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole, empty = compress(tar((member("a.md"), b"text"))), compress(b"")
    assert [file.text for file in read_archive(saved_archive(tmp_path, whole + empty * 9), MemoryLimits())]
    with pytest.raises(errors.BadRequest, match=r"compressed streams \(got 21,0\d\d\): compress it"):
        read_archive(saved_archive(tmp_path, whole + empty * 21_000), MemoryLimits())
