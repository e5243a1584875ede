"""Image functions in a separate process, for large images and decoders that hold the GIL.

Pillow's decoders of WebP and AVIF hold the GIL for up to a second, which blocks all other threads of the
server. Its readers of TIFF and BMP run in Python: a TIFF of 4 MB with a strip for each of its rows takes 13 s
and 300 MB. An image of 40 megapixels takes up to 1 GiB, most of which the allocator does not return to the
system.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sixfold.engines import limited_process
from sixfold.engines.image import headers

_SLOW_FORMATS = frozenset({"WEBP", "AVIF", "TIFF", "BMP"})
# Decoding takes about 20 bytes for each pixel, so larger images are decoded in another process.
_LARGE_PIXELS = 4_000_000
# A GIF of comments takes up to 36 times its size, which other threads wait for when it is freed.
_LARGE_BYTES = 4 * 2**20
_SECONDS = 60
# Address space in bytes of the interpreter with its libraries and their threads.
_BASE_BYTES = 2 * 2**30
_UNREADABLE = "The image cannot be read."


def header(path: Path) -> headers.ImageHeader:
    """Return the header of an image file of any size; raises `UnreadableImage`."""
    with headers.open_image(path, sys.maxsize) as file:
        return headers.read(file)


def is_needed(*paths: Path, is_reduced: bool = False) -> bool:
    """Return whether any image at `paths` must be decoded in another process; raises `UnreadableImage`.

    With `is_reduced`, a JPEG is decoded at a smaller size, which takes little memory if it has one scan.
    """
    return any(_is_costly(path, is_reduced=is_reduced) for path in paths)


def _is_costly(path: Path, *, is_reduced: bool) -> bool:
    image = header(path)
    if image.format in _SLOW_FORMATS:
        return True
    is_large = image.buffer_pixels > _LARGE_PIXELS or path.stat().st_size > _LARGE_BYTES
    return is_large and not (is_reduced and image.format == "JPEG" and not image.is_buffered)


def call(target: str, memory_bytes: int, *arguments: limited_process.Argument) -> Any:
    """Return the result of the function named `module:function`, from a process with a memory limit.

    Arguments and result are plain values. Raises `UnusableInput`.
    """
    return limited_process.call(target, _BASE_BYTES + memory_bytes, _SECONDS, _UNREADABLE, *arguments)
