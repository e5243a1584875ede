"""Removal of metadata from BMP and TIFF files.

Everything in a TIFF that an image does not need is overwritten, because removed values may remain anywhere in
the file; the offsets of the remaining values do not change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance.formats import edits
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import MalformedFile, part_budget

# The offsets of all images, of which most files have one for each row at most, and the fields.
_MAX_NUMBERS = 200_000
_MAX_FIELDS = 100_000
_BIT_FIELDS, _ALPHA_BIT_FIELDS = 3, 6
_CORE_HEADER_BYTES, _INFO_HEADER_BYTES, _V5_HEADER_BYTES = 12, 40, 124
_EMBEDDED_PROFILE = b"DEBM"
# Bytes of a value by field type.
_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
# Format characters of `struct` for the types of offsets and lengths.
_NUMBERS = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
# Pairs of tags with the offsets and the lengths of coded data.
_STRIPS, _TILES, _THUMBNAIL = (273, 279), (324, 325), (513, 514)
_DATA = (_STRIPS, _TILES, _THUMBNAIL)
# Old JPEG compression, whose tables are anywhere in the file.
_OLD_JPEG_TABLES = frozenset({519, 520, 521})
_SUB_DIRECTORIES = 330
# Fields that determine how an image is decoded and shown; others, such as private ones, may have text.
_KEPT = frozenset(
    (
        *(254, 255, 256, 257, 258, 259, 262, 263, 264, 265, 266, 273, 274, 277, 278, 279, 280, 281, 282, 283),
        *(284, 286, 287, 290, 291, 292, 293, 296, 297, 301, 317, 318, 319, 320, 321, 322, 323, 324, 325),
        *(332, 334, 336, 338, 339, 340, 341, 347, 512, 513, 514, 515, 529, 530, 531, 532, 34675),
        _SUB_DIRECTORIES,
    )
)

Span = tuple[int, int]


def bmp(data: bytes) -> Iterator[FileEdit]:
    """Yield edits that remove what is before and after the pixels, except a color profile."""
    pixels, header_bytes = struct.unpack_from("<I", data, 10)[0], struct.unpack_from("<I", data, 14)[0]
    is_core = header_bytes == _CORE_HEADER_BYTES
    width, height, _, bits = struct.unpack_from("<HHHH" if is_core else "<iiHH", data, 18)
    compression, size, used = (0, 0, 0)
    if not is_core:
        compression, size, _, _, used = struct.unpack_from("<IIiiI", data, 30)
    row_bytes = (width * bits + 31) // 32 * 4
    end = pixels + (size if compression and size else row_bytes * abs(height))
    has_masks = header_bytes == _INFO_HEADER_BYTES and compression in (_BIT_FIELDS, _ALPHA_BIT_FIELDS)
    masks = 16 if compression == _ALPHA_BIT_FIELDS else 12
    colors = used or (1 << bits if bits <= 8 else 0)
    head = 14 + header_bytes + masks * has_masks + colors * (3 if is_core else 4)
    if header_bytes == _V5_HEADER_BYTES and data[70:74] == _EMBEDDED_PROFILE:
        at, profile_bytes = struct.unpack_from("<II", data, 14 + 112)
        yield from _zeros(_between([(0, head), (pixels, end), (14 + at, 14 + at + profile_bytes)], len(data)))
        return
    if not 0 < end <= len(data) or head > pixels:
        raise MalformedFile("the pixels are not complete")
    yield from _zeros([(head, pixels)])
    yield FileEdit(end, len(data), b"")


def tiff(data: bytes) -> Iterator[FileEdit]:
    """Yield edits that remove fields from the directories, and overwrite everything that none refers to."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    layout = _Layout(order, is_big)
    budget, numbers, directories = part_budget(_MAX_FIELDS), part_budget(_MAX_NUMBERS), set[int]()
    needed: list[Span] = [(0, 16 if is_big else 8)]
    remaining = [layout.number(data, 8 if is_big else 4)]
    while remaining:
        at = remaining.pop()
        if not at or at in directories:
            continue
        directories.add(at)
        count = layout.count(data, at)
        budget.spend(parts=1 + count)
        first = at + layout.count_bytes
        after = first + count * layout.entry_bytes
        entries = [
            data[place : place + layout.entry_bytes] for place in range(first, after, layout.entry_bytes)
        ]
        tags = {layout.tag(entry) for entry in entries}
        if tags & _OLD_JPEG_TABLES:
            raise MalformedFile("the tables of old JPEG compression cannot be found")
        own = [entry for entry in entries if layout.tag(entry) in _KEPT]
        following = data[after : after + layout.offset_bytes]
        new = layout.pack_count(len(own)) + b"".join(own) + following
        end = after + layout.offset_bytes
        yield FileEdit(at, end, new + bytes(end - at - len(new)))
        needed.append((at, end))
        for entry in own:
            needed += layout.value_spans(entry)
        for offsets, lengths in _DATA:
            starts, sizes = (layout.values(data, own, tag, numbers) for tag in (offsets, lengths))
            pairs = zip(starts, sizes, strict=False)
            needed += [(offset, offset + length) for offset, length in pairs]
        # Smaller copies of an image, and the image itself in files whose first one is a thumbnail.
        remaining += [layout.number(data, after), *layout.values(data, own, _SUB_DIRECTORIES, numbers)]
    yield from _zeros(_between(needed, len(data)))


class _Layout:
    """The byte order and the widths of the numbers of a TIFF or a BigTIFF."""

    def __init__(self, order: str, is_big: bool) -> None:
        self._order = order
        self._offset, self._count = ("Q", "Q") if is_big else ("I", "H")
        self.offset_bytes, self.count_bytes, self.entry_bytes = (8, 8, 20) if is_big else (4, 2, 12)
        self._head = struct.Struct(f"{order}HH{self._offset}")

    def number(self, data: bytes, at: int) -> int:
        return int(struct.unpack_from(self._order + self._offset, data, at)[0])

    def count(self, data: bytes, at: int) -> int:
        return int(struct.unpack_from(self._order + self._count, data, at)[0])

    def pack_count(self, count: int) -> bytes:
        return struct.pack(self._order + self._count, count)

    def tag(self, entry: bytes) -> int:
        return int(self._head.unpack_from(entry)[0])

    def value_spans(self, entry: bytes) -> list[Span]:
        """Return where the values of an entry are, if they do not fit into it."""
        _, kind, count = self._head.unpack_from(entry)
        size = _SIZES[kind] * count
        at = self.number(entry, self._head.size)
        return [] if size <= self.offset_bytes else [(at, at + size)]

    def values(self, data: bytes, entries: Iterable[bytes], tag: int, budget: InputBudget) -> tuple[int, ...]:
        """Return the numbers in the entry with this tag, or an empty tuple."""
        for entry in entries:
            own_tag, kind, count = self._head.unpack_from(entry)
            if own_tag == tag:
                budget.spend(parts=count)
                spans = self.value_spans(entry)
                source, at = (data, spans[0][0]) if spans else (entry, self._head.size)
                return struct.unpack_from(f"{self._order}{count}{_NUMBERS[kind]}", source, at)
        return ()


def _between(needed: list[Span], end: int) -> Iterator[Span]:
    """Yield the spans up to `end` that are in none of `needed`."""
    at = 0
    for start, stop in sorted(needed):
        if start > at:
            yield at, min(start, end)
        at = max(at, stop)
    yield at, end


def _zeros(spans: Iterable[Span]) -> Iterator[FileEdit]:
    for start, stop in spans:
        yield from edits.zeros(start, stop)
