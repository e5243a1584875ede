"""Run an image function in a process of its own, where the image's decoder holds the GIL.

Pillow's decoders of WebP and AVIF hold it for up to a second, in which no other thread of a server runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sixfold.engines import limited_process
from sixfold.engines.image import headers

_HOLDING_GIL = frozenset({"WEBP", "AVIF"})
_SECONDS = 60
# The address space of the interpreter with its libraries and their threads.
_BASE_BYTES = 2 * 2**30
_UNREADABLE = "The image cannot be read."


def header(path: Path) -> headers.ImageHeader:
    """Return the header of an image file of any size; raise `UnreadableImage`."""
    with headers.open_image(path, sys.maxsize) as file:
        return headers.read(file)


def is_needed(*paths: Path) -> bool:
    """Return whether the decoder of one of these images holds the GIL; raise `UnreadableImage`."""
    return any(header(path).format in _HOLDING_GIL for path in paths)


def call(target: str, memory_bytes: int, *arguments: limited_process.Argument) -> Any:
    """Return the result of the function named `module:function`, from a process with a memory limit.

    Arguments and result are plain values. Raises `UnusableInput`.
    """
    return limited_process.call(target, _BASE_BYTES + memory_bytes, _SECONDS, _UNREADABLE, *arguments)
