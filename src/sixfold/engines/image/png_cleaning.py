"""Remove texts and other metadata from a PNG without decoding its pixels."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from sixfold.engines.image import headers

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNKS_KEPT = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def strip_metadata(data: bytes) -> bytes | None:
    """Return a PNG without texts and other extras; None for one that is interlaced, cut off or damaged."""
    kept = [_SIGNATURE]
    rows: list[bytes] = []
    kind, header = b"", b""
    for kind, start, end in _chunks(data):
        if zlib.crc32(data[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            return None
        if kind in _CHUNKS_KEPT:
            kept.append(data[start:end])
        if kind == b"IHDR":
            header = data[start + 8 : end - 4]
        elif kind == b"IDAT":
            rows.append(data[start + 8 : end - 4])
    whole = kind == b"IEND" and len(header) == 13 and header[12] == 0
    return b"".join(kept) if whole and _inflates(header, b"".join(rows)) else None


def _inflates(header: bytes, rows: bytes) -> bool:
    width, height = int.from_bytes(header[:4]), int.from_bytes(header[4:8])
    bits = header[8] * _CHANNELS.get(header[9], 0)
    expected = height * (1 + (width * bits + 7) // 8)
    if not bits or width * height > headers.MAX_PIXELS:
        return False
    stream = zlib.decompressobj()
    try:
        length = len(stream.decompress(rows, expected + 1))
    except zlib.error:
        return False
    return length == expected and stream.eof


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    at = len(_SIGNATURE)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        if end > len(data):
            return
        yield data[at + 4 : at + 8], at, end
        at = end
