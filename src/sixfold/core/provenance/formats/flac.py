"""FLAC: a field in the Vorbis comment block, which is inserted after the stream info if missing."""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.provenance.formats import vorbis
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import ContainerPart, MediaHeader, part_budget, walk

_COMMENT = 4
_LAST = 0x80
# The size in the header of a block has 24 bits.
_MAX_BLOCK_BYTES = 2**24
# Readers keep a list of all blocks.
_MAX_BLOCKS = 200_000


def matches(data: bytes) -> bool:
    """Return whether the data begins like a FLAC file."""
    return data.startswith(b"fLaC")


def header(data: bytes) -> MediaHeader:
    """Return the duration in the stream info."""
    facts = int.from_bytes(data[18:26])
    return MediaHeader(seconds=(facts & (1 << 36) - 1) / (facts >> 44) or None)


def is_complete(data: bytes) -> bool:
    """Return whether the metadata is complete; the length of the frames is not stated."""
    return any(block.kind & _LAST for block in blocks(data))


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text into the comments.

    The seek table remains valid, because it counts from the first frame.
    """
    present = list(blocks(data))
    if not present or present[0].kind & 0x7F or not present[-1].kind & _LAST:
        raise Unembeddable("not a complete FLAC")
    for block in present:
        if block.kind & 0x7F == _COMMENT:
            new = _block(block.kind, vorbis.merge(data[block.body : block.end], text))
            return [FileEdit(block.start, block.end, new)]
    head, start, _, end, _ = present[0]
    new = _block(head & _LAST | _COMMENT, vorbis.merge(None, text))
    return [FileEdit(start, start + 1, b"\0"), FileEdit(end, end, new)]


def extract(data: bytes) -> str | None:
    for block in blocks(data):
        if block.kind & 0x7F == _COMMENT:
            return vorbis.read_field(data[block.body : block.end])
    return None


def blocks(data: bytes) -> Iterator[ContainerPart[int]]:
    """Yield each complete metadata block; the highest bit of its first byte marks the last one."""
    start, budget = 4 if matches(data) else len(data), part_budget(_MAX_BLOCKS)
    for block in walk(data, start, len(data), _block_at, budget=budget):
        yield block
        if block.kind & _LAST:
            return


def _block_at(data: bytes, at: int) -> ContainerPart[int]:
    body = at + 4
    return ContainerPart(data[at], at, body, body + int.from_bytes(data[at + 1 : body]))


def _block(head: int, body: bytes) -> bytes:
    if len(body) >= _MAX_BLOCK_BYTES:
        raise Unembeddable(f"the comments of this FLAC must be smaller than {_MAX_BLOCK_BYTES // 2**20} MiB")
    return bytes([head]) + len(body).to_bytes(3) + body
