"""MP3: a TXXX frame `sixfold` in the ID3v2 tag, whose other frames are unchanged.

A new tag has version 2.4. The version of an existing tag, which determines the names and sizes of its frames,
does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import part_budget

_DESCRIPTION = "sixfold"
_UNSYNCHRONISED = 0x80
# In version 2.2, this flag means compression.
_EXTENDED = 0x40
_FOOTER = 0x10
# A tag is copied several times while it is read.
_MAX_TAG_BYTES, _MAX_FRAMES = 2**24, 100_000
_ENCODINGS = {0: "latin-1", 1: "utf-16", 2: "utf-16-be", 3: "utf-8"}


class _Version(NamedTuple):
    """Frame layout of an ID3 version: the frame's name, and the widths of its header fields."""

    name: bytes
    size_bytes: int
    flag_bytes: int
    size_bits: int
    encoding: int


_VERSIONS = {
    2: _Version(b"TXX", 3, 0, 8, 1),
    3: _Version(b"TXXX", 4, 2, 8, 1),
    4: _Version(b"TXXX", 4, 2, 7, 3),
}


class _Id3Tag(NamedTuple):
    number: int
    flags: int
    # Offset in the file.
    end: int
    body: bytes


class _Frame(NamedTuple):
    name: bytes
    start: int
    body: int
    end: int


def matches(data: bytes) -> bool:
    """Return whether the data begins with an ID3 tag or an MPEG audio layer III frame."""
    return data[:3] == b"ID3" or (data[:1] == b"\xff" and len(data) > 3 and data[1] & 0xE6 == 0xE2)


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text into the file's tag, or into a new one before the first frame."""
    if not matches(data):
        raise Unembeddable("not an MP3")
    tag = _tag(data) if data[:3] == b"ID3" else _Id3Tag(4, 0, 0, b"")
    if tag is None:
        raise Unembeddable("the ID3 tag of this MP3 is malformed")
    version = _VERSIONS[tag.number]
    frames = list(_frames(tag, version))
    end = frames[-1].end if frames else 0
    if tag.body[end:].strip(b"\0"):
        raise Unembeddable("the ID3 tag of this MP3 is malformed")
    remaining = [tag.body[frame.start : frame.end] for frame in frames if _read(tag, version, frame) is None]
    body = b"".join([*remaining, _frame(version, text)])
    if len(body) >= _MAX_TAG_BYTES:
        raise Unembeddable(f"the ID3 tag of this MP3 must be smaller than {_MAX_TAG_BYTES // 2**20} MiB")
    head = b"ID3" + bytes([tag.number, 0, 0]) + _integer(len(body), 4, 7)
    return [FileEdit(0, tag.end, head + body)]


def extract(data: bytes) -> str | None:
    """Return the manifest text from the ID3 frame that this project writes, or None."""
    tag = _tag(data) if data[:3] == b"ID3" else None
    if tag is None:
        return None
    version = _VERSIONS[tag.number]
    for frame in _frames(tag, version):
        text = _read(tag, version, frame)
        if text is not None:
            return text_of(text.encode("utf-8", "replace"))
    return None


def _tag(data: bytes) -> _Id3Tag | None:
    """Return the tag without its extended header and, before version 2.4, without unsynchronization."""
    if len(data) < 10 or data[3] not in _VERSIONS or max(data[6:10]) > 0x7F:
        return None
    number, flags = data[3], data[5]
    end = 10 + _size(data[6:10], 7)
    if end > min(len(data), _MAX_TAG_BYTES) or (number == 2 and flags & _EXTENDED):
        return None
    body = data[10:end]
    if number < 4 and flags & _UNSYNCHRONISED:
        body = body.replace(b"\xff\x00", b"\xff")
    if flags & _EXTENDED:
        length = _size(body[:4], 7) if number == 4 else _size(body[:4], 8) + 4
        body = body[max(length, 4) :]
    return _Id3Tag(number, flags, end + (10 if number == 4 and flags & _FOOTER else 0), body)


def _frames(tag: _Id3Tag, version: _Version) -> Iterator[_Frame]:
    """Yield each complete frame up to the padding."""
    wide, body = len(version.name), tag.body
    head = wide + version.size_bytes + version.flag_bytes
    budget, at = part_budget(_MAX_FRAMES), 0
    while True:
        budget.spend(parts=1)
        name = body[at : at + wide]
        if at + head > len(body) or not name.isalnum():
            return
        end = at + head + _size(body[at + wide : at + wide + version.size_bytes], version.size_bits)
        if end > len(body):
            return
        yield _Frame(name, at, at + head, end)
        at = end


def _read(tag: _Id3Tag, version: _Version, frame: _Frame) -> str | None:
    """Return the frame's text if this project wrote the frame, otherwise None."""
    if frame.name != version.name or frame.end == frame.body:
        return None
    encoding = _ENCODINGS.get(tag.body[frame.body])
    if encoding is None:
        return None
    text = tag.body[frame.body + 1 : frame.end].decode(encoding, "replace")
    description, _, value = text.partition("\0")
    return value.lstrip("\ufeff").rstrip("\0") if description == _DESCRIPTION else None


def _frame(version: _Version, text: str) -> bytes:
    encoding = _ENCODINGS[version.encoding]
    byte_order_mark = "" if encoding == "utf-8" else "\ufeff"
    parts = f"{byte_order_mark}{_DESCRIPTION}\0{byte_order_mark}{text}".encode(
        encoding.replace("16", "16-le")
    )
    body = bytes([version.encoding]) + parts
    size = _integer(len(body), version.size_bytes, version.size_bits)
    return version.name + size + bytes(version.flag_bytes) + body


def _size(raw: bytes, bits: int) -> int:
    total = 0
    for byte in raw:
        total = total << bits | byte
    return total


def _integer(value: int, size_bytes: int, bits: int) -> bytes:
    mask = (1 << bits) - 1
    return bytes(value >> bits * place & mask for place in reversed(range(size_bytes)))
