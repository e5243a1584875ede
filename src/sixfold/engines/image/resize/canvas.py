"""Application of a resize plan to pixels, to an alpha channel or to a mask."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.resize.plan import ResizePlan

Array = NDArray[Any]

# Depth of the edges that are mirrored as surroundings, as a fraction of a side.
_RIM = 0.06
# Distance at which an extension is out of focus, as a fraction of the canvas.
_SOFT = 0.05
# Blur at the edge, at the distance `_SOFT`, and from the distance `_FAR`, in multiples of `_SOFT`.
_SOFTER = (1 / 8, 1, 4)
# Distance of the strongest blur, in multiples of `_SOFT`.
_FAR = 5
# Vertical blur at the sides relative to the horizontal blur, small so that sky stays above ground.
_LEVEL = 1 / 4
_FILL_SIDE = 320


def apply(image: Array, plan: ResizePlan, target: tuple[int, int], *, fill: bool = True) -> Array:
    """Return `image` (HxW or HxWxC) at `target` (width, height); without `fill` the added canvas is 0."""
    part = _part(image, plan)
    if plan.carved is not None:
        return _carve(part, plan, target)
    if plan.method != "extend":
        return scale_to(part, target)
    return _extend(part, target, fill=fill)


def _part(image: Array, plan: ResizePlan) -> Array:
    height, width = image.shape[:2]
    left, top, right, bottom = plan.box
    first, last = round(left * width), max(round(left * width) + 1, round(right * width))
    upper, lower = round(top * height), max(round(top * height) + 1, round(bottom * height))
    return image[upper:lower, first:last]


def scale_to(image: Array, size: tuple[int, int]) -> Array:
    """Resize an image to (width, height), by area averaging if smaller, by cubic interpolation if larger."""
    if (image.shape[1], image.shape[0]) == size:
        return image
    smaller = size[0] * size[1] <= image.shape[0] * image.shape[1]
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)


def _carve(image: Array, plan: ResizePlan, target: tuple[int, int]) -> Array:
    """Resample along the map of the seams; the side that is not carved is scaled first."""
    if plan.carved is None:
        return image
    oriented = image if plan.across else np.swapaxes(image, 0, 1)
    width, height = target if plan.across else target[::-1]
    scale = height / oriented.shape[0]
    wide = max(1, round(oriented.shape[1] * scale))
    source = scale_to(np.ascontiguousarray(oriented), (wide, height))
    columns = cv2.resize(plan.carved.columns, (width, height), interpolation=cv2.INTER_LINEAR)
    columns = columns * np.float32(wide) - np.float32(0.5)
    rows = np.broadcast_to(np.arange(height, dtype=np.float32)[:, None], columns.shape)
    remapped = cv2.remap(
        source, columns, np.ascontiguousarray(rows), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return remapped if plan.across else np.ascontiguousarray(np.swapaxes(remapped, 0, 1))


def _extend(image: Array, target: tuple[int, int], *, fill: bool) -> Array:
    width, height = target
    scale = min(width / image.shape[1], height / image.shape[0])
    inner = (
        min(width, max(1, round(image.shape[1] * scale))),
        min(height, max(1, round(image.shape[0] * scale))),
    )
    content = scale_to(image, inner)
    left, top = (width - inner[0]) // 2, (height - inner[1]) // 2
    canvas = (
        _surround(content, target, (left, top))
        if fill
        else np.zeros((height, width, *image.shape[2:]), image.dtype)
    )
    canvas[top : top + inner[1], left : left + inner[0]] = content
    return canvas


def _surround(content: Array, target: tuple[int, int], at: tuple[int, int]) -> Array:
    """Return the content's edges, mirrored outwards and increasingly blurred, without a visible seam."""
    width, height = target
    scale = min(1.0, _FILL_SIDE / max(target))
    small = (max(2, round(width * scale)), max(2, round(height * scale)))
    inner = scale_to(
        content, (max(1, round(content.shape[1] * scale)), max(1, round(content.shape[0] * scale)))
    )
    left, top = min(round(at[0] * scale), small[0] - 1), min(round(at[1] * scale), small[1] - 1)
    right, bottom = max(0, small[0] - left - inner.shape[1]), max(0, small[1] - top - inner.shape[0])
    mirrored = _mirror(inner, (top, bottom, left, right)).astype(np.float32)
    mirrored = cv2.resize(mirrored, small, interpolation=cv2.INTER_AREA)
    soft = max(1.0, max(small) * _SOFT)
    level = _LEVEL if left + right else 1.0
    layers = [_blur(mirrored, soft * times, soft * times * level) for times in _SOFTER]
    away = np.zeros(small[::-1], np.float32)
    rows, columns = np.arange(small[1])[:, None], np.arange(small[0])[None]
    away += np.maximum(0, np.maximum(left - columns, columns - (small[0] - right - 1)))
    away += np.maximum(0, np.maximum(top - rows, rows - (small[1] - bottom - 1)))
    mixed = layers[0]
    for layer, begins, ends in zip(layers[1:], (0, soft), (soft, _FAR * soft), strict=True):
        share = np.clip((away - begins) / (ends - begins), 0, 1)
        share = share if mirrored.ndim == 2 else share[..., None]
        mixed = mixed * (1 - share) + layer * share
    large = cv2.resize(mixed, target, interpolation=cv2.INTER_CUBIC)
    return np.clip(np.rint(large), 0, 255).astype(content.dtype)


def _blur(image: Array, across: float, down: float) -> Array:
    return cv2.GaussianBlur(
        image, (0, 0), max(1.0, across), sigmaY=max(1.0, down), borderType=cv2.BORDER_REPLICATE
    )


def _mirror(inner: Array, sides: tuple[int, int, int, int]) -> Array:
    """Mirror the edges outwards, increasingly slowly, so that the subject is not repeated."""
    top, bottom, left, right = sides
    return inner[_mirror_positions(inner.shape[0], top, bottom)][
        :, _mirror_positions(inner.shape[1], left, right)
    ]


def _mirror_positions(length: int, before: int, after: int) -> Array:
    """Return, for each position of a longer row, the index of the mirrored position in a row of `length`."""
    rim = max(1.0, length * _RIM)
    away = np.concatenate([np.arange(before, 0, -1), np.arange(1, after + 1)])
    positions = np.minimum(length - 1, rim * (1 - np.exp(-away / rim))).astype(int)
    return np.concatenate([positions[:before], np.arange(length), length - 1 - positions[before:]])
