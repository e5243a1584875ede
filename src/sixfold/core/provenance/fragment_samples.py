"""The samples of tracks in the fragments of an MP4 file, each of which states the sizes of its samples."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from sixfold.core.input_limits.budget import InputBudget
from sixfold.core.provenance.formats import mp4
from sixfold.core.provenance.formats.parts import ContainerPart, MalformedFile, part_budget

_FRAGMENT, _TRACK, _HEADER, _RUN = b"moof", b"traf", b"tfhd", b"trun"
_DEFAULTS = (b"mvex", b"trex")
# Flags of `tfhd`; each of the first four adds a field, in this order.
_BASE, _DESCRIPTION, _DURATION, _SIZE = 0x1, 0x2, 0x8, 0x10
_FROM_FRAGMENT = 0x20000
# Flags of `trun`: the first two add a field, and the others one for each sample, in this order.
_OFFSET, _FIRST_FLAGS = 0x1, 0x4
_SAMPLE_DURATION, _SAMPLE_SIZE, _SAMPLE_FLAGS, _SAMPLE_SHIFT = 0x100, 0x200, 0x400, 0x800
_SAMPLE_FIELDS = (_SAMPLE_DURATION, _SAMPLE_SIZE, _SAMPLE_FLAGS, _SAMPLE_SHIFT)

Box = ContainerPart[bytes]


class _TrackFragment(NamedTuple):
    """A track in a fragment: the start of its samples, or None if they follow those of the track before."""

    track: int
    base: int | None
    size: int


def default_sizes(data: bytes, movie: Box) -> dict[int, int]:
    """Return the size of a sample by track, for fragments that state none."""
    sizes: dict[int, int] = {}
    for parent in mp4.boxes(data, movie.body, movie.end):
        if parent.kind == _DEFAULTS[0]:
            for box in mp4.boxes(data, parent.body, parent.end):
                if box.kind == _DEFAULTS[1]:
                    _, track, _, _, size = struct.unpack_from(">5I", data, box.body)
                    sizes[track] = size
    return sizes


def samples(
    data: bytes, tracks: Collection[int], sizes: Mapping[int, int], budget: InputBudget
) -> Iterator[tuple[int, int]]:
    """Yield where the samples of these tracks are, a run at a time; raises `MalformedFile`."""
    boxes = part_budget(mp4.MAX_FRAGMENT_BOXES)
    for fragment in mp4.boxes(data):
        end = fragment.start
        is_fragment = fragment.kind == _FRAGMENT
        for box in mp4.boxes(data, fragment.body, fragment.end, boxes) if is_fragment else ():
            if box.kind != _TRACK:
                continue
            inside = list(mp4.boxes(data, box.body, box.end, boxes))
            header = next((each for each in inside if each.kind == _HEADER), None)
            if header is None:
                raise MalformedFile("a fragment has a track without a header")
            stated = _header(data, header, fragment, sizes)
            base = end = end if stated.base is None else stated.base
            for run in inside:
                if run.kind == _RUN:
                    start, length = _run(data, run, stated.size, budget)
                    begin = end if start is None else base + start
                    end = begin + length
                    if begin < 0:
                        raise MalformedFile("a fragment has samples before the file")
                    if stated.track in tracks:
                        yield min(begin, len(data)), min(end, len(data))


def _header(data: bytes, header: Box, fragment: Box, sizes: Mapping[int, int]) -> _TrackFragment:
    flags, track = struct.unpack_from(">II", data, header.body)
    at = header.body + 8
    base = fragment.start if flags & _FROM_FRAGMENT else None
    if flags & _BASE:
        (base,) = struct.unpack_from(">Q", data, at)
        at += 8
    at += 4 * sum(bool(flags & flag) for flag in (_DESCRIPTION, _DURATION))
    size = struct.unpack_from(">I", data, at)[0] if flags & _SIZE else sizes.get(track, 0)
    return _TrackFragment(track, base, size)


def _run(data: bytes, run: Box, size: int, budget: InputBudget) -> tuple[int | None, int]:
    """Return the offset of a run, if it states one, and the length of its samples."""
    flags, count = struct.unpack_from(">II", data, run.body)
    at = run.body + 8
    start = struct.unpack_from(">i", data, at)[0] if flags & _OFFSET else None
    at += 4 * sum(bool(flags & flag) for flag in (_OFFSET, _FIRST_FLAGS))
    if not flags & _SAMPLE_SIZE:
        return start, size * count
    fields = [flag for flag in _SAMPLE_FIELDS if flags & flag]
    budget.spend(parts=count)
    row, column = struct.Struct(f">{len(fields)}I"), fields.index(_SAMPLE_SIZE)
    rows = data[at : at + count * row.size]
    if len(rows) < count * row.size:
        raise MalformedFile("a run of samples is not complete")
    return start, sum(numbers[column] for numbers in row.iter_unpack(rows))
