"""Engine of `media-encode`: six conversions of video and audio files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, Result, Task, UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio import files
from sixfold.engines.encode import presets, probe, transcode, waveform
from sixfold.engines.encode.probe import MediaStream
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import UnreadableImage
from sixfold.engines.video.encode import KINDS, VideoKind

_STILL_WIDTH, _WAVE_WIDTH = 640, 1200
_STILL_QUALITY = 88
_DONE = 0.98


class _EncodeJob(msgspec.Struct, frozen=True):
    """A conversion: its file and inputs, the folder for the result, and the callbacks."""

    path: Path
    inputs: Mapping[str, Any]
    scratch: Path
    progress: Callable[[float], None]
    log: Callable[[str], None]

    @property
    def width(self) -> int | None:
        """The requested width in pixels, or None if the request does not set it."""
        return int(self.inputs["width"]) if self.inputs.get("width") else None

    def part(self) -> MediaStream:
        return probe.part(self.path, self.inputs)


class EncodeEngine:
    """Applies an `operation` to `media`; the same inputs result in the same bytes."""

    name = "encoder"
    version = "6"

    def run(self, task: Task, context: Context) -> Result:
        def progress(fraction: float) -> None:
            context.progress(_DONE * fraction)

        job = _EncodeJob(probe.source(task), task.inputs, context.scratch, progress, context.log)
        return Result((_OPERATIONS[str(task.inputs["operation"])](job),), quality="full")


def _audio(job: _EncodeJob) -> Artifact:
    part = job.part()
    target = job.scratch / "audio.mp3"
    writer = files.AudioBuffer(target, "mp3")
    with demux.open_media(job.path) as container:
        for piece in files.pieces(container, part.begin, part.seconds):
            writer.add(piece)
            job.progress(min(1.0, writer.written / (part.seconds * files.RATE)))
    writer.close()
    if not writer.written:
        raise UnusableInput("The selected part contains no audio: select another or a longer part.")
    return Artifact("audio/mpeg", info={"duration": round(writer.written / files.RATE, 3)}, path=target)


def _video(kind: str) -> Callable[[_EncodeJob], Artifact]:
    def convert(job: _EncodeJob) -> Artifact:
        target, part = job.scratch / f"video.{kind}", job.part()

        def choose(shape: tuple[int, int]) -> tuple[int, int]:
            return transcode.size_of(shape, job.width)

        def kind_of(size: tuple[int, int], frames: int) -> VideoKind:
            preset, is_small = presets.kind(kind, size, frames)
            if not is_small:
                job.log("The video is long, so it is encoded faster, to a larger file.")
            return preset

        info = transcode.transcode(part, kind_of, target, choose, job.progress)
        size = target.stat().st_size
        if size > part.source_bytes:
            job.log(
                f"The result has {size:,} bytes, more than the {round(part.source_bytes):,} of the source."
            )
        return Artifact(KINDS[kind].content_type, info=info, path=target)

    return convert


def _gif(job: _EncodeJob) -> Artifact:
    target = job.scratch / "video.gif"
    info = transcode.to_gif(job.part(), target, job.width, job.progress)
    return Artifact("image/gif", info=info, path=target)


def _thumbnail(job: _EncodeJob) -> Artifact:
    start = job.inputs.get("start")
    if demux.demuxer(job.path) not in ("", "gif"):
        rgb = transcode.still(job.part(), None if start is None else float(start), job.width, _STILL_WIDTH)
        alpha = None
    else:
        rgb, alpha = _image(job)
    data = encode.encode(rgb, alpha, format="jpeg", quality=_STILL_QUALITY)
    info = {"width": rgb.shape[1], "height": rgb.shape[0]}
    return Artifact("image/jpeg", data, info)


def _image(job: _EncodeJob) -> tuple[Any, Any]:
    """Return an image at the requested width, as RGB and alpha."""
    try:
        image = decode.decode(job.path)
    except UnreadableImage as error:
        raise UnusableInput("The file is not a readable video or image.") from error
    width = job.width or min(_STILL_WIDTH, image.width)
    size = (width, max(1, round(image.height * width / image.width)))
    interpolation = cv2.INTER_AREA if width < image.width else cv2.INTER_CUBIC
    rgb = cv2.resize(image.rgb, size, interpolation=interpolation)
    return rgb, None if image.alpha is None else cv2.resize(image.alpha, size, interpolation=interpolation)


def _waveform(job: _EncodeJob) -> Artifact:
    part = job.part()
    with demux.open_media(job.path) as container:
        pieces = files.pieces(container, part.begin, part.seconds)
        rgb = waveform.draw(pieces, round(part.seconds * files.RATE), job.width or _WAVE_WIDTH)
    job.progress(0.9)
    info = {"width": rgb.shape[1], "height": rgb.shape[0]}
    return Artifact("image/png", encode.encode(np.ascontiguousarray(rgb), format="png"), info)


_OPERATIONS: Mapping[str, Callable[[_EncodeJob], Artifact]] = {
    "audio-mp3": _audio,
    "gif": _gif,
    "thumbnail": _thumbnail,
    "transcode-mp4": _video("mp4"),
    "transcode-webm": _video("webm"),
    "waveform": _waveform,
}
