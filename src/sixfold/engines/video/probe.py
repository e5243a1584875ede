"""Find out what a video file is from its first bytes and its header, whatever its sender claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import av.error

from sixfold.engines import demux

_MOST_PIXELS = 8192 * 8192
_CONTENT_TYPES = {"mov": "video/mp4", "matroska": "video/webm"}


class NotAVideo(Exception):
    """The file is no MP4 or WebM with a picture in it."""


@dataclass(frozen=True, slots=True)
class ProbedVideo:
    """A film's facts: pixels, seconds, frames a second."""

    content_type: str
    width: int
    height: int
    seconds: float
    rate: float

    def info(self) -> dict[str, Any]:
        """The facts under the names that the interface uses."""
        rate = int(self.rate) if self.rate.is_integer() else round(self.rate, 3)
        return {"width": self.width, "height": self.height, "duration": round(self.seconds, 3), "fps": rate}


def read(path: Path) -> ProbedVideo:
    """Read a film's header, with the one demuxer that its first bytes name; raises `NotAVideo`."""
    demuxer = demux.demuxer(path)
    if demuxer not in _CONTENT_TYPES:
        raise NotAVideo("neither MP4 nor WebM")
    return _looked(path, _CONTENT_TYPES[demuxer], demuxer)


def _looked(path: Path, content_type: str, demuxer: str) -> ProbedVideo:
    try:
        with av.open(str(path), "r", format=demuxer) as container:
            if not container.streams.video:
                raise NotAVideo("no picture in it")
            stream = container.streams.video[0]
            seconds = (container.duration or 0) / 1_000_000
            rate = float(stream.average_rate or 0)
            if not (0 < stream.width * stream.height <= _MOST_PIXELS and seconds > 0 and rate > 0):
                raise NotAVideo("a header that says too little or too much")
            return ProbedVideo(content_type, stream.width, stream.height, seconds, rate)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise NotAVideo(str(error)) from error
