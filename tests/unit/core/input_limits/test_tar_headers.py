"""Extended headers of tar archives, which some versions of `tarfile` read in quadratic time and memory."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.input_limits import tar_headers
from sixfold.core.memory.import_export import archives
from sixfold.core.memory.import_export.archives import ImportReport
from sixfold.core.memory.limits import MemoryLimits
from sixfold.store import archive as store_archive
from tests import loop_time


def member(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def archive(records: bytes) -> bytes:
    """Return a tar whose only page has an extended header with these records."""
    return member("header", records, tarfile.XHDTYPE) + member("a.md", b"text") + bytes(1024)


def record(value: bytes) -> bytes:
    body = b" a=" + value + b"\n"
    length = len(body) + 6
    return str(length).zfill(6).encode() + body


MALFORMED = {
    "digits": b"9" * 20_000,
    "digits of a value": record(b"9" * 20_000),
    "lengths without records": b"2 " * 20_000 + b"=",
    "length beyond the end": b"99 a=b\n",
    "length of zero": b"0 a=b\n",
    "no keyword": b"5 ab\n",
    "no line end": b"5 a=bc",
    "long length": b"1" * 30 + b" a=b\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_extended_header_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(MALFORMED[name]))
    tracemalloc.start()
    try:
        with pytest.raises(errors.BadRequest):
            list(archives.files(path, MemoryLimits(), ImportReport()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20
    with pytest.raises(store_archive.ArchiveDamaged), store_archive.open_archive(path):
        pass


def test_extended_headers_of_tar_programs_are_read(tmp_path: Path) -> None:
    names = ["a.md", "ö" * 100 + ".md", "folder/" * 60 + "1" * tar_headers.MAX_DIGITS + ".md"]
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 4, 1.5
            tar.addfile(info, io.BytesIO(b"text"))
    report = ImportReport()
    assert [file.path for file in archives.files(path, MemoryLimits(), report)] == names


def test_the_most_digits_are_read_in_a_short_time(tmp_path: Path) -> None:
    most = record((b"9" * tar_headers.MAX_DIGITS + b" ") * 2_000)
    path = tmp_path / "a.tar"
    path.write_bytes(archive(most))

    def read() -> None:
        (page,) = archives.files(path, MemoryLimits(), ImportReport())
        assert page.text == "text"

    assert loop_time.cpu_seconds(read, 0.25) < 0.25
