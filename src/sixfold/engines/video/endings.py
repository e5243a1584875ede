"""Whether a film's file is all there: its index, and everything that its own boxes say they hold.

A film that was cut off on its way keeps a sound beginning, and often its index as well. What follows a sound
end is left alone, and so are films that were never closed: a recording that says of no part how long it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from sixfold.core.work.engines import UnusableInput
from sixfold.engines.image import endings
from sixfold.engines.video import headers

_MOST_BOXES = 1 << 16
_MOOV, _DATA, _FRAGMENT = b"moov", b"mdat", b"moof"
_FILM = frozenset({_MOOV, _DATA, _FRAGMENT, b"ftyp", b"free", b"wide", b"sidx", b"styp"})
_SEGMENT = b"\x18\x53\x80\x67"


def check(path: Path, wanted: str = "video") -> None:
    """Raise `UnusableInput` for a film that breaks off; sounds are heard as far as they go."""
    kind = headers.read(path, wanted)
    if kind.demuxer == "gif":
        endings.check(path, "GIF")
    ends = _ENDS.get(kind.demuxer)
    if ends is None:
        return
    with path.open("rb") as file:
        try:
            whole = ends(file, file.seek(0, 2))
        except (struct.error, IndexError):
            whole = False
    if not whole:
        raise UnusableInput("The file is truncated or damaged.")


def _mp4(file: BinaryIO, size: int) -> bool:
    at, seen = 0, set[bytes]()
    for _ in range(_MOST_BOXES):
        if at + 8 > size:
            break
        file.seek(at)
        length, kind = struct.unpack(">I4s", file.read(8))
        if length == 1:
            length = struct.unpack(">Q", file.read(8))[0]
        stop = size if length == 0 else at + length
        if kind not in _FILM and {_MOOV, _DATA} <= seen:
            break
        if stop > size or stop < at + 8:
            return False
        seen.add(kind)
        at = stop
    return {_MOOV, _DATA} <= seen


def _webm(file: BinaryIO, size: int) -> bool:
    """The segment is the file's second element; one of unknown length goes to the end."""
    file.seek(0)
    head = file.read(4096)
    first, _ = _length(head, 4)
    at = head.index(_SEGMENT, first) if _SEGMENT in head[first:] else -1
    if at < 0:
        return False
    begin, length = _length(head, at + 4)
    return length is None or begin + length <= size


def _length(data: bytes, at: int) -> tuple[int, int | None]:
    """Where an element's body begins, and how long it is; None where that is not known."""
    wide = 9 - data[at].bit_length()
    most = (1 << 7 * wide) - 1
    length = int.from_bytes(data[at : at + wide]) & most
    return at + wide, None if length == most else length


_ENDS: Mapping[str, Callable[[BinaryIO, int], bool]] = {"mp4": _mp4, "matroska": _webm}
