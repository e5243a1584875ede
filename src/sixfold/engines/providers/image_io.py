"""Preparation of source images for a provider, and conversion of its images to artifacts.

All functions are CPU-bound: callers run them in a thread. A source is encoded again before it is uploaded,
upright, in sRGB and without its metadata, such as places and people. A returned image
is decoded in full, which finds truncated files, and fitted to the requested size; a PNG that already has
that size keeps its pixel data, checked to the last row, and loses its metadata. Large images are decoded in
another process.
"""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import Artifact, EngineError, UnusableInput
from sixfold.engines import limited_process
from sixfold.engines.image import decode, decoder_process, encode, png_cleaning
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.output_format import CONTENT_TYPES, OutputFormat

MAX_UPLOAD_SIDE = 2048  # pixels; larger than the input of any of these models
MAX_SIDE = 4096  # pixels of an output image
_MEMORY_BYTES = 2**30  # memory for an image of 40 megapixels, decoded and scaled
_PROCESSES = threading.BoundedSemaphore(2)  # processes that encode results at a time, to limit their memory
_PROFILE_WITHIN = 4096  # bytes; a color profile precedes the pixels


class UploadImage(msgspec.Struct, frozen=True):
    """A source image ready for upload; sizes are (width, height), before and after scaling."""

    data: bytes
    content_type: str
    source_size: tuple[int, int]
    size: tuple[int, int]

    @property
    def name(self) -> str:
        """A neutral file name."""
        return f"image.{self.content_type.rpartition('/')[2]}"

    def data_uri(self) -> str:
        """Return the image as a base64 `data:` URI."""
        return f"data:{self.content_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def prepare_upload(path: Path, max_side: int = MAX_UPLOAD_SIDE, shape: float | None = None) -> UploadImage:
    """Return a source image for upload, scaled down to `max_side` and cropped to `shape` (width / height).

    Raises `UnusableInput` when the file cannot be read.
    """
    if not decoder_process.is_needed(path, is_reduced=True):
        return UploadImage(*prepare_here(path, max_side, shape))
    data, content_type, source_size, size = decoder_process.call(
        f"{__name__}:prepare_here", _MEMORY_BYTES, str(path), max_side, shape
    )
    return UploadImage(data, content_type, tuple(source_size), tuple(size))


def prepare_here(
    path: Path | str, max_side: int, shape: float | None
) -> tuple[bytes, str, tuple[int, int], tuple[int, int]]:
    """Return the fields of the `UploadImage`, decoded in this process; raises `UnusableInput`."""
    image = decode.decode(path, target=(max_side, max_side))
    width, height = float(image.width), float(image.height)
    if shape is not None:
        width, height = min(width, height * shape), min(height, width / shape)
    scale = min(1.0, max_side / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    rgb, alpha = _fit(image.rgb, size), None
    if image.alpha is not None:
        alpha = _fit(image.alpha, size)
    format_ = "jpeg" if alpha is None else "png"
    data = encode.encode(rgb, alpha, format=format_, quality=95)
    return data, CONTENT_TYPES[format_], _source_size(Path(path), image), size


def encode_output(
    path: Path, size: tuple[int, int] | None, output: OutputFormat, provider: str, *, crop: bool = True
) -> Artifact:
    """Return a provider's image as an artifact of exactly `size` (width, height).

    None keeps the size of the image, up to `MAX_SIDE`. An image with another aspect ratio is cropped if
    `crop` is set, else stretched. Raises `EngineError` when the image cannot be read.
    """
    try:
        if unchanged := _unchanged_png(path, size, output):
            return unchanged
        if not decoder_process.is_needed(path):
            data, (width, height) = _encoded(path, size, output, crop=crop)
            return Artifact(output.content_type, data, {"width": width, "height": height})
        target = path.with_suffix(".finished")
        arguments = (str(path), str(target), *(size or (0, 0)), int(crop), *msgspec.structs.astuple(output))
        with _PROCESSES:
            width, height = decoder_process.call(f"{__name__}:write_here", _MEMORY_BYTES, *arguments)
    except UnusableInput as error:
        raise EngineError(f"{provider} returned an image that cannot be read: try again.") from error
    return Artifact(output.content_type, info={"width": width, "height": height}, path=target)


def write_here(*arguments: limited_process.Argument) -> tuple[int, int]:
    """Write an image to a file, decoded in this process, and return its size; raises `UnusableInput`.

    The arguments are the file, the target, the width and the height (0 keeps the size of the image), whether
    the image is cropped, and the fields of its `OutputFormat`.
    """
    path, target, width, height, crop, *fields = arguments
    size = (int(width or 0), int(height or 0)) if width else None
    output = msgspec.convert(fields, OutputFormat)
    data, fitted = _encoded(Path(str(path)), size, output, crop=bool(crop))
    Path(str(target)).write_bytes(data)
    return fitted


def _encoded(
    path: Path, size: tuple[int, int] | None, output: OutputFormat, *, crop: bool
) -> tuple[bytes, tuple[int, int]]:
    image = decode.decode(path)
    size = size or limited_size(image.width, image.height)
    rgb = _fit(image.rgb, size, crop=crop)
    alpha = None if image.alpha is None else _fit(image.alpha, size, crop=crop)
    return output.encode(rgb, alpha), size


def limited_size(width: int, height: int) -> tuple[int, int]:
    """Return a size scaled down to `MAX_SIDE`."""
    scale = min(1.0, MAX_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _unchanged_png(path: Path, size: tuple[int, int] | None, output: OutputFormat) -> Artifact | None:
    """Return a valid PNG of the right size without its metadata, or None when it has to be encoded again."""
    if not output.keeps_png:
        return None
    kind, width, height = decode.probe(path)
    if kind != "PNG" or (limited_size(width, height) if size is None else size) != (width, height):
        return None
    data = path.read_bytes()
    if b"iCCP" in data[:_PROFILE_WITHIN]:
        return None
    stripped = png_cleaning.strip_metadata(data)
    return None if stripped is None else Artifact("image/png", stripped, {"width": width, "height": height})


def _source_size(path: Path, image: DecodedImage) -> tuple[int, int]:
    """Return the upright size of a file; a JPEG may have been decoded at a smaller size."""
    _, width, height = decode.probe(path)
    rotated = (width > height) != (image.width > image.height)
    return (height, width) if rotated else (width, height)


def _fit(pixels: Pixels, size: tuple[int, int], *, crop: bool = True) -> Pixels:
    """Scale the image to cover `size` and crop its center, or stretch it to `size`."""
    height, width = pixels.shape[:2]
    if (width, height) == size:
        return pixels
    scale = max(size[0] / width, size[1] / height)
    box_width, box_height = float(width), float(height)
    if crop:
        box_width, box_height = min(box_width, size[0] / scale), min(box_height, size[1] / scale)
    left, top = (width - box_width) / 2, (height - box_height) / 2
    box = (left, top, left + box_width, top + box_height)
    scaled = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS, box=box)
    return np.asarray(scaled, np.uint8)
