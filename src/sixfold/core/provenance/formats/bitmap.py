"""BMP, TIFF and BigTIFF: dimensions only."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats.parts import MediaHeader, part_budget

_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323
# The OS/2 header, whose numbers are half as wide.
_CORE_HEADER_BYTES = 12
_MAX_ENTRIES = 4096
# Format characters of `struct` by field type.
_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}


def header(data: bytes) -> MediaHeader:
    return _bmp(data) if data[:2] == b"BM" else _tiff(data)


def is_complete(data: bytes) -> bool:
    """Return True, because only a decoder can detect missing rows."""
    return True


def _bmp(data: bytes) -> MediaHeader:
    is_core = struct.unpack_from("<I", data, 14)[0] == _CORE_HEADER_BYTES
    width, height = struct.unpack_from("<HH" if is_core else "<ii", data, 18)
    # A negative height means that rows are stored from top to bottom.
    return MediaHeader.of_image(width, abs(height))


def _tiff(data: bytes) -> MediaHeader:
    """Return the dimensions in the first directory; tiles are decoded whole, even if the image is smaller."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    (offset,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, offset)
    part_budget(_MAX_ENTRIES).spend(parts=count)
    entry_bytes, value_at = (20, 12) if is_big else (12, 8)
    first = offset + (8 if is_big else 2)
    sizes = dict.fromkeys((_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT), 0)
    for at in range(first, first + count * entry_bytes, entry_bytes):
        tag, kind = struct.unpack_from(order + "HH", data, at)
        if tag in sizes:
            (value,) = struct.unpack_from(order + _NUMBERS[kind], data, at + value_at)
            sizes[tag] = max(sizes[tag], value)
    width, height, tile_width, tile_height = sizes.values()
    return MediaHeader(width, height, max(width * height, tile_width * tile_height))
