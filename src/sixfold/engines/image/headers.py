"""Reader of an image's format and size from its header, without decoding pixels.

A server process calls `probe` before it accepts a file; `decode` calls it before a codec reads the bytes.
`probe` reads the first bytes, and later bytes if the format refers to them. The module does not import
codecs.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

import msgspec

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import jpeg, media_types, parts
from sixfold.core.provenance.formats.edits import mapped
from sixfold.core.provenance.formats.parts import MalformedFile

MAX_PIXELS = 40_000_000
MAX_BYTES = 64 * 2**20
# Encoders write at most about 70; a scan of 40 megapixels takes up to 30 ms.
MAX_SCANS = 100
_HEAD_BYTES = 4096

_NOT_AN_IMAGE = (
    "The file is not an image in a supported format: send PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF."
)
_DAMAGED = "The image file is truncated or damaged."


class UnreadableImage(UnusableInput):
    """Raised if an image cannot be read; the message is one sentence that states the reason."""


def not_an_image() -> UnreadableImage:
    """Return the error for bytes that are not an image of an allowed format."""
    return UnreadableImage(_NOT_AN_IMAGE)


def damaged() -> UnreadableImage:
    """Return the error for an image that is truncated or inconsistent."""
    return UnreadableImage(_DAMAGED)


class ImageHeader(msgspec.Struct, frozen=True):
    """The format (as Pillow spells it) and the size in pixels as stored, before any rotation.

    `buffer_pixels` is the largest image that a decoder would have to hold in memory: more than width x height
    if the file requests oversized tiles. `is_buffered` is set for a JPEG in several scans: a decoder holds
    all of its coefficients, also if it decodes the image at a reduced size.
    """

    format: str
    width: int
    height: int
    buffer_pixels: int
    is_buffered: bool = False


def probe(source: Path | str | bytes, *, whole: bool = False) -> tuple[str, int, int]:
    """Return the format, width and height that a file declares; raises `UnreadableImage`.

    With `whole`, also check that the file is complete: a truncated upload still has a valid header. Bytes
    after a valid end are ignored, because phones append videos to their photos.
    """
    with open_image(source, MAX_BYTES) as file:
        header = read(file, whole=whole)
    return header.format, header.width, header.height


def open_image(source: Path | str | bytes, max_bytes: int) -> BinaryIO:
    """Open a path or bytes as a binary file; raises `UnreadableImage` if it is empty or too large."""
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
    """Return the header of an open file; raises `UnreadableImage`."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    kind = media_types.find(head)
    if kind is None or not kind.pillow:
        raise not_an_image()
    try:
        header = None if whole else kind.header(head)
    except MalformedFile:
        # The size is stored later in the file, as in a photo with an embedded preview.
        header = None
    if header is None:
        with mapped(file) as data:
            header = _header(kind, data, whole=whole)
    if header.width <= 0 or header.height <= 0:
        raise damaged()
    return ImageHeader(kind.pillow, *header[:3], kind.carrier is jpeg and _is_buffered(file))


def _is_buffered(file: BinaryIO) -> bool:
    """Return whether a JPEG has to be held as a whole; raises `UnreadableImage` if it has too many scans."""
    with mapped(file) as data:
        try:
            scans = jpeg.scans(data, MAX_SCANS)
        except MalformedFile as error:
            raise damaged() from error
    if scans.number > MAX_SCANS:
        raise UnreadableImage(f"The JPEG has more than {MAX_SCANS} scans: save the image again.")
    return scans.is_buffered


def _header(kind: media_types.FileFormat, data: bytes, *, whole: bool) -> parts.MediaHeader:
    try:
        header = kind.header(data)
    except MalformedFile as error:
        raise damaged() from error
    if whole and not kind.is_complete(data):
        raise damaged()
    return header


def check_pixels(width: int, height: int, pixels: int, max_pixels: int) -> None:
    """Raise `UnreadableImage` if an image has more than `max_pixels` pixels."""
    if pixels > max_pixels:
        raise UnreadableImage(
            f"The image has {width} x {height} pixels ({pixels / 1e6:.1f} megapixels); "
            f"at most {max_pixels / 1e6:g} megapixels are allowed."
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:.4g}"
