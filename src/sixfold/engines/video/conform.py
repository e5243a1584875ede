"""Conversion of a provider's video to the requested size, length and audio; matching videos are unchanged."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from sixfold.core.catalog.engines import Canceled, Context, UnusableInput
from sixfold.engines.video import dimensions, encode
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import AUDIO_RATE, AudioSource
from sixfold.engines.video.probe import ProbedVideo

# Seconds by which an unchanged video may exceed the requested length, because audio ends at a block boundary.
_MAX_EXCESS = 0.1
# Seconds by which a video may be too short; the last frame is repeated.
_MAX_SHORTFALL = 0.5
# The range of the task's progress that conforming covers.
_FROM, _TO = 0.93, 0.99


class VideoUnfit(Exception):
    """Raised if a video is damaged, is too short or lacks the requested audio."""


class ConformTarget(msgspec.Struct, frozen=True):
    """The requested properties of a video.

    `size` is (width, height), or None for the shape of the video at `resolution`. Audio is required if
    `sound` is true, and removed otherwise.
    """

    resolution: str
    size: tuple[int, int] | None
    seconds: float
    sound: bool

    def size_of(self, video: ProbedVideo) -> tuple[int, int]:
        """Return the (width, height) to which a video must be converted."""
        return self.size or dimensions.frame(self.resolution, video.width / video.height)


async def conform(path: Path, video: ProbedVideo, target: ConformTarget, context: Context) -> Path:
    """Return `path` if the video matches the target, else the path of a converted file beside it.

    Raises `VideoUnfit`.
    """
    if video.seconds < target.seconds - _MAX_SHORTFALL:
        raise VideoUnfit(f"the video has {video.seconds:.1f} of the requested {target.seconds:.1f} seconds")
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_convert, path, video, target, _Progress(context, stop))
    except asyncio.CancelledError:
        # A thread cannot be canceled from outside.
        stop.set()
        raise
    except UnusableInput as error:
        raise VideoUnfit(str(error)) from error


class _Progress(msgspec.Struct, frozen=True):
    context: Context
    stop: threading.Event

    def report(self, fraction: float) -> None:
        if self.stop.is_set():
            raise Canceled
        self.context.progress(_FROM + (_TO - _FROM) * fraction)


def _convert(path: Path, video: ProbedVideo, target: ConformTarget, progress: _Progress) -> Path:
    size = target.size_of(video)
    with ExitStack() as stack:
        reader = stack.enter_context(closing(VideoReader(path)))
        try:
            track = stack.enter_context(closing(AudioTrack(path)))
        except NoAudioTrack:
            track = None
        if target.sound and track is None:
            raise VideoUnfit("the video has no audio track")
        long_enough = 0 <= video.seconds - target.seconds < _MAX_EXCESS
        fits = long_enough and video.content_type == "video/mp4" and size == (video.width, video.height)
        if fits and (track is not None) == target.sound:
            return path
        audio = None
        if track is not None and target.sound:
            source = track
            audio = AudioSource(
                round(target.seconds * AUDIO_RATE), lambda first, last: source.read(last - first)
            )
        output = path.with_name("conformed.mp4")
        count = max(1, round(target.seconds * reader.rate))
        encoder = stack.enter_context(encode.VideoEncoder(output, size, reader.rate, audio))
        for index in range(count):
            encoder.add(reader.pixels(reader.at(float(index / reader.rate)), size)[..., :3])
            progress.report((index + 1) / count)
    return output
