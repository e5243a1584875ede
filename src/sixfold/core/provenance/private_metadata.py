"""Removal of metadata that may contain the prompt, for a copy of a file that is published without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance import (
    bitmap_metadata,
    c2pa_removal,
    item_metadata,
    orientation,
    sound_metadata,
    svg_metadata,
)
from sixfold.core.provenance.formats import (
    edits,
    gif,
    glb,
    jpeg,
    media_types,
    mp4,
    ogg,
    png,
    riff,
    svg,
    webm,
)
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import DAMAGE, MalformedFile, part_budget
from sixfold.core.provenance.track_metadata import DataTracks

# Optional chunks that change how pixels and frames are shown; others, such as private ones, may have text.
_PNG_KEPT = frozenset(
    b"tRNS cHRM gAMA iCCP sBIT sRGB cICP mDCV cLLI bKGD hIST pHYs acTL fcTL fdAT".split(),
)
_PNG_END, _PNG_EXIF = b"IEND", b"eXIf"
# Comments and the segments of applications, except JFIF, color profiles and Adobe's transform of colors.
# Other segments with their numbers are thumbnails (JFXX), previews (FPXR) and the index (MPF).
_JPEG_SEGMENTS = frozenset({*range(0xE0, 0xF0), 0xFE})
_JPEG_KEPT = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
_APP1, _JPEG_EXIF = 0xE1, b"Exif\0\0"
_WEBP_KEPT = frozenset({b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"})
_WEBP_EXIF, _WEBP_XMP_FLAG, _WEBP_EXIF_FLAG = b"EXIF", 0x04, 0x08
_GIF_EXTENSION = 0x21
# Comments and application extensions; the one that states how often an animation repeats is kept.
_GIF_LABELS, _GIF_LOOPS = b"\xfe\xff", (b"\x0bNETSCAPE2.0", b"\x0bANIMEXTS1.0")
# XMP, private boxes, and free space, in which an earlier manifest of this project may be readable.
_PRIVATE_BOXES = frozenset({b"uuid", b"free", b"skip"})
# Events can have the tags of a song or the place of a camera.
_MP4_BOXES = _PRIVATE_BOXES | {b"udta", b"meta", b"emsg"}
_MP4_PARENTS = (b"moov", b"trak")
_FRAGMENT, _FRAGMENT_PARENTS = b"moof", (b"traf",)
_INDEX = b"mfra"
# Images of editors have up to a hundred thousand attributes; only files that are made for it have more parts.
MAX_EDITS = 250_000


def remove(path: Path) -> None:
    """Remove C2PA manifests and metadata from a file; pixels and sound are unchanged.

    The orientation of a photo remains, and the metadata of a damaged file, or of one in another format.
    """
    with path.open("rb") as file, edits.mapped(file) as data:
        # The removals of each format include its C2PA manifest. A file of up to a million parts takes a
        # second to read, so only a damaged one is read twice.
        changes = _removals(data) or c2pa_removal.edits_of(data)
    edits.apply(path, changes)


def _removals(data: bytes) -> list[FileEdit]:
    kind = media_types.find(data)
    if kind is None:
        read = svg_metadata.removals if svg.matches(data) else None
    else:
        read = _READERS.get(kind.media_type)
    try:
        return [] if read is None else edits.ordered(_limited(read(data)))
    except (*DAMAGE, RecursionError):
        return []


def _limited(changes: Iterable[FileEdit]) -> Iterator[FileEdit]:
    """Yield edits; raises `MalformedFile` above the limit, because each takes memory and time."""
    for number, change in enumerate(changes):
        if number >= MAX_EDITS:
            raise MalformedFile(f"the file has more than {MAX_EDITS:,} parts that would be removed")
        yield change


def _png(data: bytes) -> Iterator[FileEdit]:
    for part in png.chunks(data):
        if part.kind[:1].islower() and part.kind not in _PNG_KEPT:
            turned = _orientation(data, part.body, part.end) if part.kind == _PNG_EXIF else b""
            yield FileEdit(part.start, part.end, png.chunk(_PNG_EXIF, turned) if turned else b"")
        elif part.kind == _PNG_END:
            yield FileEdit(part.end, len(data), b"")


def _jpeg(data: bytes) -> Iterator[FileEdit]:
    for part in jpeg.segments(data):
        is_kept = part.kind in _JPEG_KEPT and data.startswith(_JPEG_KEPT[part.kind], part.body)
        if part.kind in _JPEG_SEGMENTS and not is_kept:
            is_exif = part.kind == _APP1 and data.startswith(_JPEG_EXIF, part.body)
            turned = _orientation(data, part.body, part.end) if is_exif else b""
            yield FileEdit(part.start, part.end, jpeg.segment(_APP1, _JPEG_EXIF + turned) if turned else b"")
    # The video of a motion photo and the images in the index (MPF) can have the place as well.
    yield FileEdit(jpeg.image_end(data), len(data), b"")


def _webp(data: bytes) -> Iterator[FileEdit]:
    chunks = riff.complete(data, b"WEBP")
    exif = next((part for part in chunks if part.kind == _WEBP_EXIF), None)
    turned = _orientation(data, exif.body, exif.body + exif.size) if exif else b""
    added = riff.chunk(_WEBP_EXIF, turned) if turned else b""
    flags = _WEBP_XMP_FLAG | (0 if turned else _WEBP_EXIF_FLAG)
    size = int.from_bytes(data[4:8], "little") + len(added)
    for chunk in chunks:
        if chunk.kind == b"VP8X":
            yield FileEdit(chunk.body, chunk.body + 1, bytes([data[chunk.body] & ~flags]))
        elif chunk.kind not in _WEBP_KEPT:
            size -= chunk.end - chunk.start
            yield FileEdit(chunk.start, chunk.end, b"")
    yield FileEdit(4, 8, size.to_bytes(4, "little"))
    yield FileEdit(chunks[-1].end, len(data), added)


def _orientation(data: bytes, start: int, end: int) -> bytes:
    return orientation.only(data[start : min(end, start + orientation.MAX_BYTES)])


def _gif(data: bytes) -> Iterator[FileEdit]:
    for part in gif.blocks(data):
        is_text = part.kind == _GIF_EXTENSION and data[part.start + 1] in _GIF_LABELS
        if is_text and not data.startswith(_GIF_LOOPS, part.start + 2):
            yield FileEdit(part.start, part.end, b"")
        elif part.kind == gif.TRAILER:
            yield FileEdit(part.end, len(data), b"")


def _mp4(data: bytes) -> Iterator[FileEdit]:
    tracks = DataTracks(data)
    yield from tracks.removals()
    yield from _base_media(data, _MP4_BOXES, _MP4_PARENTS, tracks.starts)
    budget = part_budget(mp4.MAX_FRAGMENT_BOXES)
    for box in mp4.boxes(data):
        if box.kind == _FRAGMENT:
            yield from _overwritten(data, (box.body, box.end), _MP4_BOXES, _FRAGMENT_PARENTS, budget=budget)


def _avif(data: bytes) -> Iterator[FileEdit]:
    """Yield edits of boxes; `meta` at the top level contains the index of the images."""
    yield from _base_media(data, _PRIVATE_BOXES, ())
    yield from item_metadata.removals(data)
    for box in mp4.boxes(data):
        if box.kind == _MP4_PARENTS[0]:
            yield from _overwritten(data, (box.body, box.end), _MP4_BOXES, _MP4_PARENTS[1:])


def _base_media(
    data: bytes, kinds: frozenset[bytes], parents: tuple[bytes, ...], starts: frozenset[int] = frozenset()
) -> Iterator[FileEdit]:
    """Yield edits that cut the private boxes at the end and overwrite the others, and those at `starts`."""
    top = list(mp4.boxes(data))
    end = start = top.pop().start if top and top[-1].kind == _INDEX else len(data)
    while top and top[-1].kind in _PRIVATE_BOXES and top[-1].end == start:
        start = top.pop().start
    yield from _overwritten(data, (0, start), kinds, parents, starts)
    yield FileEdit(start, end, b"")


def _overwritten(
    data: bytes,
    span: tuple[int, int],
    kinds: frozenset[bytes],
    parents: tuple[bytes, ...],
    starts: frozenset[int] = frozenset(),
    budget: InputBudget | None = None,
) -> Iterator[FileEdit]:
    """Yield edits that make the boxes free space, because tables of the file contain offsets of frames."""
    budget = budget or part_budget(mp4.MAX_FRAGMENT_BOXES)
    for box in mp4.boxes(data, *span, budget):
        if box.kind in kinds or box.start in starts:
            yield FileEdit(box.start + 4, box.start + 8, b"free")
            yield from edits.zeros(box.body, box.end)
        elif box.kind == next(iter(parents), None):
            yield from _overwritten(data, (box.body, box.end), kinds, parents[1:], starts, budget)


_READERS: Mapping[str, Callable[[bytes], Iterable[FileEdit]]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/webp": _webp,
    "image/gif": _gif,
    **dict.fromkeys(("video/mp4", "video/quicktime", "audio/mp4"), _mp4),
    **dict.fromkeys(("image/avif", "image/heic"), _avif),
    "image/bmp": bitmap_metadata.bmp,
    "image/tiff": bitmap_metadata.tiff,
    "video/webm": webm.tag_removals,
    "audio/wav": sound_metadata.of_wav,
    "audio/mpeg": sound_metadata.of_mp3,
    "audio/flac": sound_metadata.of_flac,
    "audio/ogg": ogg.comment_removals,
    "model/gltf-binary": glb.extras_removals,
}
