"""Whether an image's file ends where its format says: its marks are followed, no pixel is decoded.

A file that was cut off on its way keeps a sound header. What follows a sound end is nobody's business: phones
append films to their photographs.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from sixfold.engines.image import headers

_MOST_PARTS = 1 << 20
_SCAN, _END = 0xDA, b"\xff\xd9"
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG's markers without a length


def check(path: Path, format_: str) -> None:
    """Raise `UnreadableImage` where a file of `format_`, as `headers.probe` names it, breaks off."""
    ends = _ENDS.get(format_)
    if ends is None:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            whole = ends(data)
        except (struct.error, IndexError):
            whole = False
    if not whole:
        raise headers.damaged()


def _png(data: mmap.mmap) -> bool:
    at = 8
    for _ in range(_MOST_PARTS):
        length, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if kind == b"IEND" or at > len(data):
            return at <= len(data)
    return False


def _jpeg(data: mmap.mmap) -> bool:
    """Within what a scan holds, the mark of the end can stand for nothing else."""
    at = 2
    for _ in range(_MOST_PARTS):
        while data[at] == 0xFF:
            at += 1
        code = data[at]
        if code == _SCAN:
            return data.find(_END, at) >= 0
        at += 1 if code in _ALONE else 1 + struct.unpack_from(">H", data, at + 1)[0]
    return False


def _webp(data: mmap.mmap) -> bool:
    return 8 + struct.unpack_from("<I", data, 4)[0] <= len(data)


def _gif(data: mmap.mmap) -> bool:
    at = 13 + _colours(data[10])
    for _ in range(_MOST_PARTS):
        block = data[at]
        if block == 0x3B:
            return True
        if block == 0x2C:
            at += 11 + _colours(data[at + 9])
        elif block == 0x21:
            at += 2
        else:  # some programs leave zeros between two blocks
            at += 1
            continue
        while data[at]:
            at += 1 + data[at]
        at += 1
    return False


def _colours(flags: int) -> int:
    """The bytes of a GIF's table of colours."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _avif(data: mmap.mmap) -> bool:
    at = 0
    for _ in range(_MOST_PARTS):
        length, kind = struct.unpack_from(">I4s", data, at)
        if length == 1:
            length = struct.unpack_from(">Q", data, at + 8)[0]
        stop = len(data) if length == 0 else at + length
        if stop > len(data) or stop <= at:
            return False
        if kind == b"mdat" or stop == len(data):
            return True
        at = stop
    return False


_ENDS: Mapping[str, Callable[[mmap.mmap], bool]] = {
    "PNG": _png,
    "JPEG": _jpeg,
    "WEBP": _webp,
    "GIF": _gif,
    "AVIF": _avif,
}
