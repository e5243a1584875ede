"""Limits on the memory that a damaged or malicious backup takes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec
import pytest

from sixfold.store import archive
from sixfold.store.archive import ArchiveDamaged

LARGE = 2 * 2**20


@pytest.mark.parametrize(
    "line",
    [
        b"[" + b"[]," * LARGE + b"[]]\n",
        b"[1,{" + b'"a":1,' * LARGE + b'"b":1}]\n',
        b"[" + b"1," * LARGE + b"1]\n",
    ],
    ids=["arrays", "members", "numbers"],
)
def test_values_of_a_large_row_are_counted_before_decoding(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive.msgspec.json, "decode", lambda *_, **__: pytest.fail("the row was decoded"))
    with pytest.raises(ArchiveDamaged, match="more values than the 2 columns"):
        archive.decode_row(line, 2)


def test_large_values_with_any_text_are_read() -> None:
    text = '{"a":[1,2],"b":"\\\\"}' * (LARGE // 20)
    row = [text, b"\0" * LARGE, float("inf"), 1, None, text]
    line = archive.encode_row(row)
    assert len(line) > 3 * LARGE
    assert archive.decode_row(line, len(row)) == row


def test_large_header_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "backup.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(archive.MANIFEST)
        info.pax_headers = {"comment": "1" * 100_000}
        tar.addfile(info)
    with pytest.raises(ArchiveDamaged, match="a header of more than"), archive.open_archive(path):
        pytest.fail("the header was read")


def test_files_of_any_size_are_read_in_pieces(tmp_path: Path) -> None:
    path, content = tmp_path / "backup.tar", b"x" * 300_000
    manifest = archive.ArchiveManifest(archive.FORMAT, 1, "0", 0, ())
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((archive.MANIFEST, msgspec.json.encode(manifest)), ("store/blobs/a", content)):
            file = tmp_path / "part"
            file.write_bytes(data)
            tar.add(file, name)
    with archive.open_archive(path) as backup:
        assert b"".join(next(backup.files()).pieces()) == content
