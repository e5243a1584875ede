"""Files of users that are made to take the time or the memory of the server while metadata is removed."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from sixfold.core.provenance import bitmap_metadata, item_metadata, private_metadata
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import MalformedFile

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


def check_memory(edits: list[FileEdit]) -> None:
    """Fail unless the replacements share memory, and each byte is replaced at most once."""
    assert sum({id(edit.new): len(edit.new) for edit in edits}.values()) <= MIB
    assert all(first.end <= second.start for first, second in itertools.pairwise(edits))


def test_overlapping_items_of_an_avif_are_overwritten_once() -> None:
    head = box(b"ftyp", b"avif\0\0\0\0mif1")
    extents = [(1000 + start, MIB) for start in range(0, 1000, 10)]
    data = head + index(extents) + box(b"mdat", b"secret.." * (MIB // 4))
    edits = sorted(item_metadata.removals(data))
    check_memory(edits)
    assert (edits[1].start, edits[-1].end) == (1000, 1990 + MIB)


def test_second_index_of_an_avif_is_refused() -> None:
    data = box(b"ftyp", b"avif\0\0\0\0mif1") + index([(0, 8)]) * 2
    with pytest.raises(MalformedFile, match="more than one index"):
        list(item_metadata.removals(data))


def test_large_gap_of_a_bitmap_takes_no_memory() -> None:
    pixels = 4 * MIB
    data = b"BM" + struct.pack("<IIIIiiHHIIiiII", 0, 0, pixels, 40, 1, 1, 1, 24, 0, 0, 0, 0, 0, 0)
    data = data.ljust(pixels, b"s") + bytes(4)
    edits = sorted(bitmap_metadata.bmp(data))
    check_memory(edits)
    assert (edits[0].start, edits[-2].end) == (54, pixels)


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
