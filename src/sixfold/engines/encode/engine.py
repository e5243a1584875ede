"""The engine of `media-encode`: six things that are made of a film or a sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, Result, Task, UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio import files
from sixfold.engines.encode import probe, transcode, waveform
from sixfold.engines.encode.probe import MediaStream
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import UnreadableImage
from sixfold.engines.video.encode import KINDS

_STILL_WIDTH, _WAVE_WIDTH = 640, 1200
_STILL_QUALITY = 88
_DONE = 0.98


@dataclass(frozen=True, slots=True)
class _EncodeJob:
    """One order: its file, its wishes, where the result goes, and who hears how far it is."""

    path: Path
    inputs: Mapping[str, Any]
    scratch: Path
    step: Callable[[float], None]

    @property
    def width(self) -> int | None:
        """The width that was asked for."""
        return int(self.inputs["width"]) if self.inputs.get("width") else None

    def part(self) -> MediaStream:
        """What is taken of the file."""
        return probe.part(self.path, self.inputs)


class EncodeEngine:
    """Makes of `media` what `operation` says; the same inputs give the same bytes."""

    name = "encoder"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """One file."""

        def step(part: float) -> None:
            context.progress(_DONE * part)

        job = _EncodeJob(probe.source(task), task.inputs, context.scratch, step)
        return Result((_OPERATIONS[str(task.inputs["operation"])](job),), quality="full")


def _sound(job: _EncodeJob) -> Artifact:
    part = job.part()
    target = job.scratch / "sound.mp3"
    tape = files.AudioBuffer(target, "mp3")
    with demux.open_media(job.path) as container:
        for piece in files.pieces(container, part.begin, part.seconds):
            tape.add(piece)
            job.step(min(1.0, tape.written / (part.seconds * files.RATE)))
    tape.close()
    return Artifact("audio/mpeg", info={"duration": round(tape.written / files.RATE, 3)}, path=target)


def _film(kind: str) -> Callable[[_EncodeJob], Artifact]:
    def made(job: _EncodeJob) -> Artifact:
        target = job.scratch / f"film.{kind}"

        def choose(shape: tuple[int, int]) -> tuple[int, int]:
            return transcode.size_of(shape, job.width)

        info = transcode.transcoded(job.part(), KINDS[kind], target, choose, job.step)
        return Artifact(KINDS[kind].content_type, info=info, path=target)

    return made


def _gif(job: _EncodeJob) -> Artifact:
    target = job.scratch / "film.gif"
    info = transcode.animated(job.part(), target, job.width, job.step)
    return Artifact("image/gif", info=info, path=target)


def _thumbnail(job: _EncodeJob) -> Artifact:
    start = job.inputs.get("start")
    if demux.demuxer(job.path) not in ("", "gif"):
        part = job.part()
        picture = transcode.still(part, None if start is None else float(start), job.width or _STILL_WIDTH)
        cover = None
    else:
        picture, cover = _picture(job)
    data = encode.encode(picture, cover, format="jpeg", quality=_STILL_QUALITY)
    info = {"width": picture.shape[1], "height": picture.shape[0]}
    return Artifact("image/jpeg", data, info)


def _picture(job: _EncodeJob) -> tuple[Any, Any]:
    """A picture at the wanted width: its colours and its cover."""
    try:
        found = decode.decode(job.path)
    except UnreadableImage as error:
        raise UnusableInput("This is neither a film nor a picture that can be read.") from error
    width = job.width or min(_STILL_WIDTH, found.width)
    size = (width, max(1, round(found.height * width / found.width)))
    how = cv2.INTER_AREA if width < found.width else cv2.INTER_CUBIC
    rgb = cv2.resize(found.rgb, size, interpolation=how)
    return rgb, None if found.alpha is None else cv2.resize(found.alpha, size, interpolation=how)


def _waveform(job: _EncodeJob) -> Artifact:
    part = job.part()
    with demux.open_media(job.path) as container:
        heard = files.pieces(container, part.begin, part.seconds)
        picture = waveform.drawn(heard, round(part.seconds * files.RATE), job.width or _WAVE_WIDTH)
    job.step(0.9)
    info = {"width": picture.shape[1], "height": picture.shape[0]}
    return Artifact("image/png", encode.encode(np.ascontiguousarray(picture), format="png"), info)


_OPERATIONS: Mapping[str, Callable[[_EncodeJob], Artifact]] = {
    "audio-mp3": _sound,
    "gif": _gif,
    "thumbnail": _thumbnail,
    "transcode-mp4": _film("mp4"),
    "transcode-webm": _film("webm"),
    "waveform": _waveform,
}
