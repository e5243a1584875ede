"""WebP: an XMP chunk; a simple file is extended, because only extended files can contain metadata."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats import riff, xmp
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import MediaHeader

_FORM = b"WEBP"
_HAS_XMP = 0x04
_HAS_ALPHA = 0x10
# A search blocks other threads.
_MAX_XMP_BYTES = 4 * 2**20

is_complete = riff.is_complete


def matches(data: bytes) -> bool:
    """Return whether the data begins like a WebP."""
    return riff.is_form(data, _FORM)


def header(data: bytes) -> MediaHeader:
    width, height, _ = _canvas(data[12:16], data[20:30])
    return MediaHeader.of_image(width, height)


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text into the file's XMP packet, the last chunk."""
    present = riff.complete(data, _FORM)
    own = [FileEdit(chunk.start, chunk.end, b"") for chunk in present if chunk.kind == b"XMP "]
    packet = next(
        (data[chunk.body : chunk.body + chunk.size] for chunk in present if _is_readable(chunk)), None
    )
    first = present[0]
    if first.kind == b"VP8X" and first.size >= 10:
        flags = data[first.body] | _HAS_XMP
        own.insert(0, FileEdit(first.body, first.body + 1, bytes([flags])))
    else:
        own.insert(0, FileEdit(first.start, first.start, extended_header(data, first)))
    packet = xmp.merge(packet, text)
    return riff.rewritten(present, own, riff.chunk(b"XMP ", packet))


def extract(data: bytes) -> str | None:
    """Return the text of the first XMP packet that contains this project's text."""
    for chunk in riff.chunks(data, _FORM):
        if _is_readable(chunk):
            return xmp.read_text(data[chunk.body : chunk.body + chunk.size])
    return None


def _is_readable(chunk: riff.Chunk) -> bool:
    return chunk.kind == b"XMP " and chunk.size <= _MAX_XMP_BYTES


def extended_header(data: bytes, first: riff.Chunk) -> bytes:
    """Return the VP8X chunk for a simple file, with the canvas size and alpha of its bitstream."""
    try:
        width, height, has_alpha = _canvas(first.kind, data[first.body : first.body + 10])
    except struct.error as error:
        raise Unembeddable("not a supported WebP") from error
    flags = _HAS_XMP | (_HAS_ALPHA if has_alpha else 0)
    if first.kind == b"VP8X" or not (width and height):
        raise Unembeddable("the WebP file does not contain its image size")
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff.chunk(b"VP8X", bytes([flags, 0, 0, 0]) + size)


def _canvas(kind: bytes, bits: bytes) -> tuple[int, int, bool]:
    """Return the width, height and alpha flag from the first bytes of a chunk."""
    if kind == b"VP8 " and bits[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", bits, 6)
        return width & 0x3FFF, height & 0x3FFF, False
    if kind == b"VP8L" and bits[:1] == b"\x2f":
        (packed,) = struct.unpack_from("<I", bits, 1)
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, bool(packed >> 28 & 1)
    if kind == b"VP8X" and len(bits) == 10:
        width, height = (int.from_bytes(bits[at : at + 3], "little") + 1 for at in (4, 7))
        return width, height, bool(bits[0] & _HAS_ALPHA)
    raise Unembeddable("not a supported WebP")
