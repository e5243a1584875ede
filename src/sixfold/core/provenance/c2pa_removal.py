"""Removal of a C2PA manifest from a file, which restores the exact bytes before it was signed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sixfold.core.provenance.formats import jpeg, media_types, mp4, png, riff
from sixfold.core.provenance.formats.edits import FileEdit, ordered, splice
from sixfold.core.provenance.formats.parts import DAMAGE, ContainerPart

_PNG_CHUNK = b"caBX"
_RIFF_CHUNK = b"C2PA"
_GIF_HEAD = b"\x21\xff\x0bC2PA_GIF\x01\x00\x00"
_APP11 = 0xEB
_JUMBF = b"JP"
_BOX_UUID = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")
# Boxes between the top level and the tables of chunk offsets.
_PARENTS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl"})
_OFFSETS = {b"stco": ">I", b"co64": ">Q"}


def remove(data: bytes) -> bytes:
    """Return the file without its C2PA manifest; unchanged if it has none or its format is unsupported."""
    return splice(data, edits_of(data))


def edits_of(data: bytes) -> list[FileEdit]:
    """Return the edits that remove a file's C2PA manifest, in order."""
    kind = media_types.find(data)
    try:
        return ordered(_edits(data, "" if kind is None else kind.media_type))
    except DAMAGE:
        return []


def _edits(data: bytes, media_type: str) -> list[FileEdit]:
    match media_type:
        case "image/png":
            return [_cut(part) for part in png.chunks(data) if part.kind == _PNG_CHUNK]
        case "image/jpeg":
            return [_cut(part) for part in jpeg.segments(data) if _is_jumbf(data, part)]
        case "image/gif":
            return _gif_edits(data)
        case "image/webp" | "audio/wav":
            return _riff_edits(data)
        case "video/mp4" | "video/quicktime" | "audio/mp4":
            return _mp4_edits(data)
        case _:
            return []


def _cut(part: ContainerPart[bytes] | ContainerPart[int]) -> FileEdit:
    return FileEdit(part.start, part.end, b"")


def _is_jumbf(data: bytes, part: ContainerPart[int]) -> bool:
    return part.kind == _APP11 and data.startswith(_JUMBF, part.body)


def _gif_edits(data: bytes) -> list[FileEdit]:
    start = data.find(_GIF_HEAD)
    if start < 0:
        return []
    at = start + len(_GIF_HEAD)
    while data[at]:
        at += 1 + data[at]
    return [FileEdit(start, at + 1, b"")]


def _riff_edits(data: bytes) -> list[FileEdit]:
    cuts = [
        FileEdit(chunk.start, chunk.end, b"")
        for chunk in riff.chunks(data, data[8:12])
        if chunk.kind == _RIFF_CHUNK
    ]
    size = int.from_bytes(data[4:8], "little") - sum(cut.end - cut.start for cut in cuts)
    return [FileEdit(4, 8, size.to_bytes(4, "little")), *cuts] if cuts else []


def _mp4_edits(data: bytes) -> list[FileEdit]:
    """Return edits that cut the box and shift the chunk offsets that point behind it."""
    top = list(mp4.boxes(data))
    manifest_box = next(
        (box for box in top if box.kind == b"uuid" and data.startswith(_BOX_UUID, box.body)), None
    )
    if manifest_box is None:
        return []
    return [_cut(manifest_box), *(edit for box in top for edit in _shifted(data, box, manifest_box))]


def _shifted(
    data: bytes, box: ContainerPart[bytes], own: ContainerPart[bytes], depth: int = 0
) -> Iterator[FileEdit]:
    if box.kind in _PARENTS:
        if depth == len(_PARENTS):
            raise ValueError(f"the boxes are nested more than {depth} deep")
        for inner in mp4.boxes(data, box.body, box.end):
            yield from _shifted(data, inner, own, depth + 1)
    elif layout := _OFFSETS.get(box.kind):
        entry = struct.Struct(layout)
        table = data[box.body + 8 : box.end]
        table = table[: len(table) // entry.size * entry.size]
        offsets = (offset for (offset,) in entry.iter_unpack(table))
        new_offsets = (offset - (own.end - own.start) if offset >= own.end else offset for offset in offsets)
        yield FileEdit(box.body + 8, box.body + 8 + len(table), b"".join(map(entry.pack, new_offsets)))
