"""Fitting of a provider's videos to the requested size, length and rate, in another process.

The index and the codec of a video can take any amount of memory, and its frames any amount of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, EngineError, UnusableInput
from sixfold.engines.limited_process import LimitedProcesses
from sixfold.engines.video import conform, dimensions, probe, timing
from sixfold.engines.video.conform import ConformTarget
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.probe import ProbedVideo
from sixfold.engines.video.task_parser import VideoTask

# A video with this fraction of the requested frames is accepted; its last frame is held for the rest.
_ENOUGH = 0.8
# Address space of the interpreter with its libraries, and of the frames of a decoder and an encoder.
_MEMORY_BYTES, _SECONDS = 4 * 2**30, 1_800
_PROCESSES = LimitedProcesses(2)
_UNREADABLE = "The video cannot be read."


class VideoFit(msgspec.Struct, frozen=True):
    """The changes of a provider's video, which is unchanged without `target` and `task`.

    It is cut and scaled to `target`, or retimed for `task` from files of `rate` (0 for the task's rate), in
    the shape of the first file unless the task has a `size`.
    """

    target: ConformTarget | None = None
    task: VideoTask | None = None
    rate: int = 0


async def fit_video(paths: Sequence[Path], fit: VideoFit, title: str) -> Artifact:
    """Return the video of one or several files that follow each other; raises `EngineError`."""
    arguments = (msgspec.json.encode(fit, enc_hook=str).decode(), *map(str, paths))
    target = f"{__name__}:fit_here"
    try:
        path, properties = await _PROCESSES.call(target, _MEMORY_BYTES, _SECONDS, _UNREADABLE, *arguments)
    except UnusableInput as error:
        raise EngineError(f"{title} returned a video that cannot be read: try again.") from error
    video = msgspec.convert(properties, ProbedVideo)
    return Artifact(video.content_type, b"", video.info(), Path(path))


def fit_here(encoded_fit: str, *names: str) -> tuple[str, dict[str, Any]]:
    """Fit a video in this process; return its path and properties. Raises `UnusableInput`.

    The arguments are a `VideoFit` as JSON and the paths of the files.
    """
    fit = msgspec.json.decode(encoded_fit, type=VideoFit, dec_hook=lambda kind, value: kind(value))
    paths = tuple(map(Path, names))
    try:
        video, path = probe.read(paths[0]), paths[0]
        if fit.task is not None:
            path = _retime(paths, fit.task, video, Fraction(fit.rate) or fit.task.rate)
        elif fit.target is not None:
            path = conform.conform(path, video, fit.target)
        return str(path), msgspec.to_builtins(probe.read(path))
    except probe.NotAVideo as error:
        raise UnusableInput(str(error)) from error


def _retime(paths: tuple[Path, ...], task: VideoTask, first: ProbedVideo, rate: Fraction) -> Path:
    """Write one video from the frames of several.

    Each file after the first begins with the last frame of the previous file.
    """
    shape = dimensions.aspect_ratio(task.aspect, (first.width, first.height))
    size = task.size or dimensions.frame(task.resolution, shape)
    target, frames = paths[0].with_name("counted.mp4"), _ChainedFrames(paths)
    timing.write_video(iter(frames), rate, task, size, target)
    if frames.count < _ENOUGH * float(task.seconds * rate):
        raise UnusableInput("The video is too short")
    return target


class _ChainedFrames:
    """The RGB frames of several files in sequence; `count` is the number read so far."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self.count = 0

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return chain.from_iterable(self._frames(path, bool(index)) for index, path in enumerate(self._paths))

    def _frames(self, path: Path, skip_first: bool) -> Iterator[NDArray[Any]]:
        with closing(VideoReader(path)) as reader:
            for number, frame in enumerate(reader.each()):
                if number or not skip_first:
                    self.count += 1
                    yield reader.pixels(frame, reader.size(frame))[..., :3]
