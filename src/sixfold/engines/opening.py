"""Sound and film files from strangers: opened with the one demuxer that their own first bytes name.

FFmpeg's own guessing is never asked: a playlist or a script that calls itself `film.mp4` would make it read
other files and other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import av.error

from sixfold.core.work.engines import UnusableInput

# Where in the file the magic stands, the magic, and FFmpeg's name for the demuxer.
_KINDS: tuple[tuple[int, bytes, str], ...] = (
    (4, b"ftyp", "mov"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (8, b"WAVE", "wav"),
    (8, b"AVI ", "avi"),
    (0, b"OggS", "ogg"),
    (0, b"fLaC", "flac"),
    (0, b"GIF8", "gif"),
    (0, b"ID3", "mp3"),
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"\xff\xfb", "mp3"),
    (0, b"\xff\xf3", "mp3"),
    (0, b"\xff\xf2", "mp3"),
    (0, b"\xff\xfa", "mp3"),
)
_MOST_PIXELS = 8192 * 8192
_HEAD_BYTES = 16


class UnreadableMedia(UnusableInput):
    """The file is no sound and no film that can be read."""


def demuxer(path: Path) -> str | None:
    """FFmpeg's name for what a file is by its first bytes; None for anything else."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return next((name for at, magic, name in _KINDS if head[at:].startswith(magic)), None)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The open file; raises `UnreadableMedia`, also where what is read from it turns out to be damaged."""
    kind = demuxer(path)
    if kind is None:
        raise UnreadableMedia(
            "This is not a sound or a film that can be read: send MP4, MOV, WebM, MKV, AVI, GIF, MP3, WAV, "
            "OGG, FLAC or AAC."
        )
    try:
        with av.open(str(path), "r", format=kind, options={"protocol_whitelist": "file"}) as container:
            for stream in container.streams.video:
                if not 0 < stream.width * stream.height <= _MOST_PIXELS:
                    raise UnreadableMedia("The film's picture is too large.")
            yield container
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise UnreadableMedia("The sound or film file is truncated or damaged.") from error
