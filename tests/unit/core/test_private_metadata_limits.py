"""Files that would take much time or memory of the server while metadata is removed."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from pathlib import Path

import pytest

from sixfold.core.provenance import bitmap_metadata, c2pa_removal, item_metadata, private_metadata
from sixfold.core.provenance.formats import edits, ogg, png
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import MalformedFile
from tests.unit.core.test_manifest_containers import encoded_file

MIB = 1 << 20


def box(kind: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4) + kind + body


def index(extents: list[tuple[int, int]]) -> bytes:
    """Return the index of an AVIF whose only item is Exif with these extents."""
    entry = box(b"infe", b"\2\0\0\0" + struct.pack(">HH", 1, 0) + b"Exif\0")
    places = b"".join(struct.pack(">II", *extent) for extent in extents)
    counts = struct.pack(">HHHH", 1, 1, 0, len(extents))
    items = box(b"iinf", bytes(4) + struct.pack(">H", 1) + entry)
    return box(b"meta", bytes(4) + items + box(b"iloc", bytes(4) + b"\x44\0" + counts + places))


def check_memory(changes: list[FileEdit]) -> None:
    """Fail unless the replacements share memory, and each byte is replaced at most once."""
    assert sum({id(edit.new): len(edit.new) for edit in changes}.values()) <= MIB
    assert all(first.end <= second.start for first, second in itertools.pairwise(changes))


def test_overlapping_items_of_an_avif_are_overwritten_once() -> None:
    head = box(b"ftyp", b"avif\0\0\0\0mif1")
    extents = [(1000 + start, MIB) for start in range(0, 1000, 10)]
    data = head + index(extents) + box(b"mdat", b"secret.." * (MIB // 4))
    changes = sorted(item_metadata.removals(data))
    check_memory(changes)
    assert (changes[1].start, changes[-1].end) == (1000, 1990 + MIB)


def test_second_index_of_an_avif_is_refused() -> None:
    data = box(b"ftyp", b"avif\0\0\0\0mif1") + index([(0, 8)]) * 2
    with pytest.raises(MalformedFile, match="more than one index"):
        list(item_metadata.removals(data))


def test_large_gap_of_a_bitmap_takes_no_memory() -> None:
    pixels = 4 * MIB
    data = b"BM" + struct.pack("<IIIIiiHHIIiiII", 0, 0, pixels, 40, 1, 1, 1, 24, 0, 0, 0, 0, 0, 0)
    data = data.ljust(pixels, b"s") + bytes(4)
    changes = sorted(bitmap_metadata.bmp(data))
    check_memory(changes)
    assert (changes[0].start, changes[-2].end) == (54, pixels)


def directory(entries: bytes, following: int) -> bytes:
    return struct.pack("<H", len(entries) // 12) + entries + struct.pack("<I", following)


@pytest.mark.parametrize("kind", ["empty", "offsets"])
def test_directories_of_a_tiff_are_limited(kind: str) -> None:
    count = 150_000
    # Each directory has the same many strips.
    strips = b"".join(struct.pack("<HHII", tag, 4, 60_000, 8) for tag in (273, 279))
    entries, number = (b"", count) if kind == "empty" else (strips, 4)
    size = len(directory(entries, 0))
    data = b"II*\0\x08\0\0\0" + b"".join(
        directory(entries, 8 + size * (at + 1) if at + 1 < number else 0) for at in range(number)
    )
    with pytest.raises(MalformedFile, match="more than"):
        list(bitmap_metadata.tiff(data + bytes(4 * 60_000)))


def test_tag_without_a_size_is_removed_from_an_mp3(tmp_path: Path) -> None:
    path = tmp_path / "file"
    frames = (b"\xff\xfb\x90\0" + bytes(413)) * 10
    path.write_bytes(frames + b"APETAGEX" + struct.pack("<IIII", 2000, 0, 0, 0) + bytes(8))
    private_metadata.remove(path)
    assert path.read_bytes() == frames


def test_many_kept_blocks_of_a_flac_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    info = b"\0\0\0\x22" + bytes(34)
    # With a comparison of each block with all others, this takes minutes.
    head = b"fLaC" + info + b"\5\0\0\0" * 99_999
    frames = b"\xff\xf8" + bytes(100)
    path.write_bytes(head + b"\5\0\0\0" + b"\x84\0\0\6secret" + frames)
    private_metadata.remove(path)
    assert path.read_bytes() == head + b"\x85\0\0\0" + frames


@pytest.mark.parametrize("limit", [20, 19])
def test_file_with_too_many_private_parts_is_unchanged(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_metadata, "MAX_EDITS", limit)
    _, data = encoded_file("png")
    # The end of the file is the twentieth part.
    end = data.rindex(b"IEND") - 4
    data = data[:end] + png.chunk(b"tEXt", b"secret") * 19 + data[end:]
    path = tmp_path / "file"
    path.write_bytes(data)
    private_metadata.remove(path)
    assert (path.read_bytes() == data, b"secret" in path.read_bytes()) == (limit < 20, limit < 20)


def test_sound_of_an_ogg_is_not_copied_into_memory() -> None:
    _, data = encoded_file("opus")
    # The comments take another page, so all following pages get another number.
    tagged = edits.splice(data, ogg.edits(data, "a secret prompt" * 10_000))
    changes = ogg.comment_removals(tagged)
    assert len(changes) > 1
    assert {len(change.new) for change in changes[1:]} == {8}
    assert ogg.comment_removals(edits.splice(tagged, changes))[0].new == changes[0].new


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF" + (8_000_004).to_bytes(4, "little") + b"WEBP" + b"VP8 \0\0\0\0" * 1_000_000,
        b"RIFF" + (8_000_004).to_bytes(4, "little") + b"WAVE" + b"LIST\0\0\0\0" * 1_000_000,
        b"fLaC" + b"\1\0\0\0" * 1_000_000,
    ],
    ids=["webp", "wav", "flac"],
)
def test_list_of_a_million_parts_takes_no_memory(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        private_metadata.remove(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * 2**20
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["png", "jpeg", "gif", "moving webp", "wav", "mp4"])
def test_only_a_damaged_file_is_read_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = list[int]()
    edits_of = c2pa_removal.edits_of

    def record(data: bytes) -> list[FileEdit]:
        searched.append(len(data))
        return edits_of(data)

    monkeypatch.setattr(c2pa_removal, "edits_of", record)
    path = tmp_path / "file"
    _, content = encoded_file(name)
    path.write_bytes(content)
    private_metadata.remove(path)
    assert searched == []
    path.write_bytes(b"damaged" + content)
    private_metadata.remove(path)
    assert len(searched) == 1
