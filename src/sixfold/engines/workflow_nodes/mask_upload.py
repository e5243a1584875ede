"""A mask that a client drew over a picture: its alpha becomes the picture's."""

from __future__ import annotations

import math
from pathlib import Path

from PIL import Image, PngImagePlugin

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.workflow_nodes import preview

_LEVEL = 4  # ComfyUI's own
_MOST_PIXELS = 40_000_000  # of one picture take 160 MB, three times

_PIXEL_BYTES = 10  # of memory for each pixel of the picture and of its mask


def masked_bytes(picture: Path, mask: Path) -> int:
    """The most bytes of memory that `masked` takes; raises `UnusableInput`."""
    return sum(math.prod(preview.size(each)) for each in (picture, mask)) * _PIXEL_BYTES


def masked(picture: Path, mask: Path, result: Path) -> None:
    """Write the picture as PNG with the mask's alpha, its text chunks kept; raises `UnusableInput`."""
    try:
        with Image.open(picture) as original, Image.open(mask) as drawn:
            if drawn.size != original.size:
                sizes = ["×".join(map(str, each)) for each in (drawn.size, original.size)]
                raise UnusableInput(f"The mask has {sizes[0]} pixels, the picture {sizes[1]}")
            if drawn.width * drawn.height > _MOST_PIXELS:
                raise UnusableInput(
                    f"A picture with a mask may have at most {_MOST_PIXELS:,} pixels; "
                    f"this one has {drawn.width}×{drawn.height}"
                )
            alpha = drawn.convert("RGBA").getchannel("A")
            told = PngImagePlugin.PngInfo()
            for name, text in getattr(original, "text", {}).items():
                told.add_text(name, text)
            whole = original.convert("RGBA")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnusableInput("The picture or its mask cannot be read") from error
    whole.putalpha(alpha)
    whole.save(result, "PNG", compress_level=_LEVEL, pnginfo=told)
