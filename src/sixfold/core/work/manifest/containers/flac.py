"""FLAC: a field in its Vorbis comment block, made behind the stream's description if there is none."""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.work.manifest.containers import vorbis
from sixfold.core.work.manifest.containers.edits import MAX_STEPS, Edit, Unembeddable

_COMMENT = 4
_LAST = 0x80


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a FLAC file."""
    return data.startswith(b"fLaC")


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text among the comments; positions in the seek table count from the first frame."""
    blocks = list(_blocks(data))
    if not blocks or blocks[0][0] & 0x7F or not blocks[-1][0] & _LAST:
        raise Unembeddable("not a complete FLAC")
    for head, start, end in blocks:
        if head & 0x7F == _COMMENT:
            block = _block(head, vorbis.merged(data[start + 4 : end], text))
            return [Edit(start, end, block)]
    head, start, end = blocks[0]
    block = _block(head & _LAST | _COMMENT, vorbis.merged(None, text))
    return [Edit(start, start + 1, b"\0"), Edit(end, end, block)]


def extract(data: bytes) -> str | None:
    """The text out of the comments."""
    for head, start, end in _blocks(data):
        if head & 0x7F == _COMMENT:
            return vorbis.found(data[start + 4 : end])
    return None


def _blocks(data: bytes) -> Iterator[tuple[int, int, int]]:
    """First byte, start and end of each whole metadata block."""
    at = 4 if matches(data) else len(data)
    for _ in range(MAX_STEPS):
        end = at + 4 + int.from_bytes(data[at + 1 : at + 4])
        if end > len(data):
            return
        yield data[at], at, end
        if data[at] & _LAST:
            return
        at = end


def _block(head: int, body: bytes) -> bytes:
    if len(body) >= 2**24:
        raise Unembeddable("the comments of this FLAC are too long")
    return bytes([head]) + len(body).to_bytes(3) + body
