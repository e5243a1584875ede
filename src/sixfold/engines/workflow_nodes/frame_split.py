"""Films taken apart, and the most that one value may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines import demux

MAX_SIDE = 16_384
_MAX_VALUES = 3 * 2**28  # of one value: 3 GiB of floats
_MOST_FRAMES = 1200


def room(*sides: int) -> None:
    """Refuse what would not fit."""
    if min(sides) < 1 or max(sides) > MAX_SIDE or int(np.prod(np.array(sides, np.int64))) > _MAX_VALUES:
        raise UnusableInput("the picture would be too large")


def taken_apart(path: Path) -> tuple[NDArray[Any], float]:
    """A film's pictures as floats, and their rate."""
    series: list[NDArray[Any]] = []
    with demux.open_media(path) as container:
        if not container.streams.video:
            raise UnusableInput("there is no picture in this film")
        stream = container.streams.video[0]
        rate = float(stream.average_rate or stream.guessed_rate or 24)
        room(1, stream.width, stream.height, 3)
        for frame in container.decode(stream):
            series.append(frame.to_ndarray(format="rgb24", threads=1))
            if len(series) > _MOST_FRAMES:
                raise UnusableInput(f"a film of at most {_MOST_FRAMES} frames can be taken apart")
    if not series:
        raise UnusableInput("there is no picture in this film")
    room(len(series), *series[0].shape)
    return np.stack(series).astype(np.float32) / np.float32(255), rate
