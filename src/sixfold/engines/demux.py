"""Reading of untrusted audio and video files with the demuxer that their first bytes identify.

FFmpeg's format detection is not used: a playlist or script named `video.mp4` would make it read other files
and connect to other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import av.error

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance.formats import media_types, mp4
from sixfold.core.provenance.formats.edits import mapped
from sixfold.core.provenance.formats.parts import MalformedFile

_MAX_PIXELS = 8192 * 8192


class UnreadableMedia(UnusableInput):
    """Raised for a file that cannot be read as audio or video."""


def demuxer(path: Path) -> str:
    """Return FFmpeg's demuxer for a file by its first bytes, or "" for an unknown format.

    Raises `UnreadableMedia` if the index of an MP4 file would take too much memory.
    """
    with path.open("rb", buffering=0) as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    if kind is not None and kind.demuxer == "mov":
        check_samples(path)
    return kind.demuxer if kind else ""


def check_samples(path: Path) -> None:
    """Raise `UnreadableMedia` if an MP4 file states more samples than it has bytes."""
    try:
        with path.open("rb", buffering=0) as file, mapped(file) as data:
            mp4.check_samples(data)
    except MalformedFile as error:
        raise UnreadableMedia("The audio or video file is damaged.") from error


@contextmanager
def open_media(path: Path) -> Iterator[Any]:
    """Open a file for the block; raises `UnreadableMedia`, also for damage that is detected in the block."""
    kind = demuxer(path)
    if not kind:
        raise UnreadableMedia(
            "The file is not audio or video of a supported format: send MP4, MOV, WebM, MKV, AVI, GIF, MP3, "
            "WAV, OGG, FLAC or AAC."
        )
    try:
        with av.open(str(path), "r", format=kind, options={"protocol_whitelist": "file"}) as container:
            for stream in container.streams.video:
                if not 0 < stream.width * stream.height <= _MAX_PIXELS:
                    raise UnreadableMedia(f"A video frame must have at most {_MAX_PIXELS:,} pixels in total.")
            yield container
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise UnreadableMedia("The audio or video file is truncated or damaged.") from error
