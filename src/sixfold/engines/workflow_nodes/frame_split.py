"""Decoding of videos into frames, and limits on the size of images and frame sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines import demux

MAX_SIDE = 16_384
_MAX_VALUES = 3 * 2**28  # the limit of one value: 3 GiB of floats
_MAX_FRAMES = 1200


def check_size(*sides: int) -> None:
    """Raise `UnusableInput` when an array of this shape would be too large."""
    if min(sides) < 1 or max(sides) > MAX_SIDE or int(np.prod(np.array(sides, np.int64))) > _MAX_VALUES:
        raise UnusableInput(
            f"An image must have at most {MAX_SIDE:,} pixels per side and {_MAX_VALUES:,} values in total."
        )


def decode_frames(path: Path) -> tuple[NDArray[Any], float]:
    """Return a video's frames as floats from 0 to 1, and their rate per second."""
    frames: list[NDArray[Any]] = []
    with demux.open_media(path) as container:
        if not container.streams.video:
            raise UnusableInput("The file has no video stream.")
        stream = container.streams.video[0]
        rate = float(stream.average_rate or stream.guessed_rate or 24)
        check_size(1, stream.width, stream.height, 3)
        for frame in container.decode(stream):
            frames.append(frame.to_ndarray(format="rgb24", threads=1))
            if len(frames) > _MAX_FRAMES:
                raise UnusableInput(f"The video must have at most {_MAX_FRAMES} frames to be decoded.")
    if not frames:
        raise UnusableInput("The video has no frames.")
    check_size(len(frames), *frames[0].shape)
    return np.stack(frames).astype(np.float32) / np.float32(255), rate
