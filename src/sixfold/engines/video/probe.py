"""Properties of a video, read from its first bytes and its header, not from its declared type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import av.error
import msgspec

from sixfold.engines import demux

_MAX_PIXELS = 8192 * 8192
_CONTENT_TYPES = {"mov": "video/mp4", "matroska": "video/webm"}


class NotAVideo(Exception):
    """Raised if a file is not an MP4 or WebM file with a video stream."""


class ProbedVideo(msgspec.Struct, frozen=True):
    """The properties of a video; `rate` is in frames per second."""

    content_type: str
    width: int
    height: int
    seconds: float
    rate: float

    def info(self) -> dict[str, Any]:
        """Return the properties under the names that the API uses."""
        rate = int(self.rate) if self.rate.is_integer() else round(self.rate, 3)
        return {"width": self.width, "height": self.height, "duration": round(self.seconds, 3), "fps": rate}


def read(path: Path) -> ProbedVideo:
    """Read the header with the demuxer that the first bytes identify; raises `NotAVideo`."""
    try:
        demuxer = demux.demuxer(path)
    except demux.UnreadableMedia as error:
        raise NotAVideo(str(error)) from error
    if demuxer not in _CONTENT_TYPES:
        raise NotAVideo("the file must be MP4 or WebM")
    return _read_header(path, _CONTENT_TYPES[demuxer], demuxer)


def _read_header(path: Path, content_type: str, demuxer: str) -> ProbedVideo:
    try:
        with av.open(str(path), "r", format=demuxer) as container:
            if not container.streams.video:
                raise NotAVideo("the file has no video stream")
            stream = container.streams.video[0]
            seconds = (container.duration or 0) / 1_000_000
            rate = float(stream.average_rate or 0)
            if not (0 < stream.width * stream.height <= _MAX_PIXELS and seconds > 0 and rate > 0):
                raise NotAVideo("the header has no valid size, duration and frame rate")
            return ProbedVideo(content_type, stream.width, stream.height, seconds, rate)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise NotAVideo(str(error)) from error
