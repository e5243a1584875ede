"""AVIF and HEIC: the size of the largest image item; metadata is stored as in MP4."""

from __future__ import annotations

import struct

from sixfold.core.provenance.formats import mp4
from sixfold.core.provenance.formats.mp4 import MAX_BOXES, boxes
from sixfold.core.provenance.formats.parts import MediaHeader, part_budget

# Boxes that contain boxes, and the number of bytes before the inner boxes.
_PARENTS = {b"meta": 4, b"iprp": 0, b"ipco": 0}

matches, edits, extract = mp4.matches, mp4.edits, mp4.extract


def header(data: bytes) -> MediaHeader:
    """Return the largest size in the item properties."""
    budget, sizes = part_budget(MAX_BOXES), list[tuple[int, int]]()
    pending = [(0, len(data))]
    while pending:
        for box in boxes(data, *pending.pop(), budget):
            if box.kind in _PARENTS:
                pending.append((box.body + _PARENTS[box.kind], box.end))
            elif box.kind == b"ispe":
                sizes.append(struct.unpack_from(">4xII", data, box.body))
    # `max` raises `ValueError` if there are none.
    return MediaHeader.of_image(*max(sizes, key=lambda size: size[0] * size[1]))


def is_complete(data: bytes) -> bool:
    """Return whether the coded images are present, in a separate box or within the metadata."""
    for box in boxes(data):
        inside = boxes(data, box.body + _PARENTS[b"meta"], box.end) if box.kind == b"meta" else ()
        if box.kind == b"mdat" or any(each.kind == b"idat" for each in inside):
            return True
    return False
