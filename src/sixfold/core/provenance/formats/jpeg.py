"""JPEG: one or more comment segments after JFIF and Exif.

Unlike an XMP packet, comments do not change the XMP of other applications, and all readers support them. Each
comment begins with `sixfold <number>/<count>:`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, MediaHeader, part_budget, walk

_COMMENT = 0xFE
_START_OF_SCAN = 0xDA
_END = b"\xff\xd9"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JFIF and Exif, which must come first.
_OPENING = (0xE0, 0xE1)
# Markers without a length.
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_HEAD = re.compile(rb"sixfold (\d{1,3})/(\d{1,3}):")
# The first byte of a marker may be repeated.
_FILL = re.compile(rb"\xff+")
_MAX_FILL_BYTES = 1 << 16
_PART_BYTES = 65_000
_SEGMENT = struct.Struct(">BBH")
# Segments before the first scan.
_MAX_SEGMENTS = 4096
# A frame of this kind can be decoded row by row if one scan contains all components.
_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC9})
# A marker after the data of a scan, in which zero bytes and restart markers may follow 0xff.
_AFTER_DATA = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
# The number of components is stored at this offset in the header of a frame.
_COMPONENTS_AT = 5
# Segments between two scans, such as tables.
_STEPS = 16
# Bytes that are searched at a time, because a search blocks the other threads of the process.
_SEARCH_BYTES = 1 << 20


def matches(data: bytes) -> bool:
    """Return whether the data begins like a JPEG."""
    return data.startswith(b"\xff\xd8\xff")


def header(data: bytes) -> MediaHeader:
    """Return the size of the first frame."""
    for segment in segments(data):
        if segment.kind in _FRAMES:
            height, width = struct.unpack_from(">xHH", data, segment.body)
            return MediaHeader.of_image(width, height)
    raise MalformedFile


def is_complete(data: bytes) -> bool:
    """Return whether an end marker, which cannot occur within scan data, follows the first scan."""
    return any(part.kind == _START_OF_SCAN and data.find(_END, part.start) >= 0 for part in segments(data))


class JpegScans(NamedTuple):
    """The number of scans, and whether a decoder must hold the coefficients of the whole image."""

    number: int
    is_buffered: bool


def scans(data: bytes, max_scans: int) -> JpegScans:
    """Count the scans of the image, up to one more than `max_scans`.

    A decoder reads all of the image for each scan, however few bytes a scan has.
    """
    count, components, is_buffered = 0, 0, False
    budget = part_budget(_MAX_SEGMENTS + _STEPS * max_scans)
    at = 2 if matches(data) else len(data)
    while count <= max_scans and (at := _next_marker(data, at)) >= 0:
        budget.spend(parts=1)
        segment = _segment_at(data, at) if at + _SEGMENT.size <= len(data) else None
        if segment is None or data[at : at + 2] == _END:
            break
        if segment.kind in _FRAMES and segment.body + _COMPONENTS_AT < len(data):
            components = data[segment.body + _COMPONENTS_AT]
            is_buffered = segment.kind not in _SEQUENTIAL
        elif segment.kind == _START_OF_SCAN and segment.body < len(data):
            count += 1
            is_buffered = is_buffered or data[segment.body] < components
        at = segment.end
    return JpegScans(count, is_buffered)


def image_end(data: bytes) -> int:
    """Return the end of the first image, behind which cameras append others and videos."""
    budget = part_budget(_MAX_SEGMENTS)
    at = 2 if matches(data) else len(data)
    while (at := _next_marker(data, at)) >= 0:
        budget.spend(parts=1)
        if data[at : at + 2] == _END:
            return at + 2
        segment = _segment_at(data, at) if at + _SEGMENT.size <= len(data) else None
        if segment is None:
            break
        at = segment.end
    return len(data)


def _next_marker(data: bytes, start: int) -> int:
    """Return the offset of the first marker, or -1."""
    for at in range(start, len(data), _SEARCH_BYTES):
        if found := _AFTER_DATA.search(data, at, min(at + _SEARCH_BYTES + 1, len(data))):
            return found.start()
    return -1


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that insert the text after JFIF and Exif, before the index of images (MPF).

    The index is relative to its own position, so inserting text before the index does not invalidate it.
    """
    present = list(segments(data))
    if not present or present[-1].kind != _START_OF_SCAN:
        raise Unembeddable("not a complete JPEG")
    cuts = [
        FileEdit(part.start, part.end, b"")
        for part in present
        if part.kind == _COMMENT and _HEAD.match(data, part.body)
    ]
    at = next(part.start for part in present if part.kind not in _OPENING)
    return [FileEdit(at, at, _comments(text.encode())), *cuts]


def extract(data: bytes) -> str | None:
    """Return the joined text of the comments that Sixfold wrote, or None if one is missing."""
    parts: dict[int, bytes] = {}
    count = 0
    for part in segments(data):
        if part.kind == _COMMENT and (head := _HEAD.match(data, part.body, part.end)):
            parts.setdefault(int(head[1]), data[head.end() : part.end])
            count = count or int(head[2])
    if count == 0 or any(number not in parts for number in range(1, count + 1)):
        return None
    return text_of(b"".join(parts[number] for number in range(1, count + 1)))


def segments(data: bytes) -> Iterator[ContainerPart[int]]:
    """Yield each complete segment up to the header of the first scan; the kind of a segment is its marker."""
    end = len(data) if matches(data) else 0
    return walk(data, 2, end, _segment_at, last=_START_OF_SCAN, budget=part_budget(_MAX_SEGMENTS))


def segment(kind: int, body: bytes) -> bytes:
    return bytes([0xFF, kind]) + (len(body) + 2).to_bytes(2) + body


def _segment_at(data: bytes, at: int) -> ContainerPart[int] | None:
    first, marker, length = _SEGMENT.unpack_from(data, at)
    if first != 0xFF:
        return None
    if marker == 0xFF and (fill := _FILL.match(data, at, at + _MAX_FILL_BYTES)):
        is_marker = data[fill.end() : fill.end() + 1] != b"\xff"
        return _segment_at(data, fill.end() - 1) if is_marker else None
    if marker in _ALONE:
        return ContainerPart(marker, at, at + 2, at + 2)
    return ContainerPart(marker, at, at + 4, at + 2 + length) if length >= 2 else None


def _comments(raw: bytes) -> bytes:
    parts = [raw[at : at + _PART_BYTES] for at in range(0, len(raw), _PART_BYTES)] or [b""]
    bodies = [b"sixfold %d/%d:" % (number, len(parts)) + part for number, part in enumerate(parts, 1)]
    return b"".join(segment(_COMMENT, body) for body in bodies)
