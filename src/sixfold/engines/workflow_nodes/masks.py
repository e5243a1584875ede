"""Nodes for masks and for images with masks, with the same results as ComfyUI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np

from sixfold.core.workflows.ports import NodeContext, NodeResult, Run
from sixfold.engines.workflow_nodes import images
from sixfold.engines.workflow_nodes.frame_split import check_size
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import Frames, Mask, frames, mask

_CHANNELS = ("red", "green", "blue", "alpha")


def to_image(_context: NodeContext, mask: Any) -> tuple[Frames]:
    return (np.repeat(_mask(mask)[..., None], 3, -1),)


def from_image(_context: NodeContext, image: Any, channel: str) -> tuple[Mask]:
    """Return one channel of images as a mask; a missing alpha channel counts as opaque."""
    pixels, at = frames(image), _CHANNELS.index(channel)
    whole = np.ones(pixels.shape[:3], np.float32)
    return (pixels[..., at] if at < pixels.shape[-1] else whole,)


def from_color(_context: NodeContext, image: Any, color: int) -> tuple[Mask]:
    """Return a mask of the pixels with exactly this color."""
    pixels = np.clip(frames(image) * 255, 0, 255).round().astype(np.int64)
    numbers = (pixels[..., 0] << 16) + (pixels[..., 1] << 8) + pixels[..., 2]
    return (np.where(numbers == color, 1, 0).astype(np.float32),)


def solid(_context: NodeContext, value: float, width: int, height: int) -> tuple[Mask]:
    check_size(width, height)
    return (np.full((1, height, width), value, np.float32),)


def invert(_context: NodeContext, mask: Any) -> tuple[Mask]:
    return (1 - _mask(mask),)


def crop(_context: NodeContext, mask: Any, x: int, y: int, width: int, height: int) -> tuple[Mask]:
    return (_mask(mask)[:, y : y + height, x : x + width],)


def threshold(_context: NodeContext, mask: Any, value: float) -> tuple[Mask]:
    """Return a mask that is white above a value."""
    return ((_mask(mask) > value).astype(np.float32),)


def feather(_context: NodeContext, mask: Any, left: int, top: int, right: int, bottom: int) -> tuple[Mask]:
    """Fade a mask at its borders."""
    result = _mask(mask).copy()
    rows, columns = result.shape[1:]
    for width, length, axis, reversed_ in (
        (left, columns, 2, False),
        (right, columns, 2, True),
        (top, rows, 1, False),
        (bottom, rows, 1, True),
    ):
        count = min(width, length)
        fade = np.ones(length, np.float32)
        fade[:count] = np.arange(1, count + 1, dtype=np.float32) / max(count, 1)
        result *= np.expand_dims(fade[::-1] if reversed_ else fade, tuple({0, 1, 2} - {axis}))
    return (result,)


def grow(_context: NodeContext, mask: Any, expand: int, tapered_corners: bool) -> tuple[Mask]:
    """Grow or shrink a mask by a number of pixels."""
    corner = 0 if tapered_corners else 1
    kernel = np.array([[corner, 1, corner], [1, 1, 1], [corner, 1, corner]], np.uint8)
    work = cv2.erode if expand < 0 else cv2.dilate
    grown = [
        work(each, kernel, iterations=abs(expand), borderType=cv2.BORDER_REFLECT) for each in _mask(mask)
    ]
    return (np.stack(grown),)


def combine(
    _context: NodeContext, destination: Any, source: Any, x: int, y: int, operation: str
) -> tuple[Mask]:
    """Combine a mask with part of another mask."""
    result, overlay = _mask(destination).copy(), _mask(source)
    part = result[:, y : y + overlay.shape[1], x : x + overlay.shape[2]]
    over = overlay[:, : part.shape[1], : part.shape[2]]
    part[:] = _OPERATIONS[operation](part, over)
    return (np.clip(result, 0, 1),)


_OPERATIONS: Mapping[str, Callable[[Mask, Mask], Mask]] = {
    "multiply": lambda base, layer: base * layer,
    "add": lambda base, layer: base + layer,
    "subtract": lambda base, layer: base - layer,
    "and": lambda base, layer: np.logical_and(base.round() > 0, layer.round() > 0).astype(np.float32),
    "or": lambda base, layer: np.logical_or(base.round() > 0, layer.round() > 0).astype(np.float32),
    "xor": lambda base, layer: np.logical_xor(base.round() > 0, layer.round() > 0).astype(np.float32),
}


def composite(
    _context: NodeContext, destination: Any, source: Any, x: int, y: int, resize_source: bool, **more: Any
) -> tuple[Frames]:
    """Paste one image into another image through a mask."""
    below, above = frames(destination).copy(), frames(source)
    if resize_source:
        above = scaled(above, below.shape[2], below.shape[1], "bilinear")
    count = len(below)
    above = _repeat(above, count)
    alpha_mask = np.ones((count, *above.shape[1:3]), np.float32)
    if more.get("mask") is not None:
        alpha_mask = _scale_mask(_mask(more["mask"]), above.shape[1], above.shape[2])
    alpha_mask = _repeat(alpha_mask, count)
    x, y = max(-above.shape[2], min(x, below.shape[2])), max(-above.shape[1], min(y, below.shape[1]))
    left, top = max(0, -x), max(0, -y)
    part = below[:, max(y, 0) : y + above.shape[1], max(x, 0) : x + above.shape[2]]
    height, width, channels = part.shape[1], part.shape[2], min(part.shape[-1], above.shape[-1])
    overlay = above[:, top : top + height, left : left + width, :channels]
    weight = alpha_mask[:, top : top + height, left : left + width, None]
    part[..., :channels] = overlay * weight + part[..., :channels] * (1 - weight)
    return (below,)


def _repeat(series: Frames, count: int) -> Frames:
    return series[np.arange(count) % len(series)]


def _scale_mask(alpha_mask: Mask, rows: int, columns: int) -> Mask:
    return scaled(alpha_mask[..., None], columns, rows, "bilinear")[..., 0]


def join_alpha(_context: NodeContext, image: Any, alpha: Any) -> tuple[Frames]:
    """Add the inverted mask as an alpha channel."""
    pixels = frames(image)
    alpha_mask = 1 - _scale_mask(_mask(alpha), pixels.shape[1], pixels.shape[2])
    count = max(len(pixels), len(alpha_mask))
    rgb = _repeat(pixels[..., :3], count)
    return (np.concatenate([rgb, _repeat(alpha_mask, count)[..., None]], -1),)


def split_alpha(_context: NodeContext, image: Any) -> tuple[Frames, Mask]:
    """Return images without their alpha channel, and its inverse as a mask."""
    pixels = frames(image)
    alpha_mask = pixels[..., 3] if pixels.shape[-1] > 3 else np.ones(pixels.shape[:3], np.float32)
    return pixels[..., :3], 1 - alpha_mask


def preview(context: NodeContext, mask: Any) -> NodeResult:
    """Save a mask as a temporary image."""
    return images.preview(context, to_image(context, mask)[0])


_mask = mask  # the nodes have an input named `mask`

RUNS: Mapping[str, Run] = {
    "MaskToImage": to_image,
    "ImageToMask": from_image,
    "ImageColorToMask": from_color,
    "SolidMask": solid,
    "InvertMask": invert,
    "CropMask": crop,
    "ThresholdMask": threshold,
    "FeatherMask": feather,
    "GrowMask": grow,
    "MaskComposite": combine,
    "ImageCompositeMasked": composite,
    "JoinImageWithAlpha": join_alpha,
    "SplitImageWithAlpha": split_alpha,
    "MaskPreview": preview,
}
