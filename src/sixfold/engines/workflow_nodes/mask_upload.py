"""Application of a mask that a client drew: its alpha channel becomes the image's."""

from __future__ import annotations

import math
from pathlib import Path

from PIL import Image, PngImagePlugin

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import decoder_process
from sixfold.engines.workflow_nodes import preview

_LEVEL = 4  # the compression level that ComfyUI uses
_MAX_PIXELS = 40_000_000  # for three copies of 160 MB each

_PIXEL_BYTES = 10  # bytes of memory per pixel of the image and of its mask


def mask_memory(image: Path, mask: Path) -> int:
    """Return the maximum memory of `apply_mask` in bytes; raises `UnusableInput`."""
    return sum(math.prod(preview.size(each)) for each in (image, mask)) * _PIXEL_BYTES


def apply_mask(image: Path, mask: Path, result: Path) -> None:
    """Write the image as PNG with the mask's alpha, keeping its text chunks; raises `UnusableInput`."""
    size, mask_size = preview.size(image), preview.size(mask)
    if mask_size != size:
        sizes = ["×".join(map(str, each)) for each in (mask_size, size)]
        raise UnusableInput(f"The mask must have the size of the image, {sizes[1]} pixels (got {sizes[0]}).")
    if math.prod(size) > _MAX_PIXELS:
        raise UnusableInput(
            f"An image with a mask must have at most {_MAX_PIXELS:,} pixels (got {size[0]}×{size[1]})."
        )
    if decoder_process.is_needed(image, mask):
        memory = mask_memory(image, mask)
        decoder_process.call(f"{__name__}:apply_here", memory, str(image), str(mask), str(result))
    else:
        apply_here(image, mask, result)


def apply_here(image: Path | str, mask: Path | str, result: Path | str) -> None:
    """Apply the mask as in `apply_mask`, in this process and without its checks; raises `UnusableInput`."""
    formats = [decoder_process.header(Path(path)).format for path in (image, mask)]
    try:
        with (
            Image.open(image, formats=formats[:1]) as original,
            Image.open(mask, formats=formats[1:]) as mask_image,
        ):
            alpha = mask_image.convert("RGBA").getchannel("A")
            info = PngImagePlugin.PngInfo()
            for name, text in getattr(original, "text", {}).items():
                info.add_text(name, text)
            result_image = original.convert("RGBA")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnusableInput("The image or its mask cannot be read.") from error
    result_image.putalpha(alpha)
    result_image.save(result, "PNG", compress_level=_LEVEL, pnginfo=info)
