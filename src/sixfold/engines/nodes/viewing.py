"""A picture as a client asks to see it: in fewer bytes, or without its alpha, or its alpha alone."""

from __future__ import annotations

import io

from PIL import Image

from sixfold.core.work.engines import UnusableInput

_LEVEL, _QUALITY = 4, 90  # ComfyUI's own


def viewed(picture: bytes, preview: str | None, channel: str) -> tuple[bytes, str]:
    """The picture as `preview` says ("webp;90"), else its `channel`, and its type; raises `UnusableInput`."""
    out = io.BytesIO()
    try:
        with Image.open(io.BytesIO(picture)) as image:
            if preview is None:
                _channels(image, channel).save(out, "PNG", compress_level=_LEVEL)
                return out.getvalue(), "image/png"
            asked = preview.split(";")
            kind = "jpeg" if asked[0] == "jpeg" and "a" not in channel else "webp"
            quality = min(int(asked[-1]), 100) if asked[-1].isdecimal() else _QUALITY
            shown = image.convert("RGB" if kind == "jpeg" or channel == "rgb" else "RGBA")
            shown.save(out, kind, quality=quality)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnusableInput("The picture cannot be read") from error
    return out.getvalue(), f"image/{kind}"


def _channels(image: Image.Image, channel: str) -> Image.Image:
    if channel != "a":
        return image.convert("RGBA").convert("RGB")
    alpha = Image.new("RGBA", image.size)
    alpha.putalpha(image.convert("RGBA").getchannel("A"))
    return alpha
