"""Embedding of a manifest's text in a file, and its extraction.

Embedding is deterministic and replaces an earlier text. Therefore a replayed output with the text of the
original is identical to the original file.
"""

from __future__ import annotations

import re
from pathlib import Path

from sixfold.core.provenance.formats import media_types, mp4, svg
from sixfold.core.provenance.formats.edits import MAX_TEXT_BYTES, FileEdit, apply, mapped, ordered, splice
from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.core.provenance.manifest import ManifestTooLarge

_FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")


def embed(data: bytes, content_type: str, text: str) -> bytes:
    """Return the file with the text in its metadata.

    A file of a type that cannot carry text, or with a malformed container, is returned unchanged: an output
    without a manifest is better than a failure. Raises `ManifestTooLarge` above 256 KiB and `ValueError` for
    control characters, neither of which `manifest.canonical` produces.
    """
    edits = _edits(data, content_type, text)
    return splice(data, edits) if edits else data


def embed_file(path: Path, content_type: str, text: str) -> None:
    """Embed the text in the file at `path` without reading the file into memory.

    In most formats, the text is appended.
    """
    with path.open("rb") as file, mapped(file) as data:
        edits = _edits(data, content_type, text)
    apply(path, edits)


def _edits(data: bytes, content_type: str, text: str) -> list[FileEdit]:
    if _FORBIDDEN.search(text):
        raise ValueError("a manifest must not contain control characters")
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise ManifestTooLarge(f"a manifest must be at most {MAX_TEXT_BYTES:,} bytes (got {size:,})")
    kind = media_types.BY_MEDIA_TYPE.get(content_type.partition(";")[0].strip().lower())
    if kind is None or kind.carrier is None or not kind.carrier.matches(data):
        return []
    try:
        return ordered(kind.carrier.edits(data, text))
    except MalformedFile:
        return []


def extract(data: bytes) -> str | None:
    """Return the text that `embed` wrote, or None; the file type is detected by content."""
    kind = media_types.find(data)
    # A QuickTime file may begin with any box, so its type may be undetected.
    carriers = (kind.carrier,) if kind else (mp4, svg)
    try:
        texts = (carrier.extract(data) for carrier in carriers if carrier is not None)
        return next((text for text in texts if text is not None), None)
    except MalformedFile:
        return None
