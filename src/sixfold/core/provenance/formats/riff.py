"""The chunks of a RIFF file, which WebP and WAV share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import part_budget

_MAX_SIZE = 2**32 - 2


class Chunk(NamedTuple):
    """One chunk: its payload runs from `body` for `size` bytes, and `end` counts the padding byte."""

    kind: bytes
    start: int
    body: int
    size: int
    end: int


def is_form(data: bytes, form: bytes) -> bool:
    """Whether the bytes begin as a RIFF file of this form."""
    return data[:4] == b"RIFF" and data[8:12] == form


def is_complete(data: bytes) -> bool:
    """Whether the file is as long as its first header says."""
    return 8 + int.from_bytes(data[4:8], "little") <= len(data)


def chunks(data: bytes, form: bytes) -> Iterator[Chunk]:
    """Each whole chunk; stops at the first that the file is too short for."""
    if is_form(data, form):
        limit = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
        for chunk in claimed_chunks(data, limit):
            if chunk.body + chunk.size > limit:
                return
            yield chunk._replace(end=min(chunk.end, limit))  # the last padding byte is often forgotten


def claimed_chunks(data: bytes, limit: int) -> Iterator[Chunk]:
    """Each chunk that begins before the limit, wherever it claims to end."""
    budget, at = part_budget(), 12
    while at + 8 <= limit:
        budget.spend(parts=1)
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        end = at + 8 + size + size % 2
        yield Chunk(data[at : at + 4], at, at + 8, size, end)
        at = end


def complete(data: bytes, form: bytes) -> list[Chunk]:
    """All chunks of a file whose sizes add up; `Unembeddable` otherwise."""
    found = list(chunks(data, form))
    if not found or found[-1].end < 8 + int.from_bytes(data[4:8], "little"):
        raise Unembeddable("not a complete RIFF file")
    return found


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk's bytes, padded."""
    return kind + len(body).to_bytes(4, "little") + body + b"\0" * (len(body) % 2)


def rewritten(found: list[Chunk], own: list[FileEdit], last: bytes) -> list[FileEdit]:
    """The edits `own`, with `last` put behind the last chunk and the size set right."""
    end = found[-1].end
    kept = end + sum(len(edit.new) - (edit.end - edit.start) for edit in own)
    behind = b"\0" * (kept % 2) + last
    size = kept + len(behind) - 8
    if size > _MAX_SIZE:
        raise Unembeddable("the file would be larger than RIFF allows")
    return [FileEdit(4, 8, size.to_bytes(4, "little")), *own, FileEdit(end, end, behind)]
