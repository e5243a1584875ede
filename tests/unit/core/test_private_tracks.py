"""Metadata that is removed from the samples of fragmented videos, and the images in parts of TIFF files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.unit.core.test_manifest_containers import decoded_frames
from tests.unit.core.test_manifest_containers import video as encoded
from tests.unit.core.test_private_metadata import box, private_copy

DATA = b"a secret place, and another secret place"
NOTE = b"a secret description\0"


def full_box(kind: bytes, flags: int, *numbers: int) -> bytes:
    """Return a box of version 0 with flags and numbers of 32 bits."""
    return box(kind, struct.pack(f">{len(numbers) + 1}I", flags, *numbers))


def data_track(track: int) -> bytes:
    """Return the box of a track of data without samples outside of fragments."""
    handler = box(b"hdlr", bytes(8) + b"meta" + bytes(13))
    return box(b"trak", full_box(b"tkhd", 0, 0, 0, track) + box(b"mdia", handler))


RUNS = {
    "sizes of samples": (full_box(b"tfhd", 0x20000, 9), full_box(b"trun", 0x201, 2, 0, 16, len(DATA) - 16)),
    "size of the fragment": (full_box(b"tfhd", 0x20010, 9, 1), full_box(b"trun", 0x1, len(DATA), 0)),
    "size of the movie": (full_box(b"tfhd", 0x20000, 9), full_box(b"trun", 0x1, len(DATA), 0)),
    "all fields": (
        full_box(b"tfhd", 0x2003A, 9, 1, 5, 1, 0),
        full_box(b"trun", 0xF05, 1, 0, 7, 5, len(DATA), 7, 3),
    ),
    "place of the track before": (full_box(b"tfhd", 0, 9), full_box(b"trun", 0x200, 1, len(DATA))),
}


def fragment(header: bytes, run: bytes) -> bytes:
    """Return a fragment with the data at its end; a run without an offset follows its first track."""
    has_offset = run[11] & 1
    empty = full_box(b"tfhd", 0x20000, 8), full_box(b"trun", 0x1, 0, 0)
    parts = [full_box(b"mfhd", 0, 99)]
    size = 8 + sum(map(len, parts)) + (0 if has_offset else 8 + sum(map(len, empty)))
    size += 8 + len(header) + len(run) + 8
    at = struct.pack(">I", size)
    if has_offset:
        run = run[:16] + at + run[20:]
    else:
        parts.append(box(b"traf", empty[0] + empty[1][:16] + at))
    parts.append(box(b"traf", header + run))
    return box(b"moof", b"".join(parts)) + box(b"mdat", DATA)


@pytest.mark.parametrize("name", RUNS)
def test_data_tracks_of_a_fragmented_video_are_overwritten(name: str, tmp_path: Path) -> None:
    # The offsets of samples count from their fragment.
    video = encoded("mp4", "libx264", movflags="frag_keyframe+empty_moov+default_base_moof")
    start = video.index(b"moov") - 4
    end = start + int.from_bytes(video[start : start + 4])
    defaults = video.index(b"mvex", start) - 4
    length = int.from_bytes(video[defaults : defaults + 4])
    added = full_box(b"trex", 0, 9, 1, 0, 1, 0) + full_box(b"trex", 0, 8, 1, 0, 1, 0)
    movie = (
        video[start + 8 : defaults]
        + box(b"mvex", video[defaults + 8 : defaults + length] + added)
        + video[defaults + length : end]
    )
    data = video[:start] + box(b"moov", movie + data_track(9) + data_track(8)) + video[end:]
    index = data.rindex(b"mfra") - 4
    data = data[:index] + fragment(*RUNS[name]) + box(b"emsg", DATA) + box(b"free", b"")
    assert data.count(b"secret") == 4
    copy = private_copy(tmp_path / "file", data, "video/mp4")
    assert b"secret" not in copy
    assert decoded_frames(copy) == decoded_frames(data)


def tiff_entry(tag: int, kind: int, count: int, value: int) -> bytes:
    return struct.pack("<HHII", tag, kind, count, value)


def test_images_in_parts_of_a_tiff_are_kept(tmp_path: Path) -> None:
    """A first image has two smaller copies, one of which has a further copy."""
    pixels = [bytes([value]) * 16 for value in (10, 20, 30, 40)]
    # The header, the pixels, the note, the list of two parts, and four directories.
    places = [8 + 16 * number for number in range(4)]
    note, parts = 8 + 64, 8 + 64 + 24
    first = parts + 8
    length = 2 + 12 * 9 + 4
    directories = [first + length * number for number in range(4)]
    inner = {0: (2, parts), 1: (1, directories[3])}
    data = bytearray(b"II*\0" + struct.pack("<I", directories[0]) + b"".join(pixels) + NOTE.ljust(24))
    data += struct.pack("<II", directories[1], directories[2])
    for number in range(4):
        fields = [(256, 4), (257, 4), (258, 8), (259, 1), (262, 1), (273, places[number]), (279, 16)]
        entries = [tiff_entry(tag, 4, 1, value) for tag, value in fields]
        entries.append(tiff_entry(270, 2, len(NOTE), note))
        count, value = inner.get(number, (1, directories[0]))
        entries.append(tiff_entry(330, 13, count, value))
        data += struct.pack("<H", 9) + b"".join(sorted(entries)) + bytes(4)
    copy = private_copy(tmp_path / "file", bytes(data), "image/tiff")
    assert (bytes(data).count(b"secret"), b"secret" in copy) == (1, False)
    assert copy[8:72] == b"".join(pixels)
    assert copy[parts : parts + 8] == data[parts : parts + 8]
    for place in directories:
        assert struct.unpack_from("<H", copy, place) == (8,)
        assert tiff_entry(270, 2, len(NOTE), note) not in copy
