"""The orientation of a photo, the only Exif field that changes how browsers show it."""

from __future__ import annotations

import struct

_TAG, _SHORT = 0x0112, 3
_UPRIGHT, _LAST = 1, 8
_PREFIX = b"Exif\0\0"
_ENTRY = struct.Struct(">HHI")
_MAX_ENTRIES = 4096
# Photos have at most this much Exif, which is all that is read of other files.
MAX_BYTES = 2**16


def only(exif: bytes) -> bytes:
    """Return an Exif block that has only the orientation of `exif`; empty if the photo is upright.

    The block does not have the prefix `Exif` of JPEG files; `exif` may have it.
    """
    try:
        orientation = _read(exif.removeprefix(_PREFIX))
    except struct.error:
        return b""
    if not _UPRIGHT < orientation <= _LAST:
        return b""
    return b"MM\0*\0\0\0\x08\0\x01" + _ENTRY.pack(_TAG, _SHORT, 1) + orientation.to_bytes(2) + bytes(6)


def _read(exif: bytes) -> int:
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return _UPRIGHT
    (at,) = struct.unpack_from(order + "I", exif, 4)
    (count,) = struct.unpack_from(order + "H", exif, at)
    for number in range(min(count, _MAX_ENTRIES)):
        tag, kind = struct.unpack_from(order + "HH", exif, at + 2 + 12 * number)
        if tag == _TAG and kind == _SHORT:
            return int(struct.unpack_from(order + "H", exif, at + 10 + 12 * number)[0])
    return _UPRIGHT
