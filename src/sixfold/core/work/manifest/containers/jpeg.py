"""JPEG: comment segments behind JFIF and Exif, several when the text is long.

A comment leaves an XMP packet of somebody else's alone, and every reader shows it. Each begins with
`sixfold <number>/<count>:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sixfold.core.work.manifest.containers.edits import MAX_STEPS, Edit, Unembeddable, text_of

_COMMENT = 0xFE
_START_OF_SCAN = 0xDA
_OPENING = (0xE0, 0xE1)  # JFIF and Exif, which have to come first
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_HEAD = re.compile(rb"sixfold (\d{1,3})/(\d{1,3}):")
_FILL = re.compile(rb"\xff+")  # a marker's first byte may be repeated
_PART_BYTES = 65_000


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a JPEG."""
    return data.startswith(b"\xff\xd8\xff")


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text behind JFIF and Exif, but before a table of further pictures in the file (MPF).

    The table counts from its own place, so what is put before it shifts nothing.
    """
    segments = list(_segments(data))
    if not segments or segments[-1][0] != _START_OF_SCAN:
        raise Unembeddable("not a complete JPEG")
    cuts = [Edit(start, end, b"") for marker, start, end in segments if _is_ours(data, marker, start)]
    at = 2
    for marker, _, end in segments:
        if marker not in _OPENING:
            break
        at = end
    return [Edit(at, at, _comments(text.encode())), *cuts]


def extract(data: bytes) -> str | None:
    """The text out of all comments of ours, if none is missing."""
    parts: dict[int, bytes] = {}
    count = 0
    for marker, start, end in _segments(data):
        if marker == _COMMENT and (head := _HEAD.match(data, start + 4, end)):
            parts.setdefault(int(head[1]), data[head.end() : end])
            count = count or int(head[2])
    if count == 0 or any(number not in parts for number in range(1, count + 1)):
        return None
    return text_of(b"".join(parts[number] for number in range(1, count + 1)))


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, start and end of each whole segment up to the first scan."""
    at = 2 if matches(data) else len(data)
    for _ in range(MAX_STEPS):
        fill = _FILL.match(data, at)
        if fill is None or fill.end() + 3 > len(data):
            return
        at = fill.end() - 1
        marker = data[at + 1]
        length = 0 if marker in _ALONE else int.from_bytes(data[at + 2 : at + 4])
        end = at + 2 + length
        if end > len(data) or (length < 2 and marker not in _ALONE):
            return
        yield marker, at, end
        if marker == _START_OF_SCAN:
            return
        at = end


def _is_ours(data: bytes, marker: int, start: int) -> bool:
    return marker == _COMMENT and _HEAD.match(data, start + 4) is not None


def _comments(raw: bytes) -> bytes:
    parts = [raw[at : at + _PART_BYTES] for at in range(0, len(raw), _PART_BYTES)] or [b""]
    bodies = [b"sixfold %d/%d:" % (number, len(parts)) + part for number, part in enumerate(parts, 1)]
    return b"".join(b"\xff\xfe" + (len(body) + 2).to_bytes(2) + body for body in bodies)
