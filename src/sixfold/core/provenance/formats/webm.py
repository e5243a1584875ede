"""WebM and Matroska: a Tags element at the end of the segment.

Positions within a segment are relative to its payload, so they remain valid if the segment's size field
grows. A segment or cluster of unknown size (a live recording) keeps its unknown size.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of, zeros
from sixfold.core.provenance.formats.parts import MAX_PARTS, ContainerPart, MediaHeader, part_budget

_HEADER = 0x1A45DFA3
_SEGMENT = 0x18538067
_CLUSTER = 0x1F43B675
_INFO, _SCALE, _DURATION = 0x1549A966, 0x2AD7B1, 0x4489
# Nanoseconds per tick.
_USUAL_SCALE = (1_000_000).to_bytes(3)
_NANOSECONDS = 1e9
_TAGS = 0x1254C367
_TAG = 0x7373
_TARGETS = 0x63C0
_SIMPLE_TAG = 0x67C8
_NAME = 0x45A3
_STRING = 0x4487
_VOID = 0xEC
_CRC = 0xBF
_TRACKS, _TRACK, _TRACK_NAME = 0x1654AE6B, 0xAE, 0x536E
_ATTACHMENTS = 0x1941A469
_TITLE, _DATE, _FILE_NAMES = 0x7BA9, 0x4461, (0x7384, 0x3C83AB, 0x3E83BB)
# Elements that are not needed to play the file, with the checksums of those that contain them.
_PRIVATE = frozenset({_TAGS, _ATTACHMENTS, _TITLE, _DATE, *_FILE_NAMES, _TRACK_NAME, _CRC})
_PARENTS = frozenset({_INFO, _TRACKS, _TRACK})
_OURS = b"SIXFOLD_MANIFEST"
_MAX_TAGS_BYTES = 2**19
# The average size of elements, including those of live recordings, whose clusters are not skipped.
_MIN_PART_BYTES, _SMALL_FILE_PARTS = 16, 2**14
# Only the last tags are searched, which limits the work on a malicious file.
_MAX_TAGS = 4


def matches(data: bytes) -> bool:
    """Return whether the data begins like an EBML file."""
    return data.startswith(_HEADER.to_bytes(4))


def header(data: bytes) -> MediaHeader:
    """Return the duration in the segment information, if it precedes the frames."""
    segment = _segment(data)
    for element in _children(data, segment.body, segment.end) if segment else ():
        if element.kind == _CLUSTER:
            break
        if element.kind == _INFO:
            fields = {part.kind: data[part.body : part.end][:8] for part in _children(data, *element[2:4])}
            if length := fields.get(_DURATION):
                ticks = struct.unpack(">d" if len(length) == 8 else ">f", length)[0]
                scale = int.from_bytes(fields.get(_SCALE, _USUAL_SCALE))
                return MediaHeader(seconds=ticks * scale / _NANOSECONDS)
            break
    return MediaHeader()


def is_complete(data: bytes) -> bool:
    """Return whether the segment has its stated length; a live recording does not state a length."""
    return _segment(data) is not None


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that insert the text after the last element of the segment."""
    segment = _segment(data)
    if segment is None:
        raise Unembeddable("not a complete WebM")
    elements = list(_children(data, segment.body, segment.end))
    if not elements or elements[-1].end != segment.end:
        raise Unembeddable("the elements of this WebM do not fill its segment")
    first = elements[0]
    result = [_void(first.start, first.end)] if first.kind == _CRC else list[FileEdit]()
    for element in _last_tags(elements):
        result += _removal(data, element, segment.end)
    tags = _tags(text)
    growth = len(tags) + sum(len(edit.new) - (edit.end - edit.start) for edit in result)
    if not segment.is_open:
        size = segment.end - segment.body + growth
        result.append(_resized(segment, size))
    return [*result, FileEdit(segment.end, segment.end, tags)]


def tag_removals(data: bytes) -> Iterator[FileEdit]:
    """Yield the edits that overwrite tags, attachments, titles, dates and names, without moving data."""
    segment = _segment(data)
    if segment is not None:
        yield from _private(data, segment, _budget(data))


def _private(data: bytes, parent: ContainerPart[int], budget: InputBudget) -> Iterator[FileEdit]:
    for element in _children(data, parent.body, parent.end, budget):
        if element.kind == _VOID:
            yield from zeros(element.body, element.end)
        elif element.kind in _PRIVATE:
            head = _void_head(element.end - element.start)
            yield FileEdit(element.start, element.start + len(head), head)
            yield from zeros(element.start + len(head), element.end)
        elif element.kind in _PARENTS:
            yield from _private(data, element, budget)


def extract(data: bytes) -> str | None:
    """Return the manifest text from the last tag that this project writes, or None."""
    segment = _segment(data)
    text: str | None = None
    if segment is not None:
        for element in _last_tags(_children(data, segment.body, segment.end)):
            for _, raw in _ours(data, element):
                text = text_of(raw)
    return text


def _segment(data: bytes) -> ContainerPart[int] | None:
    if not matches(data):
        return None
    for element in _children(data, 0, len(data)):
        if element.kind == _SEGMENT:
            return element
    return None


def _children(
    data: bytes, at: int, limit: int, budget: InputBudget | None = None
) -> Iterator[ContainerPart[int]]:
    """Yield each complete element up to `limit`.

    The children of an element of unknown size follow that element.
    """
    budget = budget or _budget(data)
    while (element := _element(data, at, limit)) is not None:
        budget.spend(parts=1)
        yield element
        if element.is_open and element.kind not in (_SEGMENT, _CLUSTER):
            return
        at = element.body if element.is_open else element.end


def _budget(data: bytes) -> InputBudget:
    """Return a budget of one element per 16 bytes: 2 MB of empty elements took 1.3 s."""
    parts = 1 << (len(data) // _MIN_PART_BYTES).bit_length()
    return part_budget(max(_SMALL_FILE_PARTS, min(parts, MAX_PARTS)))


def _element(data: bytes, at: int, limit: int) -> ContainerPart[int] | None:
    """Return the element at `at` if its header and payload are within the limit, otherwise None."""
    if at >= limit:
        return None
    ident_bytes = 9 - data[at].bit_length()
    body = at + ident_bytes
    if ident_bytes > 4 or body >= limit:
        return None
    size_bytes = 9 - data[body].bit_length()
    ident, mask = int.from_bytes(data[at:body]), (1 << 7 * size_bytes) - 1
    size = int.from_bytes(data[body : body + size_bytes]) & mask
    body += size_bytes
    is_open = size == mask
    end = limit if is_open else body + size
    if size_bytes > 8 or body > limit or end > limit:
        return None
    return ContainerPart(ident, at, body, end, is_open)


def _last_tags(elements: Iterable[ContainerPart[int]]) -> list[ContainerPart[int]]:
    tags = deque((element for element in elements if element.kind == _TAGS), _MAX_TAGS)
    return [element for element in tags if element.end - element.body <= _MAX_TAGS_BYTES]


def _ours(data: bytes, tags: ContainerPart[int]) -> Iterator[tuple[ContainerPart[int], bytes]]:
    """Yield each simple tag of this project with the bytes of its text."""
    for tag in _children(data, tags.body, tags.end):
        if tag.kind != _TAG:
            continue
        for simple in _children(data, tag.body, tag.end):
            if simple.kind == _SIMPLE_TAG:
                fields = {field.kind: field for field in _children(data, simple.body, simple.end)}
                name, string = fields.get(_NAME), fields.get(_STRING)
                if name and string and data[name.body : name.end].rstrip(b"\0") == _OURS:
                    yield simple, data[string.body : string.end]


def _removal(data: bytes, tags: ContainerPart[int], end: int) -> list[FileEdit]:
    """Return edits that remove this project's tag without moving data.

    The tag is cut off at the end of the file and overwritten elsewhere.
    """
    ours = [simple for simple, _ in _ours(data, tags)]
    if not ours:
        return []
    other_tags = [
        simple
        for tag in _children(data, tags.body, tags.end)
        if tag.kind == _TAG
        for simple in _children(data, tag.body, tag.end)
        if simple.kind == _SIMPLE_TAG and simple not in ours
    ]
    if other_tags:
        sums = [part for part in _children(data, tags.body, tags.end) if part.kind == _CRC]
        return [_void(part.start, part.end) for part in (*ours, *sums)]
    return [FileEdit(tags.start, tags.end, b"") if tags.end == end else _void(tags.start, tags.end)]


def _void(start: int, end: int) -> FileEdit:
    """Return the edit that overwrites a range with an element that readers skip."""
    head = _void_head(end - start)
    return FileEdit(start, end, head + bytes(end - start - len(head)))


def _void_head(total: int) -> bytes:
    """Return the type and the size of an element of `total` bytes that readers skip."""
    size_bytes = 8 if total >= 9 else 1
    size = total - 1 - size_bytes
    return bytes([_VOID]) + (size | 1 << 7 * size_bytes).to_bytes(size_bytes)


def _resized(segment: ContainerPart[int], size: int) -> FileEdit:
    """Return the edit for the segment's new size field, which is as wide as before if possible."""
    at = segment.start + 4
    wide = segment.body - at
    if size >= (1 << 7 * wide) - 1:
        wide = 8
    return FileEdit(at, segment.body, (size | 1 << 7 * wide).to_bytes(wide))


def _tags(text: str) -> bytes:
    fields = _written(_NAME, _OURS) + _written(_STRING, text.encode())
    return _written(_TAGS, _written(_TAG, _written(_TARGETS, b"") + _written(_SIMPLE_TAG, fields)))


def _written(ident: int, body: bytes) -> bytes:
    field = (len(body) | 1 << 28).to_bytes(4)
    return ident.to_bytes((ident.bit_length() + 7) // 8) + field + body
