"""PNG: an international text chunk with the keyword `sixfold`, right after the header."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from sixfold.core.provenance.formats.edits import MAX_TEXT_BYTES, FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, MediaHeader, walk

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Signature and IHDR.
HEADER_BYTES = 33
_CHUNK = struct.Struct(">I4s")
_KEYWORD = b"sixfold\0"
_COMPRESS_FROM_BYTES = 16 * 1024


def matches(data: bytes) -> bool:
    """Return whether the data begins like a PNG."""
    return data.startswith(SIGNATURE)


def header(data: bytes) -> MediaHeader:
    if data[12:16] != b"IHDR":
        raise MalformedFile
    return MediaHeader.of_image(*struct.unpack_from(">II", data, 16))


def is_complete(data: bytes) -> bool:
    """Return whether the chunks lead to IEND."""
    return any(part.kind == b"IEND" for part in chunks(data))


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that insert the text before the image data, where every reader finds it."""
    parts = list(chunks(data))
    if not parts or parts[0].kind != b"IHDR" or parts[-1].kind != b"IEND":
        raise Unembeddable("not a complete PNG")
    cuts = [FileEdit(part.start, part.end, b"") for part in parts if _is_ours(data, part)]
    behind_header = parts[0].end
    return [FileEdit(behind_header, behind_header, _text_chunk(text.encode())), *cuts]


def extract(data: bytes) -> str | None:
    """Return the text of this project's first text chunk."""
    for part in chunks(data):
        if _is_ours(data, part):
            begin = part.body + len(_KEYWORD)
            return _text(data[begin : min(part.end - 4, begin + 2 * MAX_TEXT_BYTES)])
    return None


def chunks(data: bytes) -> Iterator[ContainerPart[bytes]]:
    """Yield each complete chunk up to IEND; its last four bytes are the checksum."""
    return walk(data, len(SIGNATURE), len(data) if matches(data) else 0, _chunk_at, last=b"IEND")


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk with its checksum."""
    return len(body).to_bytes(4) + kind + body + zlib.crc32(body, zlib.crc32(kind)).to_bytes(4)


def _chunk_at(data: bytes, at: int) -> ContainerPart[bytes]:
    length, kind = _CHUNK.unpack_from(data, at)
    return ContainerPart(kind, at, at + 8, at + 12 + length)


def _is_ours(data: bytes, part: ContainerPart[bytes]) -> bool:
    return part.kind == b"iTXt" and data.startswith(_KEYWORD, part.body)


def _text_chunk(raw: bytes) -> bytes:
    compressed = len(raw) > _COMPRESS_FROM_BYTES
    body = zlib.compress(raw, 9) if compressed else raw
    return chunk(b"iTXt", _KEYWORD + bytes([compressed, 0, 0, 0]) + body)


def _text(payload: bytes) -> str | None:
    """Return the text after the compression flag and method, language and translated keyword."""
    head, rest = payload[:2], payload[2:].split(b"\0", 2)
    if len(rest) != 3 or head[1:] != b"\0":
        return None
    if head[0] == 0:
        return text_of(rest[2])
    try:
        return text_of(zlib.decompressobj().decompress(rest[2], MAX_TEXT_BYTES + 1))
    except zlib.error:
        return None
