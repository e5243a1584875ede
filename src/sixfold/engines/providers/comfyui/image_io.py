"""Source images for the operator's ComfyUI, and conversion of its images to artifacts.

A caller's image is never decoded in the process of the server: only its header is read, and its bytes are
uploaded unchanged. A returned image is decoded, scaled to its exact size and encoded in the requested format;
a PNG that has that size already keeps its pixel data and loses its metadata.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from sixfold.core.catalog.engines import Artifact, EngineError, UnusableInput
from sixfold.engines.image import decode, headers, png_cleaning
from sixfold.engines.image.encode import OutputFormat

Pixels = NDArray[np.uint8]

MAX_BYTES = decode.MAX_BYTES
_SIDEWAYS = frozenset({5, 6, 7, 8})  # EXIF orientations that swap width and height
# One at a time, to limit memory, and because decoding changes the process's warning filters.
_DECODING = threading.Lock()


class InputImage(msgspec.Struct, frozen=True):
    """A caller's image; `width` and `height` are upright, and `name` derives from a hash of the bytes."""

    width: int
    height: int
    alpha: bool
    data: bytes
    name: str
    content_type: str


@dataclass(frozen=True, slots=True)
class ImageFinish:
    """The exact size and the format of a delivered image.

    An image with another aspect ratio is cropped if `crop` is set, else stretched.
    """

    width: int
    height: int
    output: OutputFormat = field(default_factory=OutputFormat)
    crop: bool = True


def read_input(path: Path) -> InputImage:
    """Read the header of a caller's image; raises `UnusableInput`."""
    format_, width, height = headers.probe(path)
    headers.check_pixels(width, height, width * height, headers.MAX_PIXELS)
    try:
        with Image.open(path, formats=(format_,)) as image:  # reads only the header
            alpha = image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info
            animated = bool(getattr(image, "is_animated", False))
            sideways = _exif(image).get(0x0112, 1) in _SIDEWAYS
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise headers.damaged() from error
    if animated:
        raise UnusableInput("The image is animated; send a single frame.")
    if sideways:
        width, height = height, width
    data = path.read_bytes()
    kind = format_.lower()
    return InputImage(width, height, alpha, data, upload_name(data, kind), f"image/{kind}")


def upload_name(data: bytes, kind: str) -> str:
    """Return the name of an uploaded file, which derives from a hash of its bytes."""
    return f"sixfold-{hashlib.blake2b(data, digest_size=16).hexdigest()}.{kind}"


def _exif(image: Image.Image) -> Image.Exif:
    if image.format != "PNG":
        return image.getexif()
    # `getexif` of a PNG decodes all pixels, since some programs write EXIF data after them.
    exif = Image.Exif()
    exif.load(image.info.get("exif") or b"")
    return exif


def encode_output(data: bytes, finish: ImageFinish) -> Artifact:
    """Return ComfyUI's image as an artifact; raises `EngineError` when it cannot be decoded."""
    content_type = finish.output.content_type
    info = {"width": finish.width, "height": finish.height}
    try:
        stripped = png_cleaning.strip_metadata(data) if _is_final(data, finish) else None
        if stripped is not None:
            return Artifact(content_type, stripped, info)
        with _DECODING:
            return Artifact(content_type, _encode(decode.decode(data), finish), info)
    except headers.UnreadableImage as error:
        raise EngineError("ComfyUI returned an image that cannot be read.") from error


def _is_final(data: bytes, finish: ImageFinish) -> bool:
    return finish.output.keeps_png and headers.probe(data) == ("PNG", finish.width, finish.height)


def _encode(image: decode.DecodedImage, finish: ImageFinish) -> bytes:
    opaque = image.alpha is None or int(image.alpha.min()) == 255
    alpha = None if opaque or image.alpha is None else _fit(image.alpha, finish)
    rgb = _fit(image.rgb, finish)
    return finish.output.encode(rgb, alpha)


def _fit(pixels: Pixels, finish: ImageFinish) -> Pixels:
    size = (finish.width, finish.height)
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    image = Image.fromarray(np.ascontiguousarray(pixels))
    kernel = Image.Resampling.LANCZOS
    fitted = ImageOps.fit(image, size, kernel) if finish.crop else image.resize(size, kernel)
    return np.asarray(fitted, np.uint8)
