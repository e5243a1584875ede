"""Small WebP copies of images, for lists on pages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sixfold.engines.image import decode, decoder_process, headers

# Qualities that are tried in this order until the copy is small enough.
_QUALITIES = (80, 65, 50, 35, 20)
# The maximum size in bytes of a copy 480 pixels wide; the limit of wider copies grows with their area.
_MAX_BYTES, _WIDTH = 40_000, 480
# The memory in bytes for each pixel of the image; the conversion of 32-bit grays needs most.
_DECODED = 32


def render(path: Path, width: int) -> bytes:
    """Return an image as WebP of at most `width` pixels in width and twice that in height.

    Raises `UnusableInput` if it cannot be decoded. A large image is decoded in a separate process.
    """
    header = decoder_process.header(path)
    headers.check_pixels(header.width, header.height, header.buffer_pixels, headers.MAX_PIXELS)
    if not decoder_process.is_needed(path, is_reduced=True):
        return make(path, width)
    return decoder_process.call(f"{__name__}:make", header.buffer_pixels * _DECODED, str(path), width)


def make(path: Path | str, width: int) -> bytes:
    """Return the result of `render`, decoded in this process."""
    decoded = decode.decode(path, target=(width, 2 * width))
    pixels = decoded.rgb if decoded.alpha is None else np.dstack([decoded.rgb, decoded.alpha])
    image = Image.fromarray(pixels)
    image.thumbnail((width, 2 * width), Image.Resampling.LANCZOS)
    limit = _MAX_BYTES * max(1.0, (width / _WIDTH) ** 2)
    return encode(image, limit, _QUALITIES)


def encode(image: Image.Image, max_bytes: float, qualities: Sequence[int]) -> bytes:
    """Return an image as WebP of the first quality with at most `max_bytes`, or of the last quality."""
    data = b""
    for quality in qualities:
        content = io.BytesIO()
        image.save(content, "WEBP", quality=quality, method=4)
        data = content.getvalue()
        if len(data) <= max_bytes:
            break
    return data
