"""WebP: an XMP chunk; a simple file becomes an extended one, as only that may carry metadata."""

from __future__ import annotations

from sixfold.core.work.manifest.containers import riff, xmp
from sixfold.core.work.manifest.containers.edits import Edit, Unembeddable

_FORM = b"WEBP"
_HAS_XMP = 0x04
_HAS_ALPHA = 0x10


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a WebP."""
    return riff.is_form(data, _FORM)


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text into the file's XMP packet, its last chunk."""
    found = riff.complete(data, _FORM)
    own = [Edit(chunk.start, chunk.end, b"") for chunk in found if chunk.kind == b"XMP "]
    packets = [data[chunk.body : chunk.body + chunk.size] for chunk in found if chunk.kind == b"XMP "]
    first = found[0]
    if first.kind == b"VP8X" and first.size >= 10:
        flags = data[first.body] | _HAS_XMP
        own.insert(0, Edit(first.body, first.body + 1, bytes([flags])))
    else:
        own.insert(0, Edit(first.start, first.start, extended_header(data, first)))
    packet = xmp.merged(packets[0] if packets else None, text)
    return riff.rewritten(found, own, riff.chunk(b"XMP ", packet))


def extract(data: bytes) -> str | None:
    """The text out of the first XMP packet that has one of ours."""
    for chunk in riff.chunks(data, _FORM):
        if chunk.kind == b"XMP ":
            return xmp.found(data[chunk.body : chunk.body + chunk.size])
    return None


def extended_header(data: bytes, first: riff.Chunk) -> bytes:
    """The VP8X chunk for a simple file: canvas size and alpha as its bitstream states them."""
    flags = _HAS_XMP
    bits = data[first.body : first.body + 10]
    if first.kind == b"VP8 " and bits[3:6] == b"\x9d\x01\x2a" and len(bits) == 10:
        width = int.from_bytes(bits[6:8], "little") & 0x3FFF
        height = int.from_bytes(bits[8:10], "little") & 0x3FFF
    elif first.kind == b"VP8L" and bits[:1] == b"\x2f" and len(bits) >= 5:
        packed = int.from_bytes(bits[1:5], "little")
        width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        flags |= _HAS_ALPHA if packed >> 28 & 1 else 0
    else:
        raise Unembeddable("not a WebP that is known here")
    if not (width and height):
        raise Unembeddable("a WebP without a size")
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff.chunk(b"VP8X", bytes([flags, 0, 0, 0]) + size)
