"""Pixels in their place on the frame: fitted into a box, cut to it, and turned.

A sprite is RGB that covers all of its place, or RGB weighed by a cover beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.catalog.timeline import Clip, Project
from sixfold.engines.video import decoder

Array = NDArray[Any]

_MOST_PIXELS = 7680 * 7680


@dataclass(frozen=True, slots=True)
class SpriteBox:
    """A place in project pixels; parts of it may lie outside of the frame."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Sprite:
    """`pixels` (height, width, 3) with their left upper corner at a place; `cover` has 3 equal channels."""

    pixels: Array
    left: int
    top: int
    cover: Array | None = None


def box_of(clip: Clip, project: Project) -> SpriteBox:
    """Where a clip lies: as it says, else the frame, or what of it is right of x and below y."""

    def side(begin: float | None, length: float | None, whole: int) -> tuple[float, float]:
        at = begin or 0.0
        return at, length if length is not None else (whole - at if 0 <= at < whole else whole)

    left, width = side(clip.x, clip.width, project.width)
    top, height = side(clip.y, clip.height, project.height)
    return SpriteBox(left, top, width, height)


def fitted(size: tuple[int, int], box: SpriteBox, fit: str) -> SpriteBox:
    """Where pictures of a size (width, height) lie in a box: within it, all over it, or stretched."""
    across, down = box.width / size[0], box.height / size[1]
    if fit != "fill":
        across = down = min(across, down) if fit == "contain" else max(across, down)
    width, height = size[0] * across, size[1] * down
    if width * height > _MOST_PIXELS:
        raise UnusableInput("It is too long and narrow for its box")
    return SpriteBox(
        box.left + (box.width - width) / 2, box.top + (box.height - height) / 2, max(1, width), max(1, height)
    )


def seen(at: SpriteBox, box: SpriteBox, fit: str) -> tuple[int, int, int, int]:
    """Left, top, width and height of what is seen of pixels that lie `at` a place: all, or their box's."""
    left, top = round(at.left), round(at.top)
    width, height = max(1, round(at.width)), max(1, round(at.height))
    if fit != "cover":
        return left, top, width, height
    inner = (
        min(max(left, round(box.left)), left + width - 1),
        min(max(top, round(box.top)), top + height - 1),
    )
    right = min(left + width, inner[0] + max(1, round(box.width)))
    lower = min(top + height, inner[1] + max(1, round(box.height)))
    return *inner, right - inner[0], lower - inner[1]


def placed(pixels: Array, at: SpriteBox, box: SpriteBox, clip: Clip) -> Sprite:
    """Pixels, RGB or weighed RGBA of the size of `at`, cut to their box and turned about its middle."""
    left, top, width, height = seen(at, box, clip.fit)
    aside, down = left - round(at.left), top - round(at.top)
    pixels = pixels[down : down + height, aside : aside + width]
    if clip.rotation % 360:
        return turned(pixels, (left, top), box, clip.rotation)
    return sprite(pixels, left, top)


def sprite(pixels: Array, left: int, top: int) -> Sprite:
    """Pixels at a place, RGB or weighed RGBA."""
    if pixels.shape[2] == 3:
        return Sprite(pixels, left, top)
    return Sprite(np.ascontiguousarray(pixels[..., :3]), left, top, cv2.merge([pixels[..., 3]] * 3))


def turned(pixels: Array, corner: tuple[int, int], box: SpriteBox, degrees: float) -> Sprite:
    """RGB or weighed RGBA with its corner at a place, turned clockwise about the middle of a box."""
    if pixels.shape[2] == 3:
        pixels = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    pixels = cv2.copyMakeBorder(pixels, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=(0, 0, 0, 0))
    height, width = pixels.shape[:2]
    middle = (box.left + box.width / 2 - corner[0] + 1, box.top + box.height / 2 - corner[1] + 1)
    turn = cv2.getRotationMatrix2D(middle, -degrees, 1.0)
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]]) @ turn.T
    low = np.floor(corners.min(0)).astype(int)
    size = np.ceil(corners.max(0)).astype(int) - low
    turn[:, 2] -= low
    found = cv2.warpAffine(pixels, turn, (int(size[0]), int(size[1])), flags=cv2.INTER_LINEAR)
    return sprite(found, corner[0] - 1 + int(low[0]), corner[1] - 1 + int(low[1]))


def of_picture(rgb: Array, alpha: Array | None, clip: Clip, box: SpriteBox) -> Sprite:
    """A still picture in its box."""
    at = fitted((rgb.shape[1], rgb.shape[0]), box, clip.fit)
    size = (max(1, round(at.width)), max(1, round(at.height)))
    pixels = rgb if alpha is None else decoder.premultiplied(np.dstack([rgb, alpha]))
    smaller = size[0] * size[1] < rgb.shape[0] * rgb.shape[1]
    how = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    if size != (rgb.shape[1], rgb.shape[0]):
        pixels = cv2.resize(pixels, size, interpolation=how)
        if alpha is not None:  # a cubic may overshoot, and a colour can be no more than its cover
            pixels = np.minimum(pixels, pixels[..., 3:])
    return placed(pixels, at, box, clip)
