"""Frames that a model made, shown at the moments that an order asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

_PARTS = 12  # of the time between two frames that were made, at most


def write_video(
    made: Iterator[Array],
    rate: Fraction,
    order: VideoTask,
    size: tuple[int, int],
    target: Path,
    step: Callable[[float], None] = lambda _share: None,
) -> None:
    """An order's film of `size` out of frames that were made at `rate`; `step` hears how far it is.

    Every frame stands at its moment, between two that were made where it falls there; sound is synthesised
    to fit the prompt where the order has any.
    """
    wave = track.made(order.prompt, order.seconds, order.seed) if order.sound else None
    heard = None if wave is None else encode.AudioSource.of(wave)
    with encode.VideoEncoder(target, size, order.shown_rate, heard) as film:
        pairs = _Pairs(made)
        for index in range(order.all_frames):
            place = index / order.shown_rate * rate
            film.add(source_image.covering(pairs.at(place), size))
            step((index + 1) / order.all_frames)


class _Pairs:
    """Looks at frames by a place that only grows; two of them are held."""

    def __init__(self, made: Iterator[Array]) -> None:
        self._made = made
        self._before = self._after = next(made)
        self._first = 0  # the number of `_before`
        self._flow = FrameInterpolator()

    def at(self, place: Fraction) -> Array:
        """The frame at a place between two numbers; the last one holds."""
        if self._after is self._before:
            self._after = next(self._made, self._before)
        while place >= self._first + 1:
            self._before, self._first = self._after, self._first + 1
            self._after = next(self._made, self._before)
        share = (place - self._first).limit_denominator(_PARTS)
        if share == 1:
            return self._after
        if share == 0 or self._after is self._before:
            return self._before
        between = self._flow.frames(self._before, self._after, share.denominator - 1)
        return next(islice(between, share.numerator - 1, None))
