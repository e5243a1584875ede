"""Vorbis comments, for FLAC and Ogg: the field `SIXFOLD_MANIFEST`."""

from __future__ import annotations

from sixfold.core.provenance.formats.edits import Unembeddable, text_of
from sixfold.core.provenance.formats.parts import MAX_PARTS

_FIELD = b"SIXFOLD_MANIFEST="
_EMPTY = b"\x07\0\0\0sixfold\0\0\0\0"


def merge(comment: bytes | None, text: str) -> bytes:
    """Return the comment block (or a new one) with this project's field last, before the remaining data."""
    comment_parts = _parsed(_EMPTY if comment is None else comment)
    if comment_parts is None:
        raise Unembeddable("the comments of this file are malformed")
    vendor, fields, tail = comment_parts
    fields = [field for field in fields if not _is_ours(field)] + [_FIELD + text.encode()]
    parts = [_counted(vendor), len(fields).to_bytes(4, "little"), *map(_counted, fields), tail]
    return b"".join(parts)


def without_fields(comment: bytes) -> bytes:
    """Return the comment block without vendor, fields and padding; Vorbis needs the first byte after them."""
    comment_parts = _parsed(comment)
    if comment_parts is None:
        raise Unembeddable("the comments of this file are malformed")
    return _EMPTY + comment_parts[2][:1]


def read_field(comment: bytes) -> str | None:
    comment_parts = _parsed(comment)
    for field in comment_parts[1] if comment_parts else ():
        if _is_ours(field):
            return text_of(field[len(_FIELD) :])
    return None


def _is_ours(field: bytes) -> bool:
    return field[: len(_FIELD)].upper() == _FIELD


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "little") + raw


def _parsed(comment: bytes) -> tuple[bytes, list[bytes], bytes] | None:
    """Return vendor, fields and remaining data, or None if the lengths are inconsistent."""
    at = 4 + int.from_bytes(comment[:4], "little")
    vendor, count = comment[4:at], int.from_bytes(comment[at : at + 4], "little")
    at += 4
    fields: list[bytes] = []
    if at > len(comment) or count > MAX_PARTS:
        return None
    for _ in range(count):
        start = at + 4
        at = start + int.from_bytes(comment[at:start], "little")
        if start > len(comment) or at > len(comment):
            return None
        fields.append(comment[start:at])
    return vendor, fields, comment[at:]
