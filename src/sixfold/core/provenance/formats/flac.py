"""FLAC: a field in its Vorbis comment block, made behind the stream's description if there is none."""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.provenance.formats import vorbis
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import ContainerPart, MediaHeader, walk

_COMMENT = 4
_LAST = 0x80


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a FLAC file."""
    return data.startswith(b"fLaC")


def header(data: bytes) -> MediaHeader:
    """Return the seconds that the stream's description claims."""
    facts = int.from_bytes(data[18:26])
    return MediaHeader(seconds=(facts & (1 << 36) - 1) / (facts >> 44) or None)


def is_complete(data: bytes) -> bool:
    """Whether the metadata is whole; nothing says how long the frames are."""
    return any(block.kind & _LAST for block in _blocks(data))


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Put the text among the comments; positions in the seek table count from the first frame."""
    blocks = list(_blocks(data))
    if not blocks or blocks[0].kind & 0x7F or not blocks[-1].kind & _LAST:
        raise Unembeddable("not a complete FLAC")
    for block in blocks:
        if block.kind & 0x7F == _COMMENT:
            new = _block(block.kind, vorbis.merged(data[block.body : block.end], text))
            return [FileEdit(block.start, block.end, new)]
    head, start, _, end, _ = blocks[0]
    new = _block(head & _LAST | _COMMENT, vorbis.merged(None, text))
    return [FileEdit(start, start + 1, b"\0"), FileEdit(end, end, new)]


def extract(data: bytes) -> str | None:
    """The text out of the comments."""
    for block in _blocks(data):
        if block.kind & 0x7F == _COMMENT:
            return vorbis.found(data[block.body : block.end])
    return None


def _blocks(data: bytes) -> Iterator[ContainerPart[int]]:
    """Each whole metadata block; its kind is its first byte, whose highest bit marks the last one."""
    for block in walk(data, 4 if matches(data) else len(data), len(data), _block_at):
        yield block
        if block.kind & _LAST:
            return


def _block_at(data: bytes, at: int) -> ContainerPart[int]:
    body = at + 4
    return ContainerPart(data[at], at, body, body + int.from_bytes(data[at + 1 : body]))


def _block(head: int, body: bytes) -> bytes:
    if len(body) >= 2**24:
        raise Unembeddable("the comments of this FLAC are too long")
    return bytes([head]) + len(body).to_bytes(3) + body
