"""Source images for the operator's ComfyUI, and conversion of its images to artifacts.

A caller's image is never decoded in the process of the server: only its header is read, and its bytes are
uploaded unchanged. A returned image is decoded, scaled to its exact size and encoded in the requested format;
a PNG that has that size already keeps its pixel data and loses its metadata.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from PIL import Image

from sixfold.core.catalog.engines import Artifact, UnusableInput
from sixfold.engines.image import headers
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.providers import image_io as provider_images

MAX_BYTES = headers.MAX_BYTES
_SIDEWAYS = frozenset({5, 6, 7, 8})  # EXIF orientations that swap width and height


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
        raise UnusableInput("The image is animated: send a single frame.")
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


def encode_output(path: Path, finish: ImageFinish) -> Artifact:
    """Return ComfyUI's image as an artifact; raises `EngineError` when it cannot be decoded."""
    size = (finish.width, finish.height)
    return provider_images.encode_output(path, size, finish.output, "ComfyUI", crop=finish.crop)
