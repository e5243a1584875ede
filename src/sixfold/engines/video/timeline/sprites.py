"""Sprites: pixels positioned on the frame by fitting into a box, cropping and rotation.

A sprite is opaque RGB, or premultiplied RGB with a separate alpha (`cover`).
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.catalog.timeline import Clip, Project
from sixfold.engines.video import decoder

Array = NDArray[Any]

_MAX_PIXELS = 7680 * 7680


class SpriteBox(msgspec.Struct, frozen=True):
    """A box in project pixels, which may extend beyond the frame."""

    left: float
    top: float
    width: float
    height: float


class Sprite(msgspec.Struct, frozen=True):
    """Pixels (height, width, 3) with the position of their top left corner; `cover` has 3 equal channels."""

    pixels: Array
    left: int
    top: int
    cover: Array | None = None


def box_of(clip: Clip, project: Project) -> SpriteBox:
    """Return a clip's box; the default is the frame, or the part of it right of x and below y."""

    def side(begin: float | None, length: float | None, whole: int) -> tuple[float, float]:
        at = begin or 0.0
        return at, length if length is not None else (whole - at if 0 <= at < whole else whole)

    left, width = side(clip.x, clip.width, project.width)
    top, height = side(clip.y, clip.height, project.height)
    return SpriteBox(left, top, width, height)


def fit(size: tuple[int, int], box: SpriteBox, mode: str) -> SpriteBox:
    """Return the position of an image of `size` (width, height) in a box by `contain`, `cover` or `fill`."""
    across, down = box.width / size[0], box.height / size[1]
    if mode != "fill":
        across = down = min(across, down) if mode == "contain" else max(across, down)
    width, height = size[0] * across, size[1] * down
    if width * height > _MAX_PIXELS:
        raise UnusableInput("The image is too long and narrow to cover its box: set fit to contain or fill")
    return SpriteBox(
        box.left + (box.width - width) / 2, box.top + (box.height - height) / 2, max(1, width), max(1, height)
    )


def visible(at: SpriteBox, box: SpriteBox, mode: str) -> tuple[int, int, int, int]:
    """Return left, top, width and height of the visible pixels of an image at `at`.

    For the mode `cover`, these are the pixels within the box, else all pixels.
    """
    left, top = round(at.left), round(at.top)
    width, height = max(1, round(at.width)), max(1, round(at.height))
    if mode != "cover":
        return left, top, width, height
    inner = (
        min(max(left, round(box.left)), left + width - 1),
        min(max(top, round(box.top)), top + height - 1),
    )
    right = min(left + width, inner[0] + max(1, round(box.width)))
    lower = min(top + height, inner[1] + max(1, round(box.height)))
    return *inner, right - inner[0], lower - inner[1]


def place(pixels: Array, at: SpriteBox, box: SpriteBox, clip: Clip) -> Sprite:
    """Crop RGB or premultiplied RGBA pixels of the size of `at` to their box and rotate about its center."""
    left, top, width, height = visible(at, box, clip.fit)
    right_offset, down = left - round(at.left), top - round(at.top)
    pixels = pixels[down : down + height, right_offset : right_offset + width]
    if clip.rotation % 360:
        return rotate(pixels, (left, top), box, clip.rotation)
    return sprite(pixels, left, top)


def sprite(pixels: Array, left: int, top: int) -> Sprite:
    """Return a sprite of RGB or premultiplied RGBA pixels."""
    if pixels.shape[2] == 3:
        return Sprite(pixels, left, top)
    return Sprite(np.ascontiguousarray(pixels[..., :3]), left, top, cv2.merge([pixels[..., 3]] * 3))


def rotate(pixels: Array, corner: tuple[int, int], box: SpriteBox, degrees: float) -> Sprite:
    """Rotate pixels with a top left `corner` clockwise about the center of a box."""
    if pixels.shape[2] == 3:
        pixels = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    pixels = cv2.copyMakeBorder(pixels, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=(0, 0, 0, 0))
    height, width = pixels.shape[:2]
    middle = (box.left + box.width / 2 - corner[0] + 1, box.top + box.height / 2 - corner[1] + 1)
    matrix = cv2.getRotationMatrix2D(middle, -degrees, 1.0)
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]]) @ matrix.T
    low = np.floor(corners.min(0)).astype(int)
    size = np.ceil(corners.max(0)).astype(int) - low
    matrix[:, 2] -= low
    rotated = cv2.warpAffine(pixels, matrix, (int(size[0]), int(size[1])), flags=cv2.INTER_LINEAR)
    return sprite(rotated, corner[0] - 1 + int(low[0]), corner[1] - 1 + int(low[1]))


def of_image(rgb: Array, alpha: Array | None, clip: Clip, box: SpriteBox) -> Sprite:
    at = fit((rgb.shape[1], rgb.shape[0]), box, clip.fit)
    size = (max(1, round(at.width)), max(1, round(at.height)))
    pixels = rgb if alpha is None else decoder.premultiply(np.dstack([rgb, alpha]))
    smaller = size[0] * size[1] < rgb.shape[0] * rgb.shape[1]
    interpolation = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    if size != (rgb.shape[1], rgb.shape[0]):
        pixels = cv2.resize(pixels, size, interpolation=interpolation)
        # Cubic interpolation may overshoot, but a premultiplied color must not exceed its alpha.
        if alpha is not None:
            pixels = np.minimum(pixels, pixels[..., 3:])
    return place(pixels, at, box, clip)
