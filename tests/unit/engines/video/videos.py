"""Helpers that render small videos and decode them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import Artifact, Canceled, Task
from sixfold.engines.video.engine import CameraEngine

Array = NDArray[Any]
# The bindings accept None for an optional array, which their types do not state.
NOTHING: Any = None


@dataclass
class Recorder:
    """A context that records progress and can cancel at a fraction."""

    scratch: Path
    cancel_at: float = 2.0
    fractions: list[float] = field(default_factory=list)

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction >= self.cancel_at:
            raise Canceled

    def log(self, line: str) -> None:
        """Discard the line."""


@dataclass(frozen=True)
class DecodedVideo:
    """The decoded properties of a video."""

    frames: list[Array]
    rate: Fraction
    size: tuple[int, int]
    pixels: str
    seconds: float
    # Sample rate, channels and seconds.
    sound: tuple[int, int, float] | None
    color_count: int


def write_image(path: Path, size: tuple[int, int] = (900, 600)) -> Path:
    """Write an image with texture everywhere and no black, so that optical flow works and borders show."""
    rng = np.random.default_rng(5)
    width, height = size
    board = np.zeros((height, width, 3), np.float32)
    for cells in (7, 19, 61):
        coarse = rng.random((cells, cells, 3)).astype(np.float32)
        board += cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    low, high = board.min(), board.max()
    Image.fromarray((90 + 150 * (board - low) / (high - low)).astype(np.uint8)).save(path)
    return path


def render(folder: Path, source: Path | None = None, **inputs: Any) -> tuple[Artifact, dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    usual = {"prompt": "", "seed": 7, "num_frames": 9, "frames_per_second": 16, "resolution": "480p"}
    files = {} if source is None else {"image_url": source}
    result = CameraEngine().run(Task("t", "video-a", {**usual, **inputs}, files), Recorder(folder))
    return result.artifacts[0], dict(result.data)


def decode(path: Path) -> DecodedVideo:
    with av.open(str(path)) as container:
        video = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video)]
        facts = (
            video.average_rate,
            (video.width, video.height),
            video.pix_fmt,
            int(video.codec_context.colorspace),
        )
    sound = None
    with av.open(str(path)) as container:
        if container.streams.audio:
            voice = container.streams.audio[0]
            samples = sum(frame.samples for frame in container.decode(voice))
            sound = (voice.rate, voice.channels, samples / voice.rate)
    rate = Fraction(facts[0] or 0)
    return DecodedVideo(frames, rate, facts[1], str(facts[2]), float(len(frames) / rate), sound, facts[3])


def flow(first: Array, last: Array) -> tuple[float, float]:
    """Return the motion of the image's center between two frames, in shares of its size (right, down)."""
    gray = [cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (320, 240)) for frame in (first, last)]
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    result = dis.calc(gray[0], gray[1], NOTHING)[60:-60, 80:-80]
    return float(np.median(result[..., 0])) / 320, float(np.median(result[..., 1])) / 240


def growth(first: Array, last: Array) -> float:
    """Return the growth of the image between two frames, above 0 for an approach."""
    gray = [cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (320, 240)) for frame in (first, last)]
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    result = dis.calc(gray[0], gray[1], NOTHING)
    x = np.linspace(-1, 1, 320, dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, 240, dtype=np.float32)[:, None]
    return float((result[..., 0] * x + result[..., 1] * y).mean())
