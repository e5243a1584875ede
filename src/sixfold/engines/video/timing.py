"""Encoding of a model's frames at the frame rate and length that a task requests."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sixfold.engines.audio.ambience import track
from sixfold.engines.video import encode, source_image
from sixfold.engines.video.interpolate import FrameInterpolator
from sixfold.engines.video.task_parser import VideoTask

Array = NDArray[Any]

# Positions between two source frames are rounded to fractions with denominators up to this.
_MAX_DENOMINATOR = 12


def write_video(
    frames: Iterator[Array],
    rate: Fraction,
    request: VideoTask,
    size: tuple[int, int],
    target: Path,
) -> None:
    """Write the requested video of `size` from frames at `rate`.

    Output frames between two source frames are interpolated. If the task requests sound, it is synthesized to
    match the prompt.
    """
    wave = track.render(request.prompt, request.seconds, request.seed) if request.sound else None
    audio = None if wave is None else encode.AudioSource.of(wave)
    with encode.VideoEncoder(target, size, request.output_rate, audio) as video:
        pairs = _FramePairs(frames)
        for index in range(request.output_frames):
            position = index / request.output_rate * rate
            video.add(source_image.crop_to_fill(pairs.at(position), size))


class _FramePairs:
    """Interpolates frames at increasing positions, with two source frames in memory."""

    def __init__(self, frames: Iterator[Array]) -> None:
        self._frames = frames
        self._before = self._after = next(frames)
        # The index of `_before`.
        self._first = 0
        self._interpolator = FrameInterpolator()

    def at(self, position: Fraction) -> Array:
        """Return the frame at a fractional index; past the end, the last frame is repeated."""
        if self._after is self._before:
            self._after = next(self._frames, self._before)
        while position >= self._first + 1:
            self._before, self._first = self._after, self._first + 1
            self._after = next(self._frames, self._before)
        share = (position - self._first).limit_denominator(_MAX_DENOMINATOR)
        if share == 1:
            return self._after
        if share == 0 or self._after is self._before:
            return self._before
        between = self._interpolator.frames(self._before, self._after, share.denominator - 1)
        return next(islice(between, share.numerator - 1, None))
