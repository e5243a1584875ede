"""How long a film or a sound truly is, and what part of it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines import demux

MOST_SECONDS = 30 * 60.0


@dataclass(frozen=True, slots=True)
class MediaStream:
    """What is taken of a file: from `begin` on for `seconds`, by its packets and not its claims."""

    path: Path
    begin: float
    seconds: float
    filmed: bool
    heard: bool


def source(task: Task) -> Path:
    """The task's file."""
    path = task.files.get("media")
    if path is None:
        raise EngineError("There is no file to work on.")
    return path


def part(path: Path, inputs: Mapping[str, Any]) -> MediaStream:
    """The part that `start` and `duration` ask for; raises `UnusableInput` where it is empty."""
    with demux.open_media(path) as container:
        filmed, heard = bool(container.streams.video), bool(container.streams.audio)
        length = _length(container)
    begin = float(inputs.get("start") or 0)
    if begin >= length:
        raise UnusableInput(f"start lies beyond the end: the file lasts {length:.3f} seconds")
    seconds = min(float(inputs.get("duration") or length), length - begin)
    if seconds > MOST_SECONDS:
        raise UnusableInput(f"At most {MOST_SECONDS / 60:g} minutes are taken: give a duration")
    return MediaStream(path, begin, seconds, filmed, heard)


def _length(container: Any) -> float:
    """Seconds from the first packet to the end of the last, of the pictures where there are any."""
    stream = (container.streams.video or container.streams.audio or (None,))[0]
    if stream is None:
        raise UnusableInput("There is neither a film nor a sound in this file.")
    first, last = None, 0.0
    for packet in container.demux(stream):
        if packet.pts is None or packet.time_base is None:
            continue
        moment = float(packet.pts * packet.time_base)
        first = moment if first is None else min(first, moment)
        last = max(last, moment + float((packet.duration or 0) * packet.time_base))
    if first is None or last <= first:
        raise UnusableInput("The file has nothing in it that can be played.")
    return last - first
