"""Animated WebP and PNG images, in which every frame has its own time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image

from sixfold.core.provenance.formats import riff

_WEBP = b"WEBP"
_FRAME = b"ANMF"
_HAS_ALPHA = 0x10
# The offset of a frame's duration in its chunk, behind its position and size. The duration has 3 bytes.
_DURATION = 12


def encode(series: np.ndarray, fps: float, format_: str, options: Mapping[str, Any]) -> bytes:
    """Encode frames of 8-bit values in a format of Pillow."""
    ends = [round(index * 1000 / fps) for index in range(len(series) + 1)]
    durations = [end - begin for begin, end in pairwise(ends)]
    images = [Image.fromarray(frame) for frame in series]
    out = io.BytesIO()
    images[0].save(
        out,
        format=format_,
        save_all=True,
        append_images=images[1:],
        duration=durations if len(images) > 1 else durations[0],
        loop=0,
        **options,
    )
    data = out.getvalue()
    return _with_all_frames(data, durations) if format_ == "WEBP" else data


def _with_all_frames(data: bytes, durations: Sequence[int]) -> bytes:
    """Return a WebP animation with one frame for each duration.

    The encoder does not store a frame that looks like the one before; it extends the duration of that one.
    Such a frame becomes one transparent pixel over the frame before.
    """
    chunks = list(riff.chunks(data, _WEBP))
    if sum(chunk.kind == _FRAME for chunk in chunks) in (0, len(durations)):
        return data
    parts = [_WEBP]
    left = iter(durations)
    for chunk in chunks:
        body = data[chunk.body : chunk.body + chunk.size]
        if chunk.kind == b"VP8X":
            body = bytes([body[0] | _HAS_ALPHA]) + body[1:]
        if chunk.kind == _FRAME:
            parts += _frames(body, left)
        else:
            parts.append(riff.chunk(chunk.kind, body))
    content = b"".join(parts)
    return b"RIFF" + len(content).to_bytes(4, "little") + content


def _frames(body: bytes, durations: Iterator[int]) -> Iterator[bytes]:
    remaining = int.from_bytes(body[_DURATION : _DURATION + 3], "little")
    frame = body[:_DURATION], body[_DURATION + 3 :]
    while remaining > 0:
        duration = next(durations, remaining)
        remaining -= duration
        yield riff.chunk(_FRAME, duration.to_bytes(3, "little").join(frame))
        frame = bytes(_DURATION), b"\0" + _transparent_pixel()


@cache
def _transparent_pixel() -> bytes:
    out = io.BytesIO()
    Image.new("RGBA", (1, 1)).save(out, format="WEBP", lossless=True, exact=True)
    data = out.getvalue()
    return next(data[chunk.start : chunk.end] for chunk in riff.chunks(data, _WEBP) if chunk.kind == b"VP8L")
