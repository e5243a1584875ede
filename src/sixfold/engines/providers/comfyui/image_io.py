"""Pictures to and from the operator's ComfyUI: what a caller's is, and what is handed out of its answer.

A caller's picture is never decoded here, in the server's own process: its header is read, and its bytes
go to the operator's other program as they are. What comes back is decoded, brought to its exact size and
encoded as asked; a PNG that is right already keeps its rows and loses what was written into it besides.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from sixfold.core.catalog.engines import Artifact, EngineError, UnusableInput
from sixfold.engines.image import decode, encode, headers, png_cleaning

Pixels = NDArray[np.uint8]

MAX_BYTES = decode.MAX_BYTES
_TURNED = frozenset({5, 6, 7, 8})
# One at a time: the pixels of one picture are enough to hold, and decoding sets the process's warnings.
_DECODING = threading.Lock()


@dataclass(frozen=True, slots=True)
class InputImages:
    """A caller's picture: upright pixels across and down, its bytes, and a name that its bytes decide."""

    width: int
    height: int
    alpha: bool
    data: bytes
    name: str
    content_type: str


@dataclass(frozen=True, slots=True)
class ImageFinish:
    """How a picture leaves: its exact size, encoding (png, webp, jpeg, avif) and quality.

    `crop`: a picture of another shape loses its edges; otherwise it is stretched, as one is that was
    squeezed before.
    """

    width: int
    height: int
    format: str = "png"
    quality: int = 90
    crop: bool = True

    def __post_init__(self) -> None:
        if self.format not in encode.CONTENT_TYPES:
            raise EngineError(f"The format must be one of {', '.join(encode.CONTENT_TYPES)}.")


def given(path: Path) -> InputImages:
    """Read a caller's picture as far as its header says; raises `UnusableInput`."""
    format_, width, height = headers.probe(path)
    headers.check_pixels(width, height, width * height, headers.MAX_PIXELS)
    try:
        with Image.open(path, formats=(format_,)) as image:  # reads the header, and no pixel
            alpha = image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info
            animated = bool(getattr(image, "is_animated", False))
            turned = _exif(image).get(0x0112, 1) in _TURNED
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise headers.damaged() from error
    if animated:
        raise UnusableInput("The picture is animated; send one picture of it.")
    if turned:
        width, height = height, width
    data = path.read_bytes()
    name = f"sixfold-{hashlib.blake2b(data, digest_size=16).hexdigest()}.{format_.lower()}"
    return InputImages(width, height, alpha, data, name, f"image/{format_.lower()}")


def _exif(image: Image.Image) -> Image.Exif:
    if image.format != "PNG":
        return image.getexif()
    found = Image.Exif()  # `getexif` of a PNG decodes it to the end, where some programs write it
    found.load(image.info.get("exif") or b"")
    return found


def finished(data: bytes, finish: ImageFinish) -> Artifact:
    """A picture from ComfyUI as it is delivered; raises `EngineError` where it cannot be decoded."""
    content_type = encode.CONTENT_TYPES[finish.format]
    info = {"width": finish.width, "height": finish.height}
    try:
        bare = png_cleaning.strip_metadata(data) if _is_right(data, finish) else None
        if bare is not None:
            return Artifact(content_type, bare, info)
        with _DECODING:
            return Artifact(content_type, _encoded(decode.decode(data), finish), info)
    except headers.UnreadableImage as error:
        raise EngineError("ComfyUI gave a picture that cannot be read.") from error


def _is_right(data: bytes, finish: ImageFinish) -> bool:
    asked = ("PNG", finish.width, finish.height)
    return finish.format == "png" and headers.probe(data) == asked


def _encoded(picture: decode.DecodedImage, finish: ImageFinish) -> bytes:
    opaque = picture.alpha is None or int(picture.alpha.min()) == 255
    alpha = None if opaque or picture.alpha is None else _fitted(picture.alpha, finish)
    rgb = _fitted(picture.rgb, finish)
    return encode.encode(rgb, alpha, format=finish.format, quality=finish.quality)


def _fitted(pixels: Pixels, finish: ImageFinish) -> Pixels:
    size = (finish.width, finish.height)
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    image = Image.fromarray(np.ascontiguousarray(pixels))
    kernel = Image.Resampling.LANCZOS
    fitted = ImageOps.fit(image, size, kernel) if finish.crop else image.resize(size, kernel)
    return np.asarray(fitted, np.uint8)
