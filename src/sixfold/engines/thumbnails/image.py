"""Small WebP copies of images, for lists on pages."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from sixfold.engines.image import decode

# Qualities that are tried in this order until the copy is small enough.
_QUALITIES = (80, 65, 50, 35, 20)
# Bytes of a copy of 480 pixels; wider ones may have more, by their area.
_MAX_BYTES, _WIDTH = 40_000, 480


def make(path: Path, width: int) -> bytes:
    """Return an image as WebP of at most `width` pixels in width and twice that in height.

    Raises `UnreadableImage` if it cannot be decoded.
    """
    decoded = decode.decode(path, target=(width, 2 * width))
    pixels = decoded.rgb if decoded.alpha is None else np.dstack([decoded.rgb, decoded.alpha])
    image = Image.fromarray(pixels)
    image.thumbnail((width, 2 * width), Image.Resampling.LANCZOS)
    limit = _MAX_BYTES * max(1.0, (width / _WIDTH) ** 2)
    data = b""
    for quality in _QUALITIES:
        content = io.BytesIO()
        image.save(content, "WEBP", quality=quality, method=4)
        data = content.getvalue()
        if len(data) <= limit:
            break
    return data
