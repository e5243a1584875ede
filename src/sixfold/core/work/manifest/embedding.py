"""Putting a manifest's text into a file, and finding it again: the table of containers.

Embedding is deterministic, and embedding again replaces. So a replayed output that is given the original's
text equals the original's file.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Protocol, cast

from sixfold.core.work.manifest.containers import (
    flac,
    gif,
    glb,
    jpeg,
    mp3,
    mp4,
    ogg,
    png,
    svg,
    wav,
    webm,
    webp,
)
from sixfold.core.work.manifest.containers.edits import (
    MAX_TEXT_BYTES,
    Edit,
    Mapped,
    Unembeddable,
    apply,
    ordered,
    splice,
)
from sixfold.core.work.manifest.record import ManifestTooLarge

_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")


class Container(Protocol):
    """What each module in `containers` offers."""

    def matches(self, data: bytes) -> bool:
        """Whether the bytes begin like this container."""
        ...

    def edits(self, data: bytes, text: str) -> list[Edit]:
        """What puts the text into the file; raises `Unembeddable`."""
        ...

    def extract(self, data: bytes) -> str | None:
        """The text in the file, or None."""
        ...


CONTAINERS: dict[str, Container] = {
    "image/png": png,
    "image/apng": png,
    "image/jpeg": jpeg,
    "image/jpg": jpeg,
    "image/webp": webp,
    "image/gif": gif,
    "image/avif": mp4,
    "image/heic": mp4,
    "image/svg+xml": svg,
    "video/mp4": mp4,
    "video/quicktime": mp4,
    "audio/mp4": mp4,
    "audio/x-m4a": mp4,
    "video/webm": webm,
    "audio/webm": webm,
    "video/x-matroska": webm,
    "audio/x-matroska": webm,
    "audio/wav": wav,
    "audio/x-wav": wav,
    "audio/wave": wav,
    "audio/mpeg": mp3,
    "audio/mp3": mp3,
    "audio/flac": flac,
    "audio/x-flac": flac,
    "audio/ogg": ogg,
    "audio/opus": ogg,
    "application/ogg": ogg,
    "model/gltf-binary": glb,
}

_BY_MAGIC: tuple[Container, ...] = (png, jpeg, webp, wav, gif, webm, flac, ogg, glb, mp4, mp3, svg)


def container_of(data: bytes) -> Container | None:
    """The container that a file's first bytes speak of."""
    return next((container for container in _BY_MAGIC if container.matches(data)), None)


def embed(data: bytes, content_type: str, text: str) -> bytes:
    """The file with the text in its metadata.

    A type that is not in `CONTAINERS`, and a file that its container refuses, come back unchanged: an
    output without a manifest is better than none. Raises `ManifestTooLarge` over 256 KiB and
    `ValueError` for a text that has control characters in it; `record.canonical` makes neither.
    """
    found = _edits(data, content_type, text)
    return splice(data, found) if found else data


def embed_file(path: Path, content_type: str, text: str) -> None:
    """`embed` for the file at `path`, which is never whole in memory: most are only written on."""
    with path.open("rb") as file, Mapped(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        found = _edits(cast("bytes", mapped), content_type, text)  # it is looked into as bytes are
    apply(path, found)


def _edits(data: bytes, content_type: str, text: str) -> list[Edit]:
    if _UNFIT.search(text):
        raise ValueError("a manifest's text has no control characters")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ManifestTooLarge("a manifest's text is limited to 256 KiB")
    container = CONTAINERS.get(content_type.partition(";")[0].strip().lower())
    if container is None or not container.matches(data):
        return []
    try:
        return ordered(container.edits(data, text))
    except Unembeddable:
        return []


def extract(data: bytes) -> str | None:
    """The text that `embed` put into a file, whatever it is called; None for any other bytes."""
    container = container_of(data)
    return None if container is None else container.extract(data)
