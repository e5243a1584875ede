"""GIF: an application extension `SIXFOLD1` / `1.0` before the first image."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from itertools import takewhile

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance.formats.edits import MAX_TEXT_BYTES, FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import ContainerPart, MediaHeader, part_budget, walk

_HEAD = b"\x21\xff\x0bSIXFOLD11.0"
_EXTENSION = 0x21
_IMAGE = 0x2C
TRAILER = 0x3B
_GRAPHIC_CONTROL = 0xF9
# Each has up to 255 bytes.
_MAX_SUB_BLOCKS = 1 << 22


def matches(data: bytes) -> bool:
    """Return whether the data begins like a GIF."""
    return data.startswith((b"GIF87a", b"GIF89a"))


def header(data: bytes) -> MediaHeader:
    """Return the size of the logical screen."""
    return MediaHeader.of_image(*struct.unpack_from("<HH", data, 6))


def is_complete(data: bytes) -> bool:
    """Return whether the blocks lead to the trailer."""
    return any(part.kind == TRAILER for part in blocks(data))


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that insert the text after the file's global extensions, such as its loop count."""
    at = _body(data)
    cuts: list[FileEdit] = []
    # A malicious file may contain millions of these.
    for part in _extensions(data):
        at = part.end
        if data.startswith(_HEAD, part.start):
            cuts.append(FileEdit(part.start, part.end, b""))
    if data[at : at + 1] not in (b"\x21", b"\x2c"):
        raise Unembeddable("not a complete GIF")
    # The older version does not have extensions.
    version = FileEdit(0, 6, b"GIF89a")
    return [version, *cuts, FileEdit(at, at, _block(text.encode()))]


def extract(data: bytes) -> str | None:
    """Return the text of this project's first extension before the first image."""
    for part in _extensions(data):
        if data.startswith(_HEAD, part.start):
            return text_of(_joined(data, part.start + len(_HEAD), part.end))
    return None


def blocks(data: bytes) -> Iterator[ContainerPart[int]]:
    """Yield each complete extension and image up to the trailer, and stray bytes as separate parts."""
    budget = part_budget(_MAX_SUB_BLOCKS)
    return walk(data, _body(data), len(data), partial(_block_at, budget), last=TRAILER, budget=budget)


def _block_at(budget: InputBudget, data: bytes, at: int) -> ContainerPart[int]:
    kind = data[at]
    # Some encoders write zeros between blocks.
    body = at + 1
    if kind == _EXTENSION:
        body = at + 2
    elif kind == _IMAGE:
        body = at + 11 + _color_table_bytes(data[at + 9])
    end = body if body == at + 1 else _chain_end(budget, data, body)
    return ContainerPart(kind, at, body, end)


def _extensions(data: bytes) -> Iterator[ContainerPart[int]]:
    """Yield each complete extension before the first image and its control extension."""
    return takewhile(
        lambda part: part.kind == _EXTENSION and data[part.start + 1] != _GRAPHIC_CONTROL, blocks(data)
    )


def _body(data: bytes) -> int:
    """Return the offset of the first block, after the screen descriptor and global color table."""
    return 13 + _color_table_bytes(data[10]) if matches(data) and len(data) >= 13 else len(data)


def _color_table_bytes(flags: int) -> int:
    """Return the length of a color table in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _chain_end(budget: InputBudget, data: bytes, at: int) -> int:
    """Return the end of a chain of sub-blocks with its terminator; raises `IndexError` if truncated."""
    remaining = _MAX_SUB_BLOCKS - budget.amount("parts")
    count = 0
    while size := data[at]:
        at += 1 + size
        count += 1
        if count > remaining:
            break
    budget.spend(parts=count)
    return at + 1


def _joined(data: bytes, at: int, end: int) -> bytes:
    """Return the text of a chain of sub-blocks, up to one byte more than a text may have."""
    text = bytearray()
    while at < end and data[at] and len(text) <= MAX_TEXT_BYTES:
        text += data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
    return bytes(text)


def _block(raw: bytes) -> bytes:
    parts = [raw[at : at + 255] for at in range(0, len(raw), 255)]
    return _HEAD + b"".join(bytes([len(part)]) + part for part in parts) + b"\0"
