"""Removal of the metadata items of AVIF and HEIC files: everything in their index that is not an image."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sixfold.core.provenance.formats import edits, mp4
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, part_budget

# Coded images, and images that are derived from others.
_IMAGES = frozenset(b"av01 hvc1 avc1 vvc1 j2k1 jpeg unci mski grid iovl iden tmap".split())
# Decoders ignore items of unknown types.
_IGNORED = b"free"
_FULL_BOX_BYTES = 4
_MAX_EXTENTS = 100_000
_IN_FILE, _IN_INDEX = 0, 1
_NUMBERS = {0: "", 4: "I", 8: "Q"}


def removals(data: bytes) -> Iterator[FileEdit]:
    """Yield the edits that overwrite Exif, XMP and other items, without moving data."""
    indexes = [box for box in mp4.boxes(data) if box.kind == b"meta"]
    if len(indexes) > 1:
        raise MalformedFile("the file has more than one index of items")
    for index in indexes:
        yield from _items(data, index)


def _items(data: bytes, index: ContainerPart[bytes]) -> Iterator[FileEdit]:
    inside = {box.kind: box for box in mp4.boxes(data, index.body + _FULL_BOX_BYTES, index.end)}
    if b"iinf" not in inside:
        return
    private = set[int]()
    for at, number in _private_entries(data, inside[b"iinf"]):
        private.add(number)
        yield FileEdit(at, at + 4, _IGNORED)
    spans: list[tuple[int, int]] = []
    if private and b"iloc" in inside:
        base = inside[b"idat"].body if b"idat" in inside else 0
        for number, method, offset, length in _extents(data, inside[b"iloc"]):
            if number in private and method in (_IN_FILE, _IN_INDEX):
                start = offset + (base if method == _IN_INDEX else 0)
                if not length or start + length > len(data):
                    raise MalformedFile("an item is outside the file")
                spans.append((start, start + length))
    yield from edits.zeros_of(spans)


def _private_entries(data: bytes, box: ContainerPart[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the offset of the type and the number of each item that is not an image."""
    first = box.body + _FULL_BOX_BYTES + (2 if data[box.body] == 0 else 4)
    for entry in mp4.boxes(data, first, box.end):
        version = data[entry.body]
        number_bytes = {2: 2, 3: 4}.get(version)
        if entry.kind != b"infe" or number_bytes is None:
            continue
        at = entry.body + _FULL_BOX_BYTES
        number = int.from_bytes(data[at : at + number_bytes])
        at += number_bytes + 2
        if data[at : at + 4] not in _IMAGES:
            yield at, number


def _extents(data: bytes, box: ContainerPart[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the item, the method, the offset and the length of each extent."""
    version = data[box.body]
    widths, more = data[box.body + 4], data[box.body + 5]
    offset_bytes, length_bytes, base_bytes = widths >> 4, widths & 15, more >> 4
    extent_index_bytes = more & 15 if version else 0
    entry = struct.Struct(">" + ("I" if version == 2 else "H") + ("HH" if version else "H"))
    at = box.body + 6
    (count,) = struct.unpack_from(">I" if version == 2 else ">H", data, at)
    at += 4 if version == 2 else 2
    budget = part_budget(_MAX_EXTENTS)
    base = struct.Struct(f">{_NUMBERS[base_bytes]}H")
    extent = struct.Struct(f">{extent_index_bytes}x{_NUMBERS[offset_bytes]}{_NUMBERS[length_bytes]}")
    for _ in range(count):
        fields = entry.unpack_from(data, at)
        method = fields[1] & 15 if version else 0
        *start, extents = base.unpack_from(data, at + entry.size)
        at += entry.size + base.size
        budget.spend(parts=1 + extents)
        for _ in range(extents):
            values = list(extent.unpack_from(data, at))
            at += extent.size
            length = values.pop() if length_bytes else 0
            yield fields[0], method, sum(start) + sum(values), length
