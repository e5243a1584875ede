"""MP4, MOV, M4A, AVIF: a `uuid` box at the end of the file, which does not change offsets.

Only a fragment index (`mfra`), which players expect at the very end, follows it. For the same reason, an
earlier manifest before other boxes becomes free space.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import partial

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance.formats.edits import MAX_TEXT_BYTES, FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, MediaHeader, part_budget, walk

_UUID = bytes.fromhex("a4d2c0e66b1f4c58932e7d05f1b86a3c")
_FIRST = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"})
_INDEX = b"mfra"
_MOVIE = b"moov"
_NEEDED = frozenset({_MOVIE, b"mdat"})
_VIDEO_BOXES = _NEEDED | {b"moof", b"ftyp", b"free", b"wide", b"sidx", b"styp"}
_BOX = struct.Struct(">I4s")
# Of a box of this project: one more than it may have.
_MAX_BYTES = 17 + MAX_TEXT_BYTES
MAX_BOXES = 1 << 16
# The boxes of all tracks and fragments together: three hours of fragments of a second have 600,000.
MAX_FRAGMENT_BOXES = 1 << 22
# Boxes without other boxes.
_DATA = frozenset({b"mdat", b"free", b"skip", b"wide", b"uuid"})
# The offset of the number of samples from the type of the box that states it, wherever that box is.
_COUNTS = re.compile(rb"(?:stsz(?=.{8}(.{4}))|stz2(?=.{8}(.{4}))|trun(?=.{4}(.{4})))", re.DOTALL)


def matches(data: bytes) -> bool:
    """Return whether the data begins like an ISO base media or QuickTime file."""
    return data[4:8] in _FIRST and len(data) >= 16


def header(data: bytes) -> MediaHeader:
    for box in boxes(data):
        if box.kind == _MOVIE:
            inside = boxes(data, box.body, box.end)
            return next((_seconds(data, part.body) for part in inside if part.kind == b"mvhd"), MediaHeader())
    return MediaHeader()


def is_complete(data: bytes) -> bool:
    """Return whether the index and frames exist, and every box of a video has its stated length."""
    box_types, at = set[bytes](), 0
    for box in boxes(data):
        if box_types >= _NEEDED and box.kind not in _VIDEO_BOXES:
            # Another application appended this box.
            return True
        box_types.add(box.kind)
        at = box.end
    is_cut = len(data) >= at + 8 and data[at + 4 : at + 8] in _VIDEO_BOXES
    return box_types >= _NEEDED and not is_cut


def check_samples(data: bytes) -> None:
    """Raise `MalformedFile` if the index states more samples than the file has bytes.

    A demuxer allocates memory for each sample, and a track can state a billion of them in four bytes.
    """
    remaining = len(data)
    at = 0
    for box in boxes(data):
        if box.kind not in _DATA:
            remaining -= _sample_count(data, box.start, box.end)
        at = box.end
    # A demuxer also reads boxes after an incomplete one.
    if remaining < _sample_count(data, at, len(data)) or remaining < 0:
        raise MalformedFile("the index states more samples than the file has bytes")


def _sample_count(data: bytes, start: int, end: int) -> int:
    found = _COUNTS.finditer(data, start, end)
    return sum(int.from_bytes(match[match.lastindex or 1]) for match in found)


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text at the end of the file."""
    top = list(boxes(data)) if matches(data) else []
    if not top or top[-1].end != len(data):
        raise Unembeddable("not a complete MP4")
    result = [_closed(data, top[-1])] if top[-1].is_open else []
    at = top[-1].start if top[-1].kind == _INDEX else len(data)
    for box in top:
        if not _is_ours(data, box):
            continue
        if box.end == at:
            result.append(FileEdit(box.start, box.end, b""))
        else:
            result.append(FileEdit(box.start + 4, box.start + 8, b"free"))
            result.append(FileEdit(box.body, box.body + 16, bytes(16)))
    body = b"uuid" + _UUID + text.encode()
    return [*result, FileEdit(at, at, (len(body) + 4).to_bytes(4) + body)]


def extract(data: bytes) -> str | None:
    """Return the text of the last box of this project."""
    last = None
    for box in boxes(data) if matches(data) else ():
        if _is_ours(data, box):
            last = box
    return None if last is None else text_of(data[last.body + 16 : min(last.end, last.body + _MAX_BYTES)])


def boxes(
    data: bytes, at: int = 0, end: int | None = None, budget: InputBudget | None = None
) -> Iterator[ContainerPart[bytes]]:
    """Yield each complete box between two offsets, by default at the top level."""
    limit = len(data) if end is None else end
    return walk(data, at, limit, partial(_box_at, limit), budget=budget or part_budget(MAX_BOXES))


def _box_at(limit: int, data: bytes, at: int) -> ContainerPart[bytes] | None:
    body = at + 8
    if body > limit:
        return None
    size, kind = _BOX.unpack_from(data, at)
    if size == 1:
        (size,) = struct.unpack_from(">Q", data, body)
        body += 8
    end = at + size if size else limit
    return ContainerPart(kind, at, body, end, not size) if end >= body else None


def _seconds(data: bytes, at: int) -> MediaHeader:
    layout, begin = (">IQ", at + 20) if data[at] == 1 else (">II", at + 12)
    scale, length = struct.unpack_from(layout, data, begin)
    return MediaHeader(seconds=length / scale if length else None)


def _is_ours(data: bytes, box: ContainerPart[bytes]) -> bool:
    return box.kind == b"uuid" and data.startswith(_UUID, box.body) and box.end >= box.body + 16


def _closed(data: bytes, box: ContainerPart[bytes]) -> FileEdit:
    """Return the edit that gives the last box, which extends to the end of the file, an explicit size."""
    size = box.end - box.start
    if size >= 2**32:
        raise Unembeddable("the last box of this MP4 must be smaller than 4 GiB")
    return FileEdit(box.start, box.start + 4, size.to_bytes(4))
