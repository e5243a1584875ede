"""What an image file claims to be, from its header alone: no pixel is decoded, nothing heavy imported.

A server process calls `probe` before it accepts a file; `decode` calls it before it lets a codec near
the bytes. Only the first bytes are read, and others where the format's parts lead.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import media_types, parts
from sixfold.core.provenance.formats.edits import mapped
from sixfold.core.provenance.formats.parts import MalformedFile

MAX_PIXELS = 40_000_000
MAX_BYTES = 64 * 2**20
_HEAD_BYTES = 4096

_NOT_AN_IMAGE = "This is not an image that can be read: send PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF."
_DAMAGED = "The image file is truncated or damaged."


class UnreadableImage(UnusableInput):
    """The image cannot be read; the text says why in one sentence."""


def not_an_image() -> UnreadableImage:
    """The refusal of bytes that are no image of an allowed format."""
    return UnreadableImage(_NOT_AN_IMAGE)


def damaged() -> UnreadableImage:
    """The refusal of an image that ends too early or contradicts itself."""
    return UnreadableImage(_DAMAGED)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """A format's name as Pillow spells it, and the size in pixels as stored (before any rotation).

    `buffer_pixels` is the largest image that a decoder would have to hold at once: more than
    width x height where the file asks for oversized tiles.
    """

    format: str
    width: int
    height: int
    buffer_pixels: int


def probe(source: Path | str | bytes, *, whole: bool = False) -> tuple[str, int, int]:
    """The format, width and height that a file claims; raises `UnreadableImage`.

    With `whole`, also where the file breaks off: a file that was cut off on its way keeps a sound header.
    What follows a sound end does not count, as phones append films to their photographs.
    """
    with opened(source, MAX_BYTES) as file:
        header = read(file, whole=whole)
    return header.format, header.width, header.height


def opened(source: Path | str | bytes, max_bytes: int) -> BinaryIO:
    """An open binary file over a path or bytes, refused when it is empty or too large."""
    if isinstance(source, bytes):
        file: BinaryIO = io.BytesIO(source)
        size = len(source)
    else:
        path = Path(source)
        size = path.stat().st_size
        file = path.open("rb")
    reason = ""
    if size == 0:
        reason = "The image file is empty."
    elif size > max_bytes:
        reason = f"The image file has {_mib(size)} MiB; at most {_mib(max_bytes)} are allowed."
    if reason:
        file.close()
        raise UnreadableImage(reason)
    return file


def read(file: BinaryIO, *, whole: bool = False) -> ImageHeader:
    """The header of an open file; raises what `probe` raises."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    kind = media_types.find(head)
    if kind is None or not kind.pillow:
        raise not_an_image()
    try:
        found = None if whole else kind.header(head)
    except MalformedFile:
        found = None  # it lies further on, as in a photograph with a preview
    if found is None:
        with mapped(file) as data:
            found = _header(kind, data, whole=whole)
    if found.width <= 0 or found.height <= 0:
        raise damaged()
    return ImageHeader(kind.pillow, *found[:3])


def _header(kind: media_types.FileFormat, data: bytes, *, whole: bool) -> parts.MediaHeader:
    try:
        found = kind.header(data)
    except MalformedFile as error:
        raise damaged() from error
    if whole and not kind.is_complete(data):
        raise damaged()
    return found


def check_pixels(width: int, height: int, pixels: int, max_pixels: int) -> None:
    """Refuse an image of more than `max_pixels` pixels."""
    if pixels > max_pixels:
        raise UnreadableImage(
            f"The image has {width} x {height} pixels ({pixels / 1e6:.1f} megapixels); "
            f"at most {max_pixels / 1e6:g} megapixels are allowed."
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:.4g}"
