"""What all containers share: limits on hostile files, and cutting and pasting byte ranges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sixfold.core.work.manifest.record import MAX_TEXT_BYTES

MAX_STEPS = 1_000_000  # chunks, boxes or elements that are looked at in one file


class Unembeddable(ValueError):
    """The file is broken, or of a kind that cannot carry a manifest."""


class Edit(NamedTuple):
    """Replace the bytes from `start` up to `end` by `new`."""

    start: int
    end: int
    new: bytes


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits that do not overlap, in any order; at one place, in the order given."""
    parts: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits, key=lambda edit: edit.start):
        if start < at:
            raise Unembeddable("the file's parts overlap")
        parts += [data[at:start], new]
        at = end
    return b"".join([*parts, data[at:]])


def text_of(raw: bytes) -> str | None:
    """Embedded bytes as text, unless they are too many or not UTF-8."""
    if len(raw) > MAX_TEXT_BYTES:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
