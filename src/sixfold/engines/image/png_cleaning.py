"""Removal of text and other metadata from a PNG without decoding its pixels."""

from __future__ import annotations

import zlib

from sixfold.core.provenance.formats import png
from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.engines.image import headers

_CHUNKS_KEPT = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
# Sizes of parts in bytes, compressed and decompressed: pixels are checked in parts, to limit memory.
_PART_BYTES, _PIXELS_BYTES = 2**16, 2**22
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def strip_metadata(data: bytes) -> bytes | None:
    """Return a PNG without ancillary chunks, or None if the file is interlaced, truncated or damaged."""
    chunks = [png.SIGNATURE]
    rows: list[bytes] = []
    kind, header, end = b"", b"", 0
    try:
        for kind, start, body, end, _ in png.chunks(data):
            if zlib.crc32(data[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
                return None
            if kind in _CHUNKS_KEPT:
                chunks.append(data[start:end])
            if kind == b"IHDR":
                header = data[body : end - 4]
            elif kind == b"IDAT":
                rows.append(data[body : end - 4])
    except MalformedFile:
        # The file contains more chunks than the parser reads.
        return None
    is_complete = kind == b"IEND" and end == len(data) and len(header) == 13 and header[12] == 0
    return b"".join(chunks) if is_complete and _inflates(header, b"".join(rows)) else None


def _inflates(header: bytes, rows: bytes) -> bool:
    width, height = int.from_bytes(header[:4]), int.from_bytes(header[4:8])
    bits = header[8] * _CHANNELS.get(header[9], 0)
    expected = height * (1 + (width * bits + 7) // 8)
    if not bits or width * height > headers.MAX_PIXELS:
        return False
    try:
        return _length(rows, expected) == expected
    except zlib.error:
        return False


def _length(rows: bytes, limit: int) -> int:
    """Return the decompressed length, or -1 if the stream is incomplete or longer than `limit`."""
    stream, length, start = zlib.decompressobj(), 0, 0
    while not stream.eof:
        part = stream.unconsumed_tail
        if not part:
            part = rows[start : start + _PART_BYTES]
            start += _PART_BYTES
        pixels = stream.decompress(part, _PIXELS_BYTES)
        length += len(pixels)
        if length > limit or not (part or pixels):
            return -1
    return length
