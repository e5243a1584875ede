"""The chunks of a RIFF file, which WebP and WAV share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.work.manifest.containers.edits import MAX_STEPS, Edit, Unembeddable

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


def chunks(data: bytes, form: bytes) -> Iterator[Chunk]:
    """Each whole chunk; stops at the first that the file is too short for."""
    if not is_form(data, form):
        return
    limit = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    at = 12
    for _ in range(MAX_STEPS):
        if at + 8 > limit:
            return
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        body = at + 8
        if body + size > limit:
            return
        end = min(body + size + size % 2, limit)  # the last padding byte is often forgotten
        yield Chunk(data[at : at + 4], at, body, size, end)
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


def rewritten(found: list[Chunk], own: list[Edit], last: bytes) -> list[Edit]:
    """The edits `own`, with `last` put behind the last chunk and the size set right."""
    end = found[-1].end
    kept = end + sum(len(edit.new) - (edit.end - edit.start) for edit in own)
    behind = b"\0" * (kept % 2) + last
    size = kept + len(behind) - 8
    if size > _MAX_SIZE:
        raise Unembeddable("the file would be larger than RIFF allows")
    return [Edit(4, 8, size.to_bytes(4, "little")), *own, Edit(end, end, behind)]
