"""Enlarging without weights: what is there, as sharp as it can be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import (
    Artifact,
    Context,
    EngineError,
    Quality,
    Result,
    Task,
    UnusableInput,
)
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.upscale import restore

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes
Enlarge = Callable[[Array, int], Array]  # a piece (HxWx3, float32 0 to 1) and a scale

MOST_PIXELS = 48_000_000
PIECE, LAP = 320, 16  # pixels of the small image; what a piece sees beyond its own edge
_SCALE = 4


class UpscaleEngine:
    """Enlarges `image` (or `image_url`) `scale` times, as `model` (general, anime) says."""

    name = "upscaler"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """A PNG of exactly `scale` times the image's sides; what is transparent stays so."""
        if task.inputs.get("face_enhance"):
            raise EngineError("Faces are made finer by an engine with weights only.")
        recipe = restore.RECIPES.get(str(task.inputs.get("model")), restore.RECIPES["general"])
        return run(task, context, lambda piece, scale: restore.enlarged(piece, scale, recipe), "preview")


def run(task: Task, context: Context, enlarge: Enlarge, quality: Quality, piece: int = PIECE) -> Result:
    """The whole task, its image enlarged a piece at a time."""
    picture = source(task)
    scale = int(task.inputs.get("scale") or _SCALE)
    width, height = picture.width * scale, picture.height * scale
    if width * height > MOST_PIXELS:
        raise UnusableInput(
            f"The enlarged picture would have {width} x {height} pixels; "
            f"at most {MOST_PIXELS // 1_000_000} megapixels."
        )
    rgb = in_pieces(picture.rgb, scale, enlarge, context, piece)
    alpha: Any = picture.alpha
    if alpha is not None:
        alpha = cv2.resize(alpha, (width, height), interpolation=cv2.INTER_CUBIC)
    info = {"width": width, "height": height}
    return Result((Artifact("image/png", encode.encode(rgb, alpha, format="png"), info),), {}, quality)


def source(task: Task) -> DecodedImage:
    """The image of a task; raises `UnusableInput` when it cannot be read."""
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("Enlarging needs a picture.")
    return decode.decode(path)


def in_pieces(rgb: Pixels, scale: int, enlarge: Enlarge, context: Context, side: int) -> Pixels:
    """The enlarged image; each piece sees `LAP` pixels more than it gives, so no seam shows."""
    height, width = rgb.shape[:2]
    padded = cv2.copyMakeBorder(rgb, LAP, LAP, LAP, LAP, cv2.BORDER_REFLECT)
    whole = np.empty((height * scale, width * scale, 3), np.uint8)
    corners = [(top, left) for top in range(0, height, side) for left in range(0, width, side)]
    for done, (top, left) in enumerate(corners):
        bottom, right = min(height, top + side), min(width, left + side)
        seen = padded[top : bottom + 2 * LAP, left : right + 2 * LAP].astype(np.float32) / 255
        large = enlarge(seen, scale)
        cut = LAP * scale
        inner = large[cut : cut + (bottom - top) * scale, cut : cut + (right - left) * scale]
        whole[top * scale : bottom * scale, left * scale : right * scale] = np.rint(inner * 255)
        context.progress(0.02 + 0.9 * (done + 1) / len(corners))
    return whole
