"""BMP, TIFF and BigTIFF: their size alone."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats.parts import MediaHeader, part_budget

_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323
_CORE_HEADER_BYTES = 12  # of OS/2, whose numbers have half the width
_MAX_ENTRIES = 4096
_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}  # struct's letter for a field's type


def header(data: bytes) -> MediaHeader:
    """Return the size."""
    return _bmp(data) if data[:2] == b"BM" else _tiff(data)


def is_complete(data: bytes) -> bool:
    """Return True: the decoder finds missing rows."""
    return True


def _bmp(data: bytes) -> MediaHeader:
    is_core = struct.unpack_from("<I", data, 14)[0] == _CORE_HEADER_BYTES
    width, height = struct.unpack_from("<HH" if is_core else "<ii", data, 18)
    return MediaHeader.of_image(width, abs(height))  # a negative height: the rows begin at the top


def _tiff(data: bytes) -> MediaHeader:
    """The size in the first directory; a tile is decoded whole, however small the image is."""
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
