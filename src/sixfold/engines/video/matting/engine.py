"""Background removal from films without weights."""

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
from sixfold.engines.image import encode as pictures
from sixfold.engines.image.matting import edges
from sixfold.engines.video import encode, headers
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import SOUND_RATE, AudioSource, VideoEncoder
from sixfold.engines.video.matting.masks import MaskTracker

Array = NDArray[Any]

_FILMS = ("video_url", "video")
_KINDS = {"webm": encode.KINDS["webm-cover"], "mov": encode.KINDS["mov-cover"]}
_UNSURE = 0.85
_GUESSED_SECONDS = 60.0  # of a film that does not say how long it is, for its progress alone


class _Writer(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add(self, picture: Array) -> None:
        """The next frame, in RGBA."""
        ...


class VideoMattingEngine:
    """Cuts the subject of `video_url` (or `video`) out, frame by frame; the sound stays."""

    name = "film-matting"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """One film with a cover, or one picture for each of its frames."""
        source = next((task.files[name] for name in _FILMS if name in task.files), None)
        if source is None:
            raise EngineError("Background removal needs a film.")
        wanted = str(task.inputs.get("format", "webm"))
        target = context.scratch / "film"
        masks = self.masks()
        with closing(VideoReader(source)) as reel:
            frames, size = _cut(reel, masks, _MattingJob(source, target, wanted), context)
            rate = reel.rate
        if masks.confidence < _UNSURE:
            context.log(f"the subject is hard to tell from its ground (confidence {masks.confidence:.2f})")
        content_type = _KINDS[wanted].content_type if wanted in _KINDS else "application/zip"
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(float(frames / rate), 3),
            "fps": int(rate) if rate.denominator == 1 else round(float(rate), 3),
        }
        data = {"confidence": round(masks.confidence, 3)}
        return Result((Artifact(content_type, b"", info, target),), data)

    def masks(self) -> FrameMasks:
        """The masks of one film."""
        return MaskTracker()


class FrameMasks(Protocol):
    """Gives the alpha of frames that come in order."""

    ahead: int  # frames that it likes to see before they are asked for

    @property
    def confidence(self) -> float: ...

    def see(self, rgb: Array) -> None: ...

    def alpha(self, rgb: Array) -> Array: ...


class _MattingJob:
    def __init__(self, source: Path, target: Path, wanted: str) -> None:
        self.source = source
        self.target = target
        self.wanted = wanted
        self.seconds = headers.seconds(source) or _GUESSED_SECONDS


def _cut(
    reel: VideoReader, masks: FrameMasks, job: _MattingJob, context: Context
) -> tuple[int, tuple[int, int]]:
    """Every frame cut out and written; gives how many there are, and their size."""
    size = reel.size(reel.at(0.0))
    number = 0
    with ExitStack() as stack:
        film = stack.enter_context(_writer(reel, job, size, stack))
        for pixels in _seen_ahead(reel, size, masks):
            rgb = np.ascontiguousarray(pixels[..., :3])
            alpha = masks.alpha(rgb)
            cover = np.rint(alpha * 255).astype(np.uint8)
            if pixels.shape[2] == 4:
                cover = np.minimum(cover, pixels[..., 3])
            clean = edges.decontaminate(rgb, alpha)
            clean[cover == 0] = 0  # what was removed is not in the file any more
            film.add(np.dstack([clean, cover]))
            number += 1
            context.progress(min(0.99, float(number / reel.rate) / job.seconds))
    return number, size


def _seen_ahead(reel: VideoReader, size: tuple[int, int], masks: FrameMasks) -> Iterator[Array]:
    """Each frame, when `masks` has seen as many after it as it likes."""
    waiting: deque[Array] = deque()
    number = 0
    while not reel.over(float(number / reel.rate)):
        waiting.append(reel.pixels(reel.at(float(number / reel.rate)), size))
        masks.see(np.ascontiguousarray(waiting[-1][..., :3]))
        number += 1
        if len(waiting) > masks.ahead:
            yield waiting.popleft()
    yield from waiting


def _writer(reel: VideoReader, job: _MattingJob, size: tuple[int, int], stack: ExitStack) -> _Writer:
    if job.wanted not in _KINDS:
        return _FrameReader(job.target)
    try:
        voice = stack.enter_context(closing(AudioTrack(job.source)))
    except NoAudioTrack:
        return VideoEncoder(job.target, size, reel.rate, None, _KINDS[job.wanted])
    sound = AudioSource(round(job.seconds * SOUND_RATE), lambda first, last: voice.read(last - first))
    return VideoEncoder(job.target, size, reel.rate, sound, _KINDS[job.wanted])


class _FrameReader:
    """A zip of PNGs, `00000.png` and on; they are as small as they can be already."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._frames = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def add(self, picture: Array) -> None:
        """The next frame, in RGBA."""
        data = pictures.encode(picture[..., :3], picture[..., 3], format="png")
        self._zip.writestr(zipfile.ZipInfo(f"{self._frames:05}.png"), data)  # with no time of its own
        self._frames += 1
