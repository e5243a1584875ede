"""Inpainting masks: the pixels to replace, and the extent and softness of the replacement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.decode import DecodedImage

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_WHITE = 128
# Largest fraction of the image that a hole may cover; a larger hole lacks surroundings to fill it from.
_MAX_SHARE = 0.97
_GROW, _FEATHER = 8, 6


class MaskHole(msgspec.Struct, frozen=True):
    """The area to replace: `mask` (bool, HxW) marks its pixels.

    `cover` (float32, HxW) is the opacity of the replacement.
    """

    mask: Array
    cover: Array

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the hole."""
        left, top, width, height = cv2.boundingRect(self.mask.astype(np.uint8))
        return left, top, width, height


def read(task: Task) -> tuple[DecodedImage, MaskHole | None]:
    """Return the image of a task and the hole, which is None if the mask contains no white area."""
    image, mask = (decode.decode(path(task, name)) for name in ("image", "mask"))
    size = (image.width, image.height)
    white = cv2.cvtColor(mask.rgb, cv2.COLOR_RGB2GRAY)
    if mask.alpha is not None:
        # In OpenAI's API, transparent pixels mark the area to replace.
        bare = task.inputs.get("mask_by") == "transparency"
        white = 255 - mask.alpha if bare else np.minimum(white, mask.alpha)
    if white.shape != (image.height, image.width):
        white = cv2.resize(white, size, interpolation=cv2.INTER_LINEAR)
    marked = white >= _WHITE
    if not marked.any():
        return image, None
    return image, make_hole(
        marked, *(_pixels(task, *option) for option in (("grow", _GROW), ("feather", _FEATHER)))
    )


def make_hole(marked: Array, grow: int, feather: int) -> MaskHole:
    """Return the hole of a mask, grown by `grow` pixels, with a soft edge of `feather` pixels around it."""
    distance = cv2.distanceTransform((~marked).astype(np.uint8), cv2.DIST_L2, 5)
    beyond = np.maximum(0, distance - grow)
    cover = np.clip(1 - beyond / max(feather, 1e-3), 0, 1).astype(np.float32)
    cover = cover * cover * (3 - 2 * cover)
    mask_pixels = cover > 0
    if mask_pixels.mean() > _MAX_SHARE:
        raise UnusableInput("The mask covers the whole image: leave part of the image unmasked.")
    return MaskHole(mask_pixels, cover)


def blend(image: Pixels, filling: Pixels, cover: Array) -> Pixels:
    share = cover[..., None]
    return np.rint(image * (1 - share) + filling * share).astype(np.uint8)


def path(task: Task, name: str) -> Path:
    """Return the file of an image input; raises `EngineError` if the task does not contain it."""
    file = task.files.get(name) or task.files.get(f"{name}_url")
    if file is None:
        raise EngineError(f"Inpainting requires `image` and `mask`: `{name}` is missing.")
    return file


def _pixels(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)
