"""Waveforms of audio files as square WebP images with a transparent background, for lists on pages.

They are created in a separate process with limits on memory and time, because a provider may have returned
the file.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sixfold import process_resources
from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio import files
from sixfold.engines.image import decoder_process

# The waveform of longer audio shows this many seconds of it.
_MAX_SECONDS = 600.0
_BARS = 36
# Samples of one peak, which are 21 ms.
_BLOCK = 1024
# Readable on the light and the dark background of the pages.
_COLOR = (94, 158, 79, 255)
# The image is drawn at this multiple of its size and reduced.
_OVERSAMPLING = 2
# The shares of the width that a bar takes of its column, and of the height that the loudest bar takes.
_BAR_SHARE, _HEIGHT_SHARE = 0.55, 0.72
_MEMORY_BYTES = 2**30


def render(path: str, width: int) -> bytes:
    """Return the waveform of an audio file, `width` pixels wide and high; raises `UnusableInput`."""
    return decoder_process.call("sixfold.engines.thumbnails.audio:make", _MEMORY_BYTES, path, width)


def make(path: str, width: int) -> bytes:
    """Return the result of `render`; limits the memory of this process."""
    process_resources.limit_data(_MEMORY_BYTES)
    with demux.open_media(Path(path)) as container:
        parts = [_peaks(piece) for piece in files.pieces(container, 0.0, _MAX_SECONDS)]
    if not parts:
        raise UnusableInput("The audio is empty.")
    content = BytesIO()
    _draw(_levels(np.concatenate(parts)), width).save(content, "WEBP", quality=80, method=4)
    return content.getvalue()


def _peaks(piece: NDArray[Any]) -> NDArray[Any]:
    """Return the peak of each block of a signal; the last block may be shorter."""
    levels = np.abs(piece).max(0)
    return np.maximum.reduceat(levels, np.arange(0, levels.size, _BLOCK))


def _levels(peaks: NDArray[Any]) -> NDArray[Any]:
    """Return the level of each bar from 0 to 1, relative to the loudest one."""
    edges = np.arange(_BARS) * peaks.size // _BARS
    levels = np.maximum.reduceat(peaks, edges)
    return levels / max(float(levels.max()), 1e-9)


def _draw(levels: NDArray[Any], width: int) -> Image.Image:
    side = width * _OVERSAMPLING
    image = Image.new("RGBA", (side, side), (*_COLOR[:3], 0))
    canvas = ImageDraw.Draw(image)
    pitch = side / (_BARS + 2)
    half_bar = pitch * _BAR_SHARE / 2
    for index, level in enumerate(levels):
        x = (index + 1.5) * pitch
        half = max(half_bar, float(level) * side * _HEIGHT_SHARE / 2)
        box = (x - half_bar, side / 2 - half, x + half_bar, side / 2 + half)
        canvas.rounded_rectangle(box, radius=half_bar, fill=_COLOR)
    return image.resize((width, width), Image.Resampling.LANCZOS)
