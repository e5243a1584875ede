"""AVIF and HEIC: the size of the largest image among a file's items; metadata is carried as in MP4."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats import mp4
from sixfold.core.provenance.formats.mp4 import MAX_BOXES, boxes
from sixfold.core.provenance.formats.parts import MediaHeader, part_budget

_PARENTS = {b"meta": 4, b"iprp": 0, b"ipco": 0}  # and how many bytes stand before their boxes

matches, edits, extract = mp4.matches, mp4.edits, mp4.extract


def header(data: bytes) -> MediaHeader:
    """Return the largest size that the item properties state."""
    budget, sizes = part_budget(MAX_BOXES), list[tuple[int, int]]()
    pending = [(0, len(data))]
    while pending:
        for box in boxes(data, *pending.pop(), budget):
            if box.kind in _PARENTS:
                pending.append((box.body + _PARENTS[box.kind], box.end))
            elif box.kind == b"ispe":
                sizes.append(struct.unpack_from(">4xII", data, box.body))
    return MediaHeader.of_image(*max(sizes, key=lambda size: size[0] * size[1]))  # `ValueError` for none


def is_complete(data: bytes) -> bool:
    """Whether the coded images are there, in a box of their own or among the metadata."""
    for box in boxes(data):
        inside = boxes(data, box.body + _PARENTS[b"meta"], box.end) if box.kind == b"meta" else ()
        if box.kind == b"mdat" or any(each.kind == b"idat" for each in inside):
            return True
    return False
