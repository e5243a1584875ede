"""A picture as a client asks to see it: in fewer bytes, or without its alpha, or its alpha alone."""

from __future__ import annotations

import io
import math
from pathlib import Path

from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image.headers import MAX_PIXELS, check_pixels

PREVIEW_PIXELS = 16_000_000  # a preview of more is scaled down by a whole number
_LEVEL, _QUALITY = 4, 90  # ComfyUI's own
_DECODED, _ENCODED = 12, 24  # bytes of memory for each pixel


def viewed_bytes(picture: Path, preview: str | None) -> int:
    """The most bytes of memory that `viewed` takes; raises `UnusableInput`."""
    width, height = _checked(picture)
    factor = 1 if preview is None else _factor(width, height)
    shown = math.ceil(width / factor) * math.ceil(height / factor)
    return width * height * _DECODED + shown * _ENCODED


def size(picture: Path) -> tuple[int, int]:
    """The width and height by the header; raises `UnusableInput`."""
    try:
        with Image.open(picture) as image:
            return image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnusableInput("The picture cannot be read") from error


def _checked(picture: Path) -> tuple[int, int]:
    width, height = size(picture)
    check_pixels(width, height, width * height, MAX_PIXELS)
    return width, height


def viewed(picture: Path, preview: str | None, channel: str) -> tuple[bytes, str]:
    """The picture as `preview` says ("webp;90"), else its `channel`, and its type; raises `UnusableInput`."""
    _checked(picture)
    out = io.BytesIO()
    try:
        with Image.open(picture) as image:
            if preview is None:
                _channels(image, channel).save(out, "PNG", compress_level=_LEVEL)
                return out.getvalue(), "image/png"
            asked = preview.split(";")
            kind = "jpeg" if asked[0] == "jpeg" and "a" not in channel else "webp"
            quality = min(int(asked[-1]), 100) if asked[-1].isdecimal() else _QUALITY
            shown = _reduced(image, "RGB" if kind == "jpeg" or channel == "rgb" else "RGBA")
            image.close()  # its pixels go before the encoder allocates its own
            shown.save(out, kind, quality=quality)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnusableInput("The picture cannot be read") from error
    return out.getvalue(), f"image/{kind}"


def _reduced(image: Image.Image, mode: str) -> Image.Image:
    """The picture in a mode, in at most `PREVIEW_PIXELS`; a JPEG is decoded in no more than it takes."""
    wanted = _factor(*image.size)
    if wanted > 1:
        image.draft(None, (image.width // wanted, image.height // wanted))
    factor = _factor(*image.size)
    converted = image.convert(mode)
    return converted if factor == 1 else converted.reduce(factor)


def _factor(width: int, height: int) -> int:
    return math.ceil(math.sqrt(width * height / PREVIEW_PIXELS)) or 1


def _channels(image: Image.Image, channel: str) -> Image.Image:
    if channel != "a":
        return image.convert("RGBA").convert("RGB")
    alpha = Image.new("RGBA", image.size)
    alpha.putalpha(image.convert("RGBA").getchannel("A"))
    return alpha
