"""Putting a manifest's text into a file, and finding it again.

Embedding is deterministic, and embedding again replaces. So a replayed output that is given the original's
text equals the original's file.
"""

from __future__ import annotations

import re
from pathlib import Path

from sixfold.core.provenance.formats import media_types, mp4, svg
from sixfold.core.provenance.formats.edits import (
    MAX_TEXT_BYTES,
    FileEdit,
    apply,
    mapped,
    ordered,
    splice,
)
from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.core.provenance.manifest import ManifestTooLarge

_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")


def embed(data: bytes, content_type: str, text: str) -> bytes:
    """The file with the text in its metadata.

    A type whose format carries no text, and a file that its container refuses, come back unchanged: an
    output without a manifest is better than none. Raises `ManifestTooLarge` over 256 KiB and
    `ValueError` for a text that has control characters in it; `record.canonical` makes neither.
    """
    found = _edits(data, content_type, text)
    return splice(data, found) if found else data


def embed_file(path: Path, content_type: str, text: str) -> None:
    """`embed` for the file at `path`, which is never whole in memory: most are only written on."""
    with path.open("rb") as file, mapped(file) as data:
        found = _edits(data, content_type, text)
    apply(path, found)


def _edits(data: bytes, content_type: str, text: str) -> list[FileEdit]:
    if _UNFIT.search(text):
        raise ValueError("a manifest's text has no control characters")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ManifestTooLarge("a manifest's text is limited to 256 KiB")
    kind = media_types.BY_MEDIA_TYPE.get(content_type.partition(";")[0].strip().lower())
    if kind is None or kind.carrier is None or not kind.carrier.matches(data):
        return []
    try:
        return ordered(kind.carrier.edits(data, text))
    except MalformedFile:
        return []


def extract(data: bytes) -> str | None:
    """The text that `embed` put into a file, whatever it is called; None for any other bytes."""
    kind = media_types.find(data)
    carriers = (kind.carrier,) if kind else (mp4, svg)  # a QuickTime file may begin with any box
    try:
        found = (carrier.extract(data) for carrier in carriers if carrier is not None)
        return next((text for text in found if text is not None), None)
    except MalformedFile:
        return None
