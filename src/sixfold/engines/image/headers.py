"""What an image file claims to be, from its header alone: no pixel is decoded, nothing heavy imported.

A server process calls `probe` before it accepts a file; `decode` calls it before it lets a codec near
the bytes. Every reader takes an open file, seeks, and reads a few dozen bytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sixfold.core.work.engines import UnusableInput

MAX_PIXELS = 40_000_000
MAX_BYTES = 64 * 2**20

_MAX_SEGMENTS = 4096
_MAX_BOX_BYTES = 2**20
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
class Header:
    """A format's name as Pillow spells it, and the size in pixels as stored (before any rotation).

    `buffer_pixels` is the largest picture that a decoder would have to hold at once: more than
    width x height where the file asks for oversized tiles.
    """

    format: str
    width: int
    height: int
    buffer_pixels: int


def probe(source: Path | str | bytes) -> tuple[str, int, int]:
    """The format, width and height that a file claims; raises `UnreadableImage`."""
    with opened(source, MAX_BYTES) as file:
        header = read(file)
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


def read(file: BinaryIO) -> Header:
    """The header of an open file, which is rewound afterwards."""
    start = file.read(32)
    reader = next((reader for fits, reader in _READERS if fits(start)), None)
    if reader is None:
        raise not_an_image()
    try:
        header = reader(file, start)
    except (struct.error, IndexError, OverflowError, OSError) as error:
        raise damaged() from error
    if header.width <= 0 or header.height <= 0:
        raise damaged()
    file.seek(0)
    return header


def check_pixels(width: int, height: int, pixels: int, max_pixels: int) -> None:
    """Refuse a picture of more than `max_pixels` pixels."""
    if pixels > max_pixels:
        raise UnreadableImage(
            f"The image has {width} x {height} pixels ({pixels / 1e6:.1f} megapixels); "
            f"at most {max_pixels / 1e6:g} megapixels are allowed."
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:.4g}"


def _plain(format_: str, width: int, height: int) -> Header:
    return Header(format_, width, height, width * height)


def _png(_file: BinaryIO, start: bytes) -> Header:
    if start[12:16] != b"IHDR":
        raise damaged()
    return _plain("PNG", *struct.unpack(">II", start[16:24]))


def _gif(_file: BinaryIO, start: bytes) -> Header:
    return _plain("GIF", *struct.unpack("<HH", start[6:10]))


def _bmp(_file: BinaryIO, start: bytes) -> Header:
    (size,) = struct.unpack("<I", start[14:18])
    if size == 12:
        return _plain("BMP", *struct.unpack("<HH", start[18:22]))
    width, height = struct.unpack("<ii", start[18:26])
    return _plain("BMP", width, abs(height))


def _webp(_file: BinaryIO, start: bytes) -> Header:
    kind = start[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(start[24:27], "little") + 1
        height = int.from_bytes(start[27:30], "little") + 1
        return _plain("WEBP", width, height)
    if kind == b"VP8L" and start[20:21] == b"\x2f":
        (bits,) = struct.unpack("<I", start[21:25])
        return _plain("WEBP", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
    if kind == b"VP8 " and start[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", start[26:30])
        return _plain("WEBP", width & 0x3FFF, height & 0x3FFF)
    raise damaged()


def _jpeg(file: BinaryIO, _start: bytes) -> Header:
    file.seek(2)
    for _ in range(_MAX_SEGMENTS):
        marker = file.read(1)
        if marker != b"\xff":
            raise damaged()
        while marker == b"\xff":
            marker = file.read(1)
        code = marker[0]
        if code == 0x01 or 0xD0 <= code <= 0xD8:
            continue
        (length,) = struct.unpack(">H", file.read(2))
        if 0xC0 <= code <= 0xCF and code not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">xHH", file.read(5))
            return _plain("JPEG", width, height)
        if code in (0xD9, 0xDA) or length < 2:
            break
        file.seek(length - 2, io.SEEK_CUR)
    raise damaged()


def _tiff(file: BinaryIO, start: bytes) -> Header:
    order = "<" if start[:2] == b"II" else ">"
    big = struct.unpack(order + "H", start[2:4])[0] == 43
    offset = struct.unpack(order + ("8xQ" if big else "4xI"), start[: 16 if big else 8])[0]
    file.seek(offset)
    count = struct.unpack(order + ("Q" if big else "H"), file.read(8 if big else 2))[0]
    if count > _MAX_SEGMENTS:
        raise damaged()
    width_of_entry = 20 if big else 12
    table = file.read(count * width_of_entry)
    tags: dict[int, int] = {}
    for at in range(0, count * width_of_entry, width_of_entry):
        tag, kind = struct.unpack_from(order + "HH", table, at)
        if tag in (256, 257, 322, 323):
            code = {1: "B", 3: "H", 4: "I", 16: "Q"}.get(kind)
            if code is None:
                raise damaged()
            value = struct.unpack_from(order + code, table, at + (12 if big else 8))[0]
            tags[tag] = max(tags.get(tag, 0), value)
    width, height = tags.get(256, 0), tags.get(257, 0)
    # A tile is decoded whole, however small the picture is that it belongs to.
    tile = tags.get(322, 0) * tags.get(323, 0)
    return Header("TIFF", width, height, max(width * height, tile))


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, body)
            body += 8
        stop = end if size == 0 else start + size
        if stop < body or stop > end:
            return
        yield kind, body, stop
        start = stop


def _avif(file: BinaryIO, _start: bytes) -> Header:
    file.seek(0)
    data = file.read(_MAX_BOX_BYTES)
    sizes: list[tuple[int, int]] = []
    inside = {b"meta": 4, b"iprp": 0, b"ipco": 0}
    pending = [(0, len(data))]
    while pending:
        for kind, body, stop in _boxes(data, *pending.pop()):
            if kind in inside:
                pending.append((body + inside[kind], stop))
            elif kind == b"ispe":
                sizes.append(struct.unpack_from(">4xII", data, body))
    if not sizes:
        raise damaged()
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    return _plain("AVIF", width, height)


_READERS: tuple[tuple[Callable[[bytes], bool], Callable[[BinaryIO, bytes], Header]], ...] = (
    (lambda start: start[:8] == b"\x89PNG\r\n\x1a\n", _png),
    (lambda start: start[:3] == b"\xff\xd8\xff", _jpeg),
    (lambda start: start[:4] == b"RIFF" and start[8:12] == b"WEBP", _webp),
    (lambda start: start[:6] in (b"GIF87a", b"GIF89a"), _gif),
    (lambda start: start[:2] == b"BM" and start[14:18] in _BMP_HEADER_SIZES, _bmp),
    (lambda start: start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), _tiff),
    (lambda start: start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis", b"mif1"), _avif),
)
_BMP_HEADER_SIZES = {size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124)}
