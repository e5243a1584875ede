"""A film that somebody else made, as long and as large as it was ordered; what fits already is left alone."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from sixfold.core.catalog.engines import Canceled, Context, UnusableInput
from sixfold.engines.video import dimensions, encode
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import SOUND_RATE, AudioSource
from sixfold.engines.video.probe import ProbedVideo

_LONGER = 0.1  # seconds by which a film may outlast its order and still be left alone: sound ends in blocks
_SHORTER = 0.5  # and by which it may fall short: its last frame holds
_FROM, _TO = 0.93, 0.99  # of the progress


class VideoUnfit(Exception):
    """The film is broken, much too short, or without the sound that it should have."""


@dataclass(frozen=True, slots=True)
class ConformTarget:
    """`size` (width, height), or else the film's own shape at `resolution`; `sound` is kept or dropped."""

    resolution: str
    size: tuple[int, int] | None
    seconds: float
    sound: bool

    def size_of(self, made: ProbedVideo) -> tuple[int, int]:
        """The size that a film must have."""
        return self.size or dimensions.frame(self.resolution, made.width / made.height)


async def conform(path: Path, made: ProbedVideo, wanted: ConformTarget, context: Context) -> Path:
    """The film's file, or another beside it; raises `VideoUnfit`."""
    if made.seconds < wanted.seconds - _SHORTER:
        raise VideoUnfit("too short")
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_fitted, path, made, wanted, _FramePace(context, stop))
    except asyncio.CancelledError:
        stop.set()  # a thread cannot be canceled from outside
        raise
    except UnusableInput as error:
        raise VideoUnfit(str(error)) from error


@dataclass(frozen=True, slots=True)
class _FramePace:
    context: Context
    stop: threading.Event

    def at(self, fraction: float) -> None:
        if self.stop.is_set():
            raise Canceled
        self.context.progress(_FROM + (_TO - _FROM) * fraction)


def _fitted(path: Path, made: ProbedVideo, wanted: ConformTarget, pace: _FramePace) -> Path:
    size = wanted.size_of(made)
    with ExitStack() as stack:
        reel = stack.enter_context(closing(VideoReader(path)))
        try:
            voice = stack.enter_context(closing(AudioTrack(path)))
        except NoAudioTrack:
            voice = None
        if wanted.sound and voice is None:
            raise VideoUnfit("no sound")
        long_enough = 0 <= made.seconds - wanted.seconds < _LONGER
        fits = long_enough and made.content_type == "video/mp4" and size == (made.width, made.height)
        if fits and (voice is not None) == wanted.sound:
            return path
        sound = None
        if voice is not None and wanted.sound:
            kept = voice
            sound = AudioSource(
                round(wanted.seconds * SOUND_RATE), lambda first, last: kept.read(last - first)
            )
        target = path.with_name("fitted.mp4")
        count = max(1, round(wanted.seconds * reel.rate))
        film = stack.enter_context(encode.VideoEncoder(target, size, reel.rate, sound))
        for index in range(count):
            film.add(reel.pixels(reel.at(float(index / reel.rate)), size)[..., :3])
            pace.at((index + 1) / count)
    return target
