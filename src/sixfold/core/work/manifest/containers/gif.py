"""GIF: an application extension `SIXFOLD1` / `1.0` before the first image."""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.work.manifest.containers.edits import MAX_STEPS, Edit, Unembeddable, text_of

_HEAD = b"\x21\xff\x0bSIXFOLD11.0"
_EXTENSION = 0x21
_GRAPHIC_CONTROL = 0xF9
_MAX_EXTENSION_BYTES = 2**24


def matches(data: bytes) -> bool:
    """Whether the bytes begin as a GIF."""
    return data.startswith((b"GIF87a", b"GIF89a"))


def edits(data: bytes, text: str) -> list[Edit]:
    """Put the text behind the extensions that hold for the whole file, its loop count among them."""
    start = _body(data)
    blocks = list(_extensions(data, start))
    at = blocks[-1][1] if blocks else start
    if data[at : at + 1] not in (b"\x21", b"\x2c"):
        raise Unembeddable("not a complete GIF")
    cuts = [Edit(begin, end, b"") for begin, end in blocks if data.startswith(_HEAD, begin)]
    version = Edit(0, 6, b"GIF89a")  # the older version has no extensions
    return [version, *cuts, Edit(at, at, _block(text.encode()))]


def extract(data: bytes) -> str | None:
    """The text out of the first extension of ours before the first image."""
    for begin, end in _extensions(data, _body(data)):
        if data.startswith(_HEAD, begin):
            return text_of(_joined(data, begin + len(_HEAD), end))
    return None


def _body(data: bytes) -> int:
    """Where the blocks begin, behind the screen's description and its colours."""
    if not matches(data) or len(data) < 13:
        return len(data)
    colours = data[10]
    return 13 + (3 * 2 ** ((colours & 7) + 1) if colours & 0x80 else 0)


def _extensions(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of each whole extension before the first image and what controls it."""
    limit = min(len(data), at + _MAX_EXTENSION_BYTES)
    for _ in range(MAX_STEPS):
        if at + 2 > limit or data[at] != _EXTENSION or data[at + 1] == _GRAPHIC_CONTROL:
            return
        end = _end(data, at + 2, limit)
        if end is None:
            return
        yield at, end
        at = end


def _end(data: bytes, at: int, limit: int) -> int | None:
    """Where a chain of sub-blocks ends, its terminator included."""
    while at < limit:
        size = data[at]
        at += 1 + size
        if size == 0:
            return at
    return None


def _joined(data: bytes, at: int, end: int) -> bytes:
    parts: list[bytes] = []
    while at < end and data[at]:
        parts.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return b"".join(parts)


def _block(raw: bytes) -> bytes:
    parts = [raw[at : at + 255] for at in range(0, len(raw), 255)]
    return _HEAD + b"".join(bytes([len(part)]) + part for part in parts) + b"\0"
