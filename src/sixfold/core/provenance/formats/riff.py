"""Chunks of RIFF files, for WebP and WAV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import part_budget

_MAX_SIZE = 2**32 - 2
# Readers keep a list of all chunks, which takes 200 bytes for each; every frame of an animation is a chunk.
_MAX_CHUNKS = 100_000


class Chunk(NamedTuple):
    """A chunk, whose payload has `size` bytes from `body`; `end` includes the padding byte."""

    kind: bytes
    start: int
    body: int
    size: int
    end: int


def is_form(data: bytes, form: bytes) -> bool:
    """Return whether the data begins like a RIFF file of this form."""
    return data[:4] == b"RIFF" and data[8:12] == form


def is_complete(data: bytes) -> bool:
    """Return whether the file has the length that its header states."""
    return 8 + int.from_bytes(data[4:8], "little") <= len(data)


def chunks(data: bytes, form: bytes) -> Iterator[Chunk]:
    """Yield each complete chunk, up to the first truncated one."""
    if is_form(data, form):
        limit = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
        for chunk in claimed_chunks(data, limit):
            if chunk.body + chunk.size > limit:
                return
            # Some encoders omit the last padding byte.
            yield chunk._replace(end=min(chunk.end, limit))


def claimed_chunks(data: bytes, limit: int) -> Iterator[Chunk]:
    """Yield each chunk that begins before the limit, even if it is truncated."""
    budget, at = part_budget(_MAX_CHUNKS), 12
    while at + 8 <= limit:
        budget.spend(parts=1)
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        end = at + 8 + size + size % 2
        yield Chunk(data[at : at + 4], at, at + 8, size, end)
        at = end


def complete(data: bytes, form: bytes) -> list[Chunk]:
    """Return all chunks of a file with consistent sizes; raises `Unembeddable` for other files."""
    result = list(chunks(data, form))
    if not result or result[-1].end < 8 + int.from_bytes(data[4:8], "little"):
        raise Unembeddable("not a complete RIFF file")
    return result


def chunk(kind: bytes, body: bytes) -> bytes:
    return kind + len(body).to_bytes(4, "little") + body + b"\0" * (len(body) % 2)


def rewritten(present: list[Chunk], own: list[FileEdit], last: bytes) -> list[FileEdit]:
    """Return the edits `own`, and edits that append `last` and update the file's size."""
    end = present[-1].end
    new_end = end + sum(len(edit.new) - (edit.end - edit.start) for edit in own)
    behind = b"\0" * (new_end % 2) + last
    size = new_end + len(behind) - 8
    if size > _MAX_SIZE:
        raise Unembeddable("the file would be larger than RIFF allows")
    return [FileEdit(4, 8, size.to_bytes(4, "little")), *own, FileEdit(end, end, behind)]
