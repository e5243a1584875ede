"""WAV: a chunk `sxfd` after the samples. RF64, and files without a final length, are not supported."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats import riff
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import MediaHeader

_FORM = b"WAVE"
_KIND = b"sxfd"

is_complete = riff.is_complete


def matches(data: bytes) -> bool:
    """Return whether the data begins like a WAV file."""
    return riff.is_form(data, _FORM)


def header(data: bytes) -> MediaHeader:
    """Return the duration of the present samples; a recorder may state a different length, or none."""
    rate = 0
    for chunk in riff.claimed_chunks(data, len(data)):
        if chunk.kind == b"fmt ":
            (rate,) = struct.unpack_from("<I", data, chunk.body + 8)
        elif chunk.kind == b"data":
            return MediaHeader(seconds=min(chunk.size, len(data) - chunk.body) / rate)
    return MediaHeader()


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that append the text in a separate chunk."""
    present = riff.complete(data, _FORM)
    if not {b"fmt ", b"data"} <= {chunk.kind for chunk in present}:
        raise Unembeddable("the WAV file does not contain a format and samples")
    cuts = [FileEdit(chunk.start, chunk.end, b"") for chunk in present if chunk.kind == _KIND]
    return riff.rewritten(present, cuts, riff.chunk(_KIND, text.encode()))


def extract(data: bytes) -> str | None:
    """Return the text of this project's chunk."""
    for chunk in riff.chunks(data, _FORM):
        if chunk.kind == _KIND:
            return text_of(data[chunk.body : chunk.body + chunk.size])
    return None
