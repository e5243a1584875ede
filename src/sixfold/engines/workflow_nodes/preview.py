"""Previews of an image for a client: smaller, without its alpha channel, or its alpha channel alone."""

from __future__ import annotations

import io
import math
from pathlib import Path

from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import decoder_process
from sixfold.engines.image.headers import MAX_PIXELS, UnreadableImage, check_pixels

PREVIEW_PIXELS = 16_000_000  # a larger preview is scaled down by an integer factor
_LEVEL, _QUALITY = 4, 90  # the values that ComfyUI uses
_DECODED, _ENCODED = 12, 24  # bytes of memory per pixel


def render_memory(path: Path, preview: str | None) -> int:
    """Return the maximum memory of `render` in bytes; raises `UnusableInput`."""
    width, height = _checked_size(path)
    factor = 1 if preview is None else _factor(width, height)
    output = math.ceil(width / factor) * math.ceil(height / factor)
    return width * height * _DECODED + output * _ENCODED


def size(path: Path) -> tuple[int, int]:
    """Return the width and height in the header; raises `UnusableInput`."""
    try:
        header = decoder_process.header(path)
    except (OSError, UnreadableImage) as error:
        raise UnusableInput(f"The image cannot be read. {error}") from error
    return header.width, header.height


def _checked_size(path: Path) -> tuple[int, int]:
    width, height = size(path)
    check_pixels(width, height, width * height, MAX_PIXELS)
    return width, height


def render(path: Path, preview: str | None, channel: str) -> tuple[bytes, str]:
    """Return an image in the format and quality of `preview` (as `webp;90`), and the content type.

    Without `preview`, the result is the `channel` of the image as PNG.

    Raises `UnusableInput`.
    """
    memory = render_memory(path, preview)
    if decoder_process.is_needed(path, is_reduced=preview is not None):
        content, kind = decoder_process.call(f"{__name__}:render_here", memory, str(path), preview, channel)
        return content, kind
    return render_here(path, preview, channel)


def render_here(path: Path | str, preview: str | None, channel: str) -> tuple[bytes, str]:
    """Return the result of `render`, decoded in this process; raises `UnusableInput`."""
    out = io.BytesIO()
    try:
        with Image.open(path, formats=(decoder_process.header(Path(path)).format,)) as image:
            if preview is None:
                _channels(image, channel).save(out, "PNG", compress_level=_LEVEL)
                return out.getvalue(), "image/png"
            options = preview.split(";")
            kind = "jpeg" if options[0] == "jpeg" and "a" not in channel else "webp"
            quality = min(int(options[-1]), 100) if options[-1].isdecimal() else _QUALITY
            output = _reduced(image, "RGB" if kind == "jpeg" or channel == "rgb" else "RGBA")
            image.close()  # frees the pixels before the encoder allocates memory
            output.save(out, kind, quality=quality)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnusableInput("The image cannot be read.") from error
    return out.getvalue(), f"image/{kind}"


def _reduced(image: Image.Image, mode: str) -> Image.Image:
    """Convert to a mode, scaled to at most `PREVIEW_PIXELS`; a JPEG is decoded at a smaller size."""
    draft_factor = _factor(*image.size)
    if draft_factor > 1:
        image.draft(None, (image.width // draft_factor, image.height // draft_factor))
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
