"""Decoding of untrusted image files into pixels.

The header is read first (`headers.probe`); a file that declares too many pixels is rejected before any codec
runs. Pillow is then restricted to the one format that the header named, so that a renamed script, vector
graphic or document never reaches an interpreter. An image without a color profile is assumed to be sRGB.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from sixfold.engines.image import headers
from sixfold.engines.image.headers import MAX_BYTES, MAX_PIXELS, UnreadableImage, probe

__all__ = ["MAX_BYTES", "MAX_PIXELS", "DecodedImage", "UnreadableImage", "decode", "probe"]

Pixels = NDArray[np.uint8]

_MAX_PROFILE_BYTES = 2 * 2**20
# Warning filters are global to the process, so only one thread decodes at a time. This also bounds memory.
_ALONE = threading.Lock()
# Exceptions that Pillow's parsers are known to raise on malformed files.
_CODEC_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    RuntimeError,
    AttributeError,
    MemoryError,
    AssertionError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


class DecodedImage(msgspec.Struct, frozen=True):
    """A decoded image, upright and in sRGB.

    `rgb` is HxWx3; `alpha` is HxW, or None if the image is opaque. `format` is the format of the file (PNG,
    JPEG, WEBP, GIF, BMP, TIFF, AVIF).
    """

    rgb: Pixels
    alpha: Pixels | None
    format: str

    @property
    def width(self) -> int:
        return self.rgb.shape[1]

    @property
    def height(self) -> int:
        return self.rgb.shape[0]


def decode(
    source: Path | str | bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    target: tuple[int, int] | None = None,
) -> DecodedImage:
    """Decode an image, or the first frame of an animation; raises `UnreadableImage` if it cannot be read.

    With `target` (width, height), a JPEG is decoded at the smallest multiple of an eighth of its size that
    covers the target, which is much faster; other formats are decoded at full size.
    """
    with headers.open_image(source, max_bytes) as file:
        header = headers.read(file)
        headers.check_pixels(header.width, header.height, header.buffer_pixels, max_pixels)
        with _ALONE, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            try:
                return _pixels(file, header.format, max_pixels, target)
            except UnidentifiedImageError as error:
                raise headers.damaged() from error
            except _CODEC_ERRORS as error:
                raise headers.damaged() from error


def _pixels(file: BinaryIO, format_: str, max_pixels: int, target: tuple[int, int] | None) -> DecodedImage:
    with Image.open(file, formats=(format_,)) as image:
        # The codec may report a larger size than the header: a GIF frame can exceed its logical screen.
        headers.check_pixels(*image.size, image.size[0] * image.size[1], max_pixels)
        if target and format_ == "JPEG":
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            image.draft(None, (target[1], target[0]) if turned else target)
        image.load()
        upright = ImageOps.exif_transpose(image)
    rgb, alpha = _split(_in_srgb(upright))
    return DecodedImage(rgb, alpha, format_)


def _split(image: Image.Image) -> tuple[Pixels, Pixels | None]:
    if image.mode.startswith(("I", "F")):
        gray = _eight_bits(np.asarray(image))
        return np.repeat(gray[..., None], 3, axis=2), None
    if image.has_transparency_data:
        rgba = np.asarray(image.convert("RGBA"))
        alpha = np.ascontiguousarray(rgba[..., 3])
        return np.ascontiguousarray(rgba[..., :3]), None if alpha.min() == 255 else alpha
    return np.array(image.convert("RGB")), None


def _eight_bits(values: NDArray[np.generic]) -> Pixels:
    wide = np.nan_to_num(values.astype(np.float64))
    top = float(wide.max(initial=0.0))
    is_integer = np.issubdtype(values.dtype, np.integer)
    if values.dtype == np.uint16 or (is_integer and 255 < top <= 65535):
        scale = 255.0 / 65535.0
    elif is_integer:
        scale = 1.0 if top <= 255 else 255.0 / top
    else:
        scale = 255.0 if top <= 1.0 else 1.0
    return np.clip(np.rint(wide * scale), 0, 255).astype(np.uint8)


def _in_srgb(image: Image.Image) -> Image.Image:
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or not 128 < len(profile) <= _MAX_PROFILE_BYTES:
        return image
    if image.mode not in ("RGB", "RGBA", "CMYK", "L") or image.has_transparency_data != (
        image.mode == "RGBA"
    ):
        return image
    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "sRGB" in ImageCms.getProfileDescription(own):
            return image
        mode = "RGBA" if image.mode == "RGBA" else "RGB"
        turned = ImageCms.profileToProfile(image, own, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return image
    return turned or image
