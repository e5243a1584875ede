"""Conversion of a provider's video to the requested size, length and audio; matching videos are unchanged."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.video import dimensions, encode
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import AUDIO_RATE, AudioSource
from sixfold.engines.video.probe import ProbedVideo

# Seconds by which an unchanged video may exceed the requested length, because audio ends at a block boundary.
_MAX_EXCESS = 0.1
# Seconds by which a video may be too short; the last frame is repeated.
_MAX_SHORTFALL = 0.5


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


def conform(path: Path, video: ProbedVideo, target: ConformTarget) -> Path:
    """Return `path` if the video matches the target, else the path of a converted file beside it.

    Raises `UnusableInput` if the video is damaged, is too short or lacks the requested audio.
    """
    if video.seconds < target.seconds - _MAX_SHORTFALL:
        raise UnusableInput(
            f"the video has {video.seconds:.1f} of the requested {target.seconds:.1f} seconds"
        )
    size = target.size_of(video)
    with ExitStack() as stack:
        reader = stack.enter_context(closing(VideoReader(path)))
        try:
            track = stack.enter_context(closing(AudioTrack(path)))
        except NoAudioTrack:
            track = None
        if target.sound and track is None:
            raise UnusableInput("the video has no audio track")
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
    return output
