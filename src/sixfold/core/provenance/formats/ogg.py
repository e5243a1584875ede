"""Ogg with one Opus or Vorbis stream: a field in the comment header, whose pages are rewritten.

If their number changes, all following pages are renumbered.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sixfold.core.provenance.formats import vorbis
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import part_budget

# By the first bytes of a stream: the first bytes of its comments, and its number of header packets.
_HEADS = {b"OpusHead": (b"OpusTags", 1), b"\x01vorbis": (b"\x03vorbis", 2)}
_CONTINUED = 1
_FIRST = 2
_PAGE_SEGMENTS = 255
# As in FLAC, comments have at most 16 MiB.
_MAX_HEADER_BYTES = 2**24
# Offsets in a page: its number, which its checksum follows, and the lacing.
_NUMBER_AT, _LACING_AT = 18, 26
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class _Page(NamedTuple):
    start: int
    body: int
    end: int
    flags: int
    serial: bytes
    number: int
    lacing: bytes


class _Headers(NamedTuple):
    """The packets between the first page and the audio: comments, and the setup header of Vorbis."""

    magic: bytes
    packets: list[bytes]
    pages: int
    start: int
    end: int
    serial: bytes


def matches(data: bytes) -> bool:
    """Return whether the data begins like an Ogg file."""
    return data.startswith(b"OggS")


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text into the comments."""
    return _replaced(data, lambda comment: vorbis.merge(comment, text))


def comment_removals(data: bytes) -> list[FileEdit]:
    """Return the edits that remove all comments."""
    return _replaced(data, vorbis.without_fields)


def _replaced(data: bytes, replace: Callable[[bytes], bytes]) -> list[FileEdit]:
    headers = _headers(data)
    if headers is None:
        raise Unembeddable("not an Ogg file with one Opus or Vorbis stream")
    comment = replace(headers.packets[0][len(headers.magic) :])
    pages = _laid([headers.magic + comment, *headers.packets[1:]], headers.serial)
    result = [FileEdit(headers.start, headers.end, b"".join(pages))]
    shift = len(pages) - headers.pages
    if shift:
        result += [
            _renumbering(data, page, page.number + shift)
            for page in _pages(data, headers.end)
            if page.serial == headers.serial
        ]
    return result


def _renumbering(data: bytes, page: _Page, number: int) -> FileEdit:
    """Return the edit of the number and the checksum of a page; its sound is not copied into memory."""
    first, last = page.start + _NUMBER_AT, page.start + _LACING_AT
    return FileEdit(first, last, _renumbered(data[page.start : page.end], number)[_NUMBER_AT:_LACING_AT])


def extract(data: bytes) -> str | None:
    """Return the text in the comments of the first stream."""
    headers = _headers(data)
    return None if headers is None else vorbis.read_field(headers.packets[0][len(headers.magic) :])


def _pages(data: bytes, at: int) -> Iterator[_Page]:
    budget = part_budget()
    while True:
        budget.spend(parts=1)
        if not data.startswith(b"OggS\0", at) or at + 27 > len(data):
            return
        body = at + 27 + data[at + 26]
        lacing = data[at + 27 : body]
        end = body + sum(lacing)
        if end > len(data):
            return
        number = int.from_bytes(data[at + 18 : at + 22], "little")
        yield _Page(at, body, end, data[at + 5], data[at + 14 : at + 18], number, lacing)
        at = end


def _headers(data: bytes) -> _Headers | None:
    pages = _pages(data, 0)
    first = next(pages, None)
    if first is None or not first.flags & _FIRST:
        return None
    head = data[first.body : first.end]
    codec = next((value for magic, value in _HEADS.items() if head.startswith(magic)), None)
    if codec is None:
        return None
    magic, packet_count = codec
    packets: list[bytes] = []
    open_packet: list[bytes] = []
    for count, page in enumerate(pages, 1):
        if page.serial != first.serial or page.flags & _FIRST or page.end > _MAX_HEADER_BYTES:
            return None
        at = page.body
        for size in page.lacing:
            open_packet.append(data[at : at + size])
            at += size
            if size < 255:
                packets.append(b"".join(open_packet))
                open_packet = []
        if len(packets) >= packet_count:
            is_complete = len(packets) == packet_count and not open_packet and packets[0].startswith(magic)
            return _Headers(magic, packets, count, first.end, page.end, first.serial) if is_complete else None
    return None


def _laid(packets: list[bytes], serial: bytes) -> list[bytes]:
    """Return pages, numbered from 1, that contain only these packets."""
    lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
    body, at, pages = b"".join(packets), 0, list[bytes]()
    for first in range(0, len(lacing), _PAGE_SEGMENTS):
        part = lacing[first : first + _PAGE_SEGMENTS]
        flags = _CONTINUED if first and lacing[first - 1] == 255 else 0
        ends = any(size < 255 for size in part)
        head = b"OggS\0" + bytes([flags]) + (bytes(8) if ends else b"\xff" * 8) + serial
        page = head + bytes(8) + bytes([len(part)]) + part + body[at : at + sum(part)]
        pages.append(_renumbered(page, len(pages) + 1))
        at += sum(part)
    return pages


def _renumbered(page: bytes, number: int) -> bytes:
    bare = page[:18] + (number % 2**32).to_bytes(4, "little") + bytes(4) + page[26:]
    return bare[:22] + _checksum(bare).to_bytes(4, "little") + bare[26:]


def _checksum(data: bytes) -> int:
    """Return Ogg's CRC: zlib's with reversed bits, initialized with 0 and not inverted."""
    checksum = zlib.crc32(data.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{checksum:032b}"[::-1], 2)
