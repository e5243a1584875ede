"""What a task asks of a film: its size, its frames, its rate, and what may be in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sixfold.engines.image.scene.finishing import AS_IT_IS, RenderQuality

_RATE = 24
_SECONDS = 5.0
_INTERPOLATORS = ("film", "rife")


@dataclass(frozen=True, slots=True)
class VideoTask:
    """One film, of exactly `size` (width, height) where that is said.

    `between` frames are put between each two of `frames`; the rate rises with them. `sparing`: what was
    computed for one frame may serve the next.
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
    sparing: bool = False

    @property
    def all_frames(self) -> int:
        """Frames of the finished film."""
        return (self.frames - 1) * (self.between + 1) + 1 if self.between else self.frames

    @property
    def shown_rate(self) -> Fraction:
        """Frames a second of the finished film."""
        return self.rate * (self.between + 1)

    @property
    def seconds(self) -> float:
        """How long the finished film lasts."""
        return float(self.all_frames / self.shown_rate)


def read(inputs: Mapping[str, Any]) -> VideoTask:
    """The order in checked inputs: frames by number (`num_frames`) or by time (`duration`)."""
    rate = Fraction(int(inputs.get("frames_per_second") or _RATE))
    given = inputs.get("num_frames")
    frames = int(given) if given else round(float(inputs.get("duration") or _SECONDS) * rate)
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
        sparing=bool(inputs.get("cache_accel")),
    )


def _size(inputs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Width and height, even, where both are given."""
    width, height = inputs.get("width"), inputs.get("height")
    return None if width is None or height is None else (int(width) & ~1, int(height) & ~1)
