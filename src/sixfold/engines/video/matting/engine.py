"""Engine for background removal from videos without weights."""

from __future__ import annotations

import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import encode as image_encode
from sixfold.engines.image.matting import edges
from sixfold.engines.video import encode, headers
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import AUDIO_RATE, AudioSource, VideoEncoder
from sixfold.engines.video.matting.masks import MaskTracker

Array = NDArray[Any]

_VIDEO_INPUTS = ("video_url", "video")
_KINDS = {"webm": encode.KINDS["webm-cover"], "mov": encode.KINDS["mov-cover"]}
_UNSURE = 0.85
# The duration on which progress is based for a video that declares none.
_DEFAULT_SECONDS = 60.0


class _Writer(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add(self, pixels: Array) -> None: ...


class VideoMattingEngine:
    """Removes the background of `video_url` (or `video`) and preserves the audio."""

    name = "film-matting"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """Return a video with an alpha channel, or a zip of PNG frames."""
        source = next((task.files[name] for name in _VIDEO_INPUTS if name in task.files), None)
        if source is None:
            raise EngineError("`video_url` is required.")
        output_format = str(task.inputs.get("format", "webm"))
        target = context.scratch / "video"
        masks = self.masks()
        with closing(VideoReader(source)) as reader:
            frames, size = _cut_out(reader, masks, _MattingJob(source, target, output_format), context)
            rate = reader.rate
        if masks.confidence < _UNSURE:
            context.log(f"subject and background are hard to separate (confidence {masks.confidence:.2f})")
        content_type = _KINDS[output_format].content_type if output_format in _KINDS else "application/zip"
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(float(frames / rate), 3),
            "fps": int(rate) if rate.denominator == 1 else round(float(rate), 3),
        }
        data = {"confidence": round(masks.confidence, 3)}
        return Result((Artifact(content_type, b"", info, target),), data)

    def masks(self) -> FrameMasks:
        return MaskTracker()


class FrameMasks(Protocol):
    """Computes alpha masks for frames in order; up to `ahead` later frames are passed to `preview` first."""

    ahead: int

    @property
    def confidence(self) -> float: ...

    def preview(self, rgb: Array) -> None: ...

    def alpha(self, rgb: Array) -> Array: ...


class _MattingJob:
    def __init__(self, source: Path, target: Path, output_format: str) -> None:
        self.source = source
        self.target = target
        self.output_format = output_format
        self.seconds = headers.seconds(source) or _DEFAULT_SECONDS


def _cut_out(
    reader: VideoReader, masks: FrameMasks, job: _MattingJob, context: Context
) -> tuple[int, tuple[int, int]]:
    """Write every frame without its background; return the number of frames and their width and height."""
    size = reader.size(reader.at(0.0))
    number = 0
    with ExitStack() as stack:
        writer = stack.enter_context(_writer(reader, job, size, stack))
        for pixels in _previewed_frames(reader, size, masks):
            rgb = np.ascontiguousarray(pixels[..., :3])
            mask = masks.alpha(rgb)
            alpha = np.rint(mask * 255).astype(np.uint8)
            if pixels.shape[2] == 4:
                alpha = np.minimum(alpha, pixels[..., 3])
            clean = edges.decontaminate(rgb, mask)
            # The file must not contain the removed background.
            clean[alpha == 0] = 0
            writer.add(np.dstack([clean, alpha]))
            number += 1
            context.progress(min(0.99, float(number / reader.rate) / job.seconds))
    return number, size


def _previewed_frames(reader: VideoReader, size: tuple[int, int], masks: FrameMasks) -> Iterator[Array]:
    """Yield each frame after calling `masks.preview` for the frames that follow it."""
    pending: deque[Array] = deque()
    number = 0
    while not reader.ends_before(float(number / reader.rate)):
        pending.append(reader.pixels(reader.at(float(number / reader.rate)), size))
        masks.preview(np.ascontiguousarray(pending[-1][..., :3]))
        number += 1
        if len(pending) > masks.ahead:
            yield pending.popleft()
    yield from pending


def _writer(reader: VideoReader, job: _MattingJob, size: tuple[int, int], stack: ExitStack) -> _Writer:
    if job.output_format not in _KINDS:
        return _FrameZip(job.target)
    try:
        track = stack.enter_context(closing(AudioTrack(job.source)))
    except NoAudioTrack:
        return VideoEncoder(job.target, size, reader.rate, None, _KINDS[job.output_format])
    audio = AudioSource(round(job.seconds * AUDIO_RATE), lambda first, last: track.read(last - first))
    return VideoEncoder(job.target, size, reader.rate, audio, _KINDS[job.output_format])


class _FrameZip:
    """Writer of a zip of PNGs named from `00000.png` on, stored without further compression."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._frames = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def add(self, pixels: Array) -> None:
        data = image_encode.encode(pixels[..., :3], pixels[..., 3], format="png")
        # ZipInfo has a constant date, so that equal frames give equal bytes.
        self._zip.writestr(zipfile.ZipInfo(f"{self._frames:05}.png"), data)
        self._frames += 1
