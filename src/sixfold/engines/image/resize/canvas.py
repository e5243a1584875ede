"""A plan carried out on pixels, on an alpha, or on a mask: all of them go the same way."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.resize.plan import ResizePlan

Array = NDArray[Any]

_RIM = 0.06  # of a side: how far inwards the surroundings look
_SOFT = 0.05  # of the canvas: how soon an extension is out of focus
_SOFTER = (1 / 8, 1, 4)  # times that: the blur at the edge, there, and far out
_FAR = 5  # times that: where far out is
_LEVEL = 1 / 4  # of the blur at the sides: how far it goes up and down, so that sky stays above ground
_FILL_SIDE = 320


def carried_out(image: Array, plan: ResizePlan, target: tuple[int, int], *, fill: bool = True) -> Array:
    """`image` (HxW or HxWxC) at `target` (width, height); without `fill` the added canvas is 0."""
    part = _part(image, plan)
    if plan.carved is not None:
        return _carved(part, plan, target)
    if plan.method != "extend":
        return scaled(part, target)
    return _extended(part, target, fill=fill)


def _part(image: Array, plan: ResizePlan) -> Array:
    height, width = image.shape[:2]
    left, top, right, bottom = plan.box
    first, last = round(left * width), max(round(left * width) + 1, round(right * width))
    upper, lower = round(top * height), max(round(top * height) + 1, round(bottom * height))
    return image[upper:lower, first:last]


def scaled(image: Array, size: tuple[int, int]) -> Array:
    """An image at another size (width, height): by areas when smaller, by cubics when larger."""
    if (image.shape[1], image.shape[0]) == size:
        return image
    smaller = size[0] * size[1] <= image.shape[0] * image.shape[1]
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)


def _carved(image: Array, plan: ResizePlan, target: tuple[int, int]) -> Array:
    """Resample along the seams' map; the side that is not carved is scaled first."""
    if plan.carved is None:
        return image
    turned = image if plan.across else np.swapaxes(image, 0, 1)
    width, height = target if plan.across else target[::-1]
    scale = height / turned.shape[0]
    wide = max(1, round(turned.shape[1] * scale))
    source = scaled(np.ascontiguousarray(turned), (wide, height))
    columns = cv2.resize(plan.carved.columns, (width, height), interpolation=cv2.INTER_LINEAR)
    columns = columns * np.float32(wide) - np.float32(0.5)
    rows = np.broadcast_to(np.arange(height, dtype=np.float32)[:, None], columns.shape)
    drawn = cv2.remap(
        source, columns, np.ascontiguousarray(rows), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return drawn if plan.across else np.ascontiguousarray(np.swapaxes(drawn, 0, 1))


def _extended(image: Array, target: tuple[int, int], *, fill: bool) -> Array:
    width, height = target
    scale = min(width / image.shape[1], height / image.shape[0])
    inner = (
        min(width, max(1, round(image.shape[1] * scale))),
        min(height, max(1, round(image.shape[0] * scale))),
    )
    content = scaled(image, inner)
    left, top = (width - inner[0]) // 2, (height - inner[1]) // 2
    canvas = (
        _surround(content, target, (left, top))
        if fill
        else np.zeros((height, width, *image.shape[2:]), image.dtype)
    )
    canvas[top : top + inner[1], left : left + inner[0]] = content
    return canvas


def _surround(content: Array, target: tuple[int, int], at: tuple[int, int]) -> Array:
    """The content's own edges, mirrored outwards and soon out of focus, without a visible seam."""
    width, height = target
    scale = min(1.0, _FILL_SIDE / max(target))
    small = (max(2, round(width * scale)), max(2, round(height * scale)))
    inner = scaled(
        content, (max(1, round(content.shape[1] * scale)), max(1, round(content.shape[0] * scale)))
    )
    left, top = min(round(at[0] * scale), small[0] - 1), min(round(at[1] * scale), small[1] - 1)
    right, bottom = max(0, small[0] - left - inner.shape[1]), max(0, small[1] - top - inner.shape[0])
    mirrored = _mirrored(inner, (top, bottom, left, right)).astype(np.float32)
    mirrored = cv2.resize(mirrored, small, interpolation=cv2.INTER_AREA)
    soft = max(1.0, max(small) * _SOFT)
    level = _LEVEL if left + right else 1.0
    layers = [_blurred(mirrored, soft * times, soft * times * level) for times in _SOFTER]
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


def _blurred(image: Array, across: float, down: float) -> Array:
    return cv2.GaussianBlur(
        image, (0, 0), max(1.0, across), sigmaY=max(1.0, down), borderType=cv2.BORDER_REPLICATE
    )


def _mirrored(inner: Array, sides: tuple[int, int, int, int]) -> Array:
    """The rim mirrored outwards, ever more slowly: no subject of the middle stands in it again."""
    top, bottom, left, right = sides
    return inner[_inwards(inner.shape[0], top, bottom)][:, _inwards(inner.shape[1], left, right)]


def _inwards(length: int, before: int, after: int) -> Array:
    """Which of `length` places is seen at each place of a longer row."""
    rim = max(1.0, length * _RIM)
    away = np.concatenate([np.arange(before, 0, -1), np.arange(1, after + 1)])
    seen = np.minimum(length - 1, rim * (1 - np.exp(-away / rim))).astype(int)
    return np.concatenate([seen[:before], np.arange(length), length - 1 - seen[before:]])
