"""Animated images keep every frame, also those that look like the frame before."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.engines.workflow_nodes import animations


def scene(count: int, changes: tuple[int, ...]) -> np.ndarray:
    """Frames of a gradient, which is inverted at each of the changes."""
    first = np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (48, 64, 3))
    frames = [first]
    for at in range(1, count):
        frames.append(255 - frames[-1] if at in changes else frames[-1])
    return np.stack(frames)


@pytest.mark.parametrize(("format_", "lossless"), [("WEBP", True), ("WEBP", False), ("PNG", None)])
def test_frames_last_as_long_as_the_rate_says(format_: str, lossless: bool | None) -> None:
    series = scene(9, (1, 2, 3, 4, 5, 6, 7, 8))
    options = {} if lossless is None else {"lossless": lossless}
    image: Any = Image.open(io.BytesIO(animations.encode(series, 24, format_, options)))
    durations: list[int] = []
    for at in range(image.n_frames):
        image.seek(at)
        image.load()
        durations.append(round(image.info["duration"]))
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - series[at]).mean() < 4
    assert (len(durations), sum(durations)) == (9, 375)  # 9 frames at 24 per second


@pytest.mark.parametrize("lossless", [True, False])
def test_webp_stores_frames_without_a_change(lossless: bool) -> None:
    series = scene(9, (4, 8))
    data = animations.encode(series, 24, "WEBP", {"lossless": lossless})
    image: Any = Image.open(io.BytesIO(data))
    assert image.n_frames == 9
    durations: list[int] = []
    for at in range(9):
        image.seek(at)
        image.load()
        durations.append(image.info["duration"])
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - series[at]).mean() < 4
    assert durations == [42, 41, 42, 42, 41, 42, 42, 41, 42]
