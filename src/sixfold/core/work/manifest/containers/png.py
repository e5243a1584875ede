"""PNG: an international text chunk, keyword `sixfold`, right behind the header."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from sixfold.core.work.manifest.containers.edits import (
    MAX_STEPS,
    MAX_TEXT_BYTES,
    Edit,
    Unembeddable,
    text_of,
)

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KEYWORD = b"sixfold\0"
_COMPRESS_FROM_BYTES = 16 * 1024


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a PNG."""
    return data.startswith(_SIGNATURE)


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text before the image data, where every reader sees it."""
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or chunks[-1][0] != b"IEND":
        raise Unembeddable("not a complete PNG")
    cuts = [Edit(start, end, b"") for kind, start, end in chunks if _is_ours(data, kind, start)]
    behind_header = chunks[0][2]
    return [Edit(behind_header, behind_header, _chunk(text.encode())), *cuts]


def extract(data: bytes) -> str | None:
    """The first text chunk of ours."""
    for kind, start, end in _chunks(data):
        if _is_ours(data, kind, start):
            return _text(data[start + 8 + len(_KEYWORD) : end - 4])
    return None


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Type, start and end of each whole chunk up to IEND."""
    at = len(_SIGNATURE) if matches(data) else len(data)
    for _ in range(MAX_STEPS):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        if end > len(data):
            return
        kind = data[at + 4 : at + 8]
        yield kind, at, end
        if kind == b"IEND":
            return
        at = end


def _is_ours(data: bytes, kind: bytes, start: int) -> bool:
    return kind == b"iTXt" and data.startswith(_KEYWORD, start + 8)


def _chunk(raw: bytes) -> bytes:
    compressed = len(raw) > _COMPRESS_FROM_BYTES
    body = zlib.compress(raw, 9) if compressed else raw
    payload = b"iTXt" + _KEYWORD + bytes([compressed, 0, 0, 0]) + body
    return (len(payload) - 4).to_bytes(4) + payload + zlib.crc32(payload).to_bytes(4)


def _text(payload: bytes) -> str | None:
    """The text behind compression flag and method, language and translated keyword."""
    head, rest = payload[:2], payload[2:].split(b"\0", 2)
    if len(rest) != 3 or head[1:] != b"\0":
        return None
    if head[0] == 0:
        return text_of(rest[2])
    try:
        return text_of(zlib.decompressobj().decompress(rest[2], MAX_TEXT_BYTES + 1))
    except zlib.error:
        return None
