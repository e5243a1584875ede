"""MP4, MOV, M4A, AVIF: a `uuid` box at the end of the file, so that no offset into it changes.

Only a fragment index (`mfra`), which players look for at the very end, stays behind it. An earlier
manifest of ours that is followed by other boxes becomes free space, for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.work.manifest.containers.edits import MAX_STEPS, Edit, Unembeddable, text_of

_UUID = bytes.fromhex("a4d2c0e66b1f4c58932e7d05f1b86a3c")
_FIRST = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"})
_INDEX = b"mfra"


class _Box(NamedTuple):
    kind: bytes
    start: int
    body: int
    end: int
    open: bool  # its size says "up to the end of the file"


def matches(data: bytes) -> bool:
    """Whether the bytes begin as an ISO base media or a QuickTime file."""
    return data[4:8] in _FIRST and len(data) >= 16


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text at the end."""
    boxes = list(_boxes(data))
    if not boxes or boxes[-1].end != len(data):
        raise Unembeddable("not a complete MP4")
    found = [_closed(data, boxes[-1])] if boxes[-1].open else []
    at = boxes[-1].start if boxes[-1].kind == _INDEX else len(data)
    for box in boxes:
        if not _is_ours(data, box):
            continue
        if box.end == at:
            found.append(Edit(box.start, box.end, b""))
        else:
            found.append(Edit(box.start + 4, box.start + 8, b"free"))
            found.append(Edit(box.body, box.body + 16, bytes(16)))
    body = b"uuid" + _UUID + text.encode()
    return [*found, Edit(at, at, (len(body) + 4).to_bytes(4) + body)]


def extract(data: bytes) -> str | None:
    """The text out of our last box."""
    last = None
    for box in _boxes(data):
        if _is_ours(data, box):
            last = box
    return None if last is None else text_of(data[last.body + 16 : last.end])


def _boxes(data: bytes) -> Iterator[_Box]:
    """Each whole box of the top level."""
    at = 0 if matches(data) else len(data)
    for _ in range(MAX_STEPS):
        if at + 8 > len(data):
            return
        size, body = int.from_bytes(data[at : at + 4]), at + 8
        is_open = size == 0
        if size == 1:
            size, body = int.from_bytes(data[at + 8 : at + 16]), at + 16
        end = len(data) if is_open else at + size
        if end > len(data) or end < body:
            return
        yield _Box(data[at + 4 : at + 8], at, body, end, is_open)
        at = end


def _is_ours(data: bytes, box: _Box) -> bool:
    return box.kind == b"uuid" and data.startswith(_UUID, box.body) and box.end >= box.body + 16


def _closed(data: bytes, box: _Box) -> Edit:
    """Give the last box, which ran to the end of the file, its size."""
    size = box.end - box.start
    if size >= 2**32:
        raise Unembeddable("the last box of this MP4 is too large to be closed")
    return Edit(box.start, box.start + 4, size.to_bytes(4))
