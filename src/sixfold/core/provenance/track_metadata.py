"""Removal of the data tracks of MP4 and MOV files, in which cameras store places and movements."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance import fragment_samples
from sixfold.core.provenance.formats import edits, mp4
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, part_budget

# Tracks that are shown or played, and timecodes, to which video tracks refer.
_KEPT = frozenset(b"vide soun pict auxv text sbtl subt clcp tmcd".split())
_MOVIE, _TRACK, _TRACK_HEADER, _FRAGMENTS = b"moov", b"trak", b"tkhd", b"mvex"
_MEDIA = (b"mdia", b"hdlr")
_SAMPLES = (b"mdia", b"minf", b"stbl")
_SIZES = {b"stsc", b"stsz"}
_OFFSETS = {b"stco": "I", b"co64": "Q"}
# The place of the kind of a track in `hdlr`, and that of the number of entries in tables.
_KIND_AT, _COUNT_AT = 8, 4

Box = ContainerPart[bytes]


class DataTracks:
    """The tracks of a file that are neither shown nor played; `starts` are the positions of their boxes.

    The boxes of a fragmented file are kept, because its fragments refer to them; their samples are not.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._movies = [box for box in mp4.boxes(data) if box.kind == _MOVIE]
        self._tracks = [track for movie in self._movies for track in _tracks(data, movie)]
        self._is_fragmented = any(_inside(data, movie, _FRAGMENTS) for movie in self._movies)
        self.starts = frozenset(() if self._is_fragmented else (track.start for track in self._tracks))

    def removals(self) -> Iterator[FileEdit]:
        """Yield the edits that overwrite the samples of these tracks, which are between those of others."""
        budget = part_budget()
        spans = [span for track in self._tracks for span in _samples(self._data, track, budget)]
        if self._is_fragmented and self._tracks:
            sizes: dict[int, int] = {}
            for movie in self._movies:
                sizes |= fragment_samples.default_sizes(self._data, movie)
            ids = {_id(self._data, track) for track in self._tracks}
            spans += fragment_samples.samples(self._data, ids, sizes, budget)
        yield from edits.zeros_of(spans)


def _tracks(data: bytes, movie: Box) -> Iterator[Box]:
    """Yield the data tracks of a movie."""
    for box in mp4.boxes(data, movie.body, movie.end):
        handler = _inside(data, box, *_MEDIA) if box.kind == _TRACK else None
        if handler is not None and _kind(data, handler) not in _KEPT:
            yield box


def _id(data: bytes, track: Box) -> int:
    """Return the id of a track; raises `MalformedFile` if it has none."""
    header = _inside(data, track, _TRACK_HEADER)
    if header is None:
        raise MalformedFile("a track has no header")
    # The times before the id have 4 bytes, or 8 in version 1.
    return int(struct.unpack_from(">I", data, header.body + (20 if data[header.body] else 12))[0])


def _kind(data: bytes, handler: Box) -> bytes:
    return data[handler.body + _KIND_AT : handler.body + _KIND_AT + 4]


def _inside(data: bytes, box: Box, *path: bytes) -> Box | None:
    """Return the first box with this path in a box, or None."""
    for kind in path:
        found = next((each for each in mp4.boxes(data, box.body, box.end) if each.kind == kind), None)
        if found is None:
            return None
        box = found
    return box


def _samples(data: bytes, track: Box, budget: InputBudget) -> Iterator[tuple[int, int]]:
    """Yield where the samples of a track are, in chunks."""
    table = _inside(data, track, *_SAMPLES)
    if table is None:
        return
    boxes = {box.kind: box.body for box in mp4.boxes(data, table.body, table.end)}
    if not boxes.keys() >= _SIZES:
        return
    runs = _numbers(data, boxes[b"stsc"], "III", budget)
    firsts, lengths = runs[::3], runs[1::3]
    (size,) = struct.unpack_from(">I", data, boxes[b"stsz"] + _COUNT_AT)
    sizes = iter(() if size else _numbers(data, boxes[b"stsz"] + 4, "I", budget))
    run = -1
    for kind, numbers in _OFFSETS.items():
        for chunk, offset in (
            enumerate(_numbers(data, boxes[kind], numbers, budget), 1) if kind in boxes else ()
        ):
            while run + 1 < len(firsts) and firsts[run + 1] <= chunk:
                run += 1
            length = size * lengths[run] if size else sum(itertools.islice(sizes, lengths[run]))
            yield offset, min(offset + length, len(data))


def _numbers(data: bytes, body: int, entry: str, budget: InputBudget) -> tuple[int, ...]:
    """Return the numbers of the entries of a table, in one tuple."""
    (count,) = struct.unpack_from(">I", data, body + _COUNT_AT)
    budget.spend(parts=count * len(entry))
    return struct.unpack_from(">" + entry * count, data, body + _COUNT_AT + 4)
