"""Parsing of the inputs of a video task."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from sixfold.engines.image.scene.finishing import AS_IT_IS, RenderQuality

_RATE = 24
_SECONDS = 5.0
_INTERPOLATORS = ("film", "rife")


class VideoTask(msgspec.Struct, frozen=True):
    """The parsed inputs of a video task.

    `size` (width, height) is exact, or None to derive it from `resolution` and `aspect`. `between` frames are
    interpolated between every two of `frames`, and the rate rises accordingly. With `reuse_frames`, a frame
    may be derived from the previous frame.
    """

    prompt: str
    negative: str
    seed: int
    frames: int
    rate: Fraction
    between: int
    resolution: str
    size: tuple[int, int] | None
    aspect: str
    sound: bool
    effort: RenderQuality = AS_IT_IS
    reuse_frames: bool = False

    @property
    def output_frames(self) -> int:
        """The number of frames of the finished video."""
        return (self.frames - 1) * (self.between + 1) + 1 if self.between else self.frames

    @property
    def output_rate(self) -> Fraction:
        """The frames per second of the finished video."""
        return self.rate * (self.between + 1)

    @property
    def seconds(self) -> float:
        """The duration of the finished video in seconds."""
        return float(self.output_frames / self.output_rate)


def parse(inputs: Mapping[str, Any]) -> VideoTask:
    """Parse validated inputs; the length is in frames (`num_frames`) or in seconds (`duration`)."""
    rate = Fraction(int(inputs.get("frames_per_second") or _RATE))
    count = inputs.get("num_frames")
    frames = int(count) if count else round(float(inputs.get("duration") or _SECONDS) * rate)
    interpolated = inputs.get("interpolator_model") in _INTERPOLATORS
    return VideoTask(
        prompt=str(inputs.get("prompt") or "").strip(),
        negative=str(inputs.get("negative_prompt") or "").strip(),
        seed=int(inputs.get("seed") or 0),
        frames=max(2, frames),
        rate=rate,
        between=int(inputs.get("num_interpolated_frames") or 0) if interpolated else 0,
        resolution=str(inputs.get("resolution") or "720p"),
        size=_size(inputs),
        aspect=str(inputs.get("aspect_ratio") or "auto"),
        sound=bool(inputs.get("sound")),
        effort=RenderQuality.of(inputs),
        reuse_frames=bool(inputs.get("cache_accel")),
    )


def _size(inputs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the width and height, rounded down to even numbers, or None if either is absent."""
    width, height = inputs.get("width"), inputs.get("height")
    return None if width is None or height is None else (int(width) & ~1, int(height) & ~1)
