"""The actual length of a video or audio file, and the part of it that a task requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines import demux

MAX_SECONDS = 30 * 60.0


class MediaStream(msgspec.Struct, frozen=True):
    """A part of a media file, from `begin` for `seconds`, and the kinds of its streams.

    `source_bytes` is the size of the file multiplied by the part's fraction of the duration.
    """

    path: Path
    begin: float
    seconds: float
    has_video: bool
    has_audio: bool
    source_bytes: float = math.inf


def source(task: Task) -> Path:
    """Return the task's file; raises `EngineError` for a task without a file."""
    path = task.files.get("media")
    if path is None:
        raise EngineError("`media` is required.")
    return path


def part(path: Path, inputs: Mapping[str, Any]) -> MediaStream:
    """Return the part that `start` and `duration` select; raises `UnusableInput` if it is empty."""
    with demux.open_media(path) as container:
        has_video, has_audio = bool(container.streams.video), bool(container.streams.audio)
        length = _length(container)
    begin = float(inputs.get("start") or 0)
    if begin >= length:
        raise UnusableInput(f"start must be less than the file's length of {length:.3f} seconds.")
    seconds = min(float(inputs.get("duration") or length), length - begin)
    if seconds > MAX_SECONDS:
        raise UnusableInput(f"duration must be at most {MAX_SECONDS:g} seconds (got {seconds:g}).")
    size = path.stat().st_size * seconds / length
    return MediaStream(path, begin, seconds, has_video, has_audio, size)


def _length(container: Any) -> float:
    """Return the seconds from the first packet to the end of the last packet, of the video stream if any."""
    stream = (container.streams.video or container.streams.audio or (None,))[0]
    if stream is None:
        raise UnusableInput("The file does not contain a video or audio stream.")
    first, last = None, 0.0
    for packet in container.demux(stream):
        if packet.pts is None or packet.time_base is None:
            continue
        second = float(packet.pts * packet.time_base)
        first = second if first is None else min(first, second)
        last = max(last, second + float((packet.duration or 0) * packet.time_base))
    if first is None or last <= first:
        raise UnusableInput("The file has no playable packets.")
    return last - first
