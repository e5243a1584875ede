"""A mask that a client drew over a picture: its alpha becomes the picture's."""

from __future__ import annotations

import io

from PIL import Image, PngImagePlugin

from sixfold.core.work.engines import UnusableInput

_LEVEL = 4  # ComfyUI's own


def masked(picture: bytes, mask: bytes) -> bytes:
    """The picture as PNG with the mask's alpha, its text chunks kept; raises `UnusableInput`."""
    try:
        with Image.open(io.BytesIO(picture)) as original, Image.open(io.BytesIO(mask)) as drawn:
            alpha = drawn.convert("RGBA").getchannel("A")
            if alpha.size != original.size:
                sizes = ["×".join(map(str, each)) for each in (alpha.size, original.size)]
                raise UnusableInput(f"The mask has {sizes[0]} pixels, the picture {sizes[1]}")
            told = PngImagePlugin.PngInfo()
            for name, text in getattr(original, "text", {}).items():
                told.add_text(name, text)
            whole = original.convert("RGBA")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnusableInput("The picture or its mask cannot be read") from error
    whole.putalpha(alpha)
    out = io.BytesIO()
    whole.save(out, "PNG", compress_level=_LEVEL, pnginfo=told)
    return out.getvalue()
