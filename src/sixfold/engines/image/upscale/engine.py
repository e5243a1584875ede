"""Upscaling without downloaded weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Quality, Result, Task, UnusableInput
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.upscale import network, restore

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes
# Enlarges a tile (HxWx3, float32 0 to 1) by a scale.
Enlarge = Callable[[Array, int], Array]

MAX_PIXELS = 48_000_000
# Tile side and overlap, in pixels of the small image.
TILE_SIDE, OVERLAP = 320, 16
_SCALE = 4


class UpscaleEngine:
    """Enlarges `image` (or `image_url`) by `scale`: with a network, or by filters if `model` is anime."""

    name = "upscaler"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG of exactly `scale` times the image's size, with the image's transparency."""
        if task.inputs.get("face_enhance"):
            raise EngineError("face_enhance requires an engine with weights.")
        enlarge = restore.enlarge if task.inputs.get("model") == "anime" else network.enlarge
        return run(task, context, enlarge, "preview")


def run(task: Task, context: Context, enlarge: Enlarge, quality: Quality, piece: int = TILE_SIDE) -> Result:
    """Run an upscaling task, one tile at a time."""
    image = source(task)
    scale = int(task.inputs.get("scale") or _SCALE)
    width, height = image.width * scale, image.height * scale
    if width * height > MAX_PIXELS:
        raise UnusableInput(
            f"The enlarged image would have {width} x {height} pixels; "
            f"at most {MAX_PIXELS // 1_000_000} megapixels are allowed."
        )
    rgb = enlarge_tiles(image.rgb, scale, enlarge, context, piece)
    alpha: Any = image.alpha
    if alpha is not None:
        alpha = cv2.resize(alpha, (width, height), interpolation=cv2.INTER_CUBIC)
    info = {"width": width, "height": height}
    return Result((Artifact("image/png", encode.encode(rgb, alpha, format="png"), info),), {}, quality)


def source(task: Task) -> DecodedImage:
    """Return the image of a task; raises `UnusableInput` if it cannot be read."""
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("image is required.")
    return decode.decode(path)


def enlarge_tiles(rgb: Pixels, scale: int, enlarge: Enlarge, context: Context, side: int) -> Pixels:
    """Return the enlarged image; tiles overlap by `OVERLAP` pixels to avoid visible seams."""
    height, width = rgb.shape[:2]
    padded = cv2.copyMakeBorder(rgb, OVERLAP, OVERLAP, OVERLAP, OVERLAP, cv2.BORDER_REFLECT)
    output = np.empty((height * scale, width * scale, 3), np.uint8)
    corners = [(top, left) for top in range(0, height, side) for left in range(0, width, side)]
    for done, (top, left) in enumerate(corners):
        bottom, right = min(height, top + side), min(width, left + side)
        tile = padded[top : bottom + 2 * OVERLAP, left : right + 2 * OVERLAP].astype(np.float32) / 255
        large = enlarge(tile, scale)
        cut = OVERLAP * scale
        inner = large[cut : cut + (bottom - top) * scale, cut : cut + (right - left) * scale]
        output[top * scale : bottom * scale, left * scale : right * scale] = np.rint(inner * 255)
        context.progress(0.02 + 0.9 * (done + 1) / len(corners))
    return output
