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

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import media_types

_MOST_PIXELS = 8192 * 8192


class UnreadableMedia(UnusableInput):
    """The file is no sound and no film that can be read."""


def demuxer(path: Path) -> str:
    """FFmpeg's name for what a file is by its first bytes; empty for anything else."""
    with path.open("rb", buffering=0) as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    return kind.demuxer if kind else ""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The open file; raises `UnreadableMedia`, also where what is read from it turns out to be damaged."""
    kind = demuxer(path)
    if not kind:
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
