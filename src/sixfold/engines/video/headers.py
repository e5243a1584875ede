"""What a film or a sound is by its first bytes, and how long it says it is; nothing of it is decoded.

Only what stands in `_KINDS` is ever opened, each with the one demuxer that its own bytes name: playlists and
scripts, which would send a demuxer to other files or over the network, are none of them whatever they are
called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sixfold.core.work.engines import UnusableInput

_HEAD = 16
_MOST_BOXES = 4096
_MOOV, _MVHD = b"moov", b"mvhd"
_SEGMENT, _INFO, _SCALE, _DURATION, _CLUSTER = 0x18538067, 0x1549A966, 0x2AD7B1, 0x4489, 0x1F43B675
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file: its type, its demuxer, whether it may hold pictures, and how its length is read."""

    content_type: str
    demuxer: str
    filmed: bool
    length: Callable[[BinaryIO], float | None]


def read(path: Path, wanted: str = "video") -> Kind:
    """What the file is; raises `UnusableInput` with a sentence where that is no film (or no sound)."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    kind = next((kind for magic, at, kind in _KINDS if head[at:].startswith(magic)), None)
    if kind is None or (wanted == "video" and not kind.filmed):
        known = "film (MP4, MOV, WebM or GIF)" if wanted == "video" else "sound (WAV, MP3, OGG, FLAC or MP4)"
        raise UnusableInput(f"The file is no {known}")
    return kind


def seconds(path: Path, wanted: str = "video") -> float | None:
    """How long the file says that it is, where it says so; raises what `read` raises."""
    kind = read(path, wanted)
    with path.open("rb") as file:
        try:
            found = kind.length(file)
        except (struct.error, IndexError, OverflowError, ZeroDivisionError, ValueError):
            return None
    return found if found is not None and 0 < found < 1e7 else None


def _silent(_file: BinaryIO) -> None:
    return None


# -- MP4 and MOV: boxes ----------------------------------------------------------------------------


def _mp4(file: BinaryIO) -> float | None:
    size = file.seek(0, 2)
    for kind, begin, end in _boxes(file, 0, size):
        if kind == _MOOV:
            inside = _boxes(file, begin, end)
            return next((_mvhd(file, at) for inner, at, _ in inside if inner == _MVHD), None)
    return None


def _boxes(file: BinaryIO, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    for _ in range(_MOST_BOXES):
        if at + 8 > end:
            return
        file.seek(at)
        length, kind = struct.unpack(">I4s", file.read(8))
        header = 8
        if length == 1:
            length, header = struct.unpack(">Q", file.read(8))[0], 16
        stop = end if length == 0 else at + length
        if stop < at + header or stop > end:
            return
        yield kind, at + header, stop
        at = stop


def _mvhd(file: BinaryIO, at: int) -> float | None:
    file.seek(at)
    body = file.read(32)
    layout, begin = (">IQ", 20) if body[0] == 1 else (">II", 12)
    scale, length = struct.unpack_from(layout, body, begin)
    return length / scale if length else None


# -- WebM and Matroska: elements -------------------------------------------------------------------


def _webm(file: BinaryIO) -> float | None:
    size = file.seek(0, 2)
    for kind, begin, end in _elements(file, 0, size):
        if kind == _SEGMENT:
            for inner, at, stop in _elements(file, begin, end):
                if inner == _CLUSTER:
                    return None
                if inner == _INFO:
                    return _info(file, at, stop)
    return None


def _info(file: BinaryIO, begin: int, end: int) -> float | None:
    scale, length = 1_000_000, None
    for kind, at, stop in _elements(file, begin, end):
        file.seek(at)
        body = file.read(min(8, stop - at))
        if kind == _SCALE:
            scale = int.from_bytes(body, "big")
        elif kind == _DURATION:
            length = struct.unpack(">d" if len(body) == 8 else ">f", body)[0]
    return None if length is None else length * scale / _NANOSECONDS


def _elements(file: BinaryIO, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    for _ in range(_MOST_BOXES):
        file.seek(at)
        head = file.read(12)
        if len(head) < 2 or not head[0]:
            return
        wide = 9 - head[0].bit_length()
        kind = int.from_bytes(head[:wide], "big")
        long = 9 - head[wide].bit_length()
        length = int.from_bytes(head[wide : wide + long], "big") & ((1 << 7 * long) - 1)
        unknown = length == (1 << 7 * long) - 1
        begin = at + wide + long
        stop = end if unknown else begin + length
        if long > 8 or stop > end:
            return
        yield kind, begin, stop
        at = stop


# -- sounds ----------------------------------------------------------------------------------------


def _wav(file: BinaryIO) -> float | None:
    size = file.seek(0, 2)
    at, rate = 12, 0
    while at + 8 <= size:
        file.seek(at)
        kind, length = struct.unpack("<4sI", file.read(8))
        if kind == b"fmt ":
            rate = struct.unpack("<HHIIHH", file.read(16))[3]
        elif kind == b"data":
            return min(length, size - at - 8) / rate
        at += 8 + length + length % 2
    return None


def _flac(file: BinaryIO) -> float | None:
    file.seek(18)
    facts = int.from_bytes(file.read(8), "big")
    return (facts & ((1 << 36) - 1)) / (facts >> 44)


_ISO = Kind("video/mp4", "mp4", filmed=True, length=_mp4)
_MP3 = Kind("audio/mpeg", "mp3", filmed=False, length=_silent)
_KINDS: tuple[tuple[bytes, int, Kind], ...] = (
    (b"ftyp", 4, _ISO),
    (b"\x1aE\xdf\xa3", 0, Kind("video/webm", "matroska", filmed=True, length=_webm)),
    (b"GIF87a", 0, Kind("image/gif", "gif", filmed=True, length=_silent)),
    (b"GIF89a", 0, Kind("image/gif", "gif", filmed=True, length=_silent)),
    (b"WAVE", 8, Kind("audio/wav", "wav", filmed=False, length=_wav)),
    (b"OggS", 0, Kind("audio/ogg", "ogg", filmed=False, length=_silent)),
    (b"FORM", 0, Kind("audio/aiff", "aiff", filmed=False, length=_silent)),
    (b"\xff\xf1", 0, Kind("audio/aac", "aac", filmed=False, length=_silent)),
    (b"\xff\xf9", 0, Kind("audio/aac", "aac", filmed=False, length=_silent)),
    (b"fLaC", 0, Kind("audio/flac", "flac", filmed=False, length=_flac)),
    *((magic, 0, _MP3) for magic in (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")),
)
