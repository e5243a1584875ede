"""What a mask means: which pixels go, how far beyond it the new ones reach, and how softly they begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.decode import DecodedImage

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_WHITE = 128
_MOST = 0.97  # of the image: with less around it there is nothing to go by
_GROW, _FEATHER = 8, 6


@dataclass(frozen=True, slots=True)
class MaskHole:
    """`gone` (bool, HxW) is made up anew; `cover` (float32, HxW) is how much of that is seen."""

    gone: Array
    cover: Array

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of what is made up."""
        left, top, width, height = cv2.boundingRect(self.gone.astype(np.uint8))
        return left, top, width, height


def read(task: Task) -> tuple[DecodedImage, MaskHole | None]:
    """The image of a task and what is to go; None where the mask has no white area."""
    picture, mask = (decode.decode(_path(task, name)) for name in ("image", "mask"))
    size = (picture.width, picture.height)
    white = cv2.cvtColor(mask.rgb, cv2.COLOR_RGB2GRAY)
    if mask.alpha is not None:
        bare = task.inputs.get("mask_by") == "transparency"  # what OpenAI's dialect calls a mask
        white = 255 - mask.alpha if bare else np.minimum(white, mask.alpha)
    if white.shape != (picture.height, picture.width):
        white = cv2.resize(white, size, interpolation=cv2.INTER_LINEAR)
    marked = white >= _WHITE
    if not marked.any():
        return picture, None
    return picture, hole(marked, *(_pixels(task, *one) for one in (("grow", _GROW), ("feather", _FEATHER))))


def hole(marked: Array, grow: int, feather: int) -> MaskHole:
    """The hole of a mask, grown by `grow` pixels, its edge `feather` pixels soft beyond that."""
    apart = cv2.distanceTransform((~marked).astype(np.uint8), cv2.DIST_L2, 5)
    beyond = np.maximum(0, apart - grow)
    cover = np.clip(1 - beyond / max(feather, 1e-3), 0, 1).astype(np.float32)
    cover = cover * cover * (3 - 2 * cover)
    gone = cover > 0
    if gone.mean() > _MOST:
        raise UnusableInput("The mask covers the whole picture: nothing is left to fill it from.")
    return MaskHole(gone, cover)


def laid(picture: Pixels, made: Pixels, cover: Array) -> Pixels:
    """What was made over the image."""
    share = cover[..., None]
    return np.rint(picture * (1 - share) + made * share).astype(np.uint8)


def _path(task: Task, name: str) -> Any:
    path = task.files.get(name) or task.files.get(f"{name}_url")
    if path is None:
        raise EngineError("Taking something out of a picture needs an image and a mask.")
    return path


def _pixels(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)
