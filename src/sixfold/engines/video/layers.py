"""Separation of a still image into complete layers, from far to near, with hidden regions filled in.

A layer consists of pixels, nearness and, except for the farthest layer, a matte. Because every layer
continues behind the next one, camera moves do not open holes or smear edges.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video import yuv
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

# Shares of the short side: the margin around a matte that is filled in behind it, and the margin of the
# matte.
_RIM, _LAP = 0.011, 0.004
# The largest difference by which an object may be nearer than the ground at its foot.
ABOVE_GROUND = 0.06
# Nearness within a layer is blurred by this fraction of the grid's width, so that the image does not tear.
_SOFT = 0.02


class BackgroundLayer(msgspec.Struct, frozen=True):
    """A layer: its planes, its nearness (reduced, float32, 0 far to 1 near) and its `matte` in bytes."""

    planes: YuvPlanes
    near: Array
    matte: Array | None = None
    half_matte: Array | None = None


class MoverGait(msgspec.Struct, frozen=True):
    """The speed of a subject in widths per second, and its vertical motion (see `movers.toml`)."""

    pace: float
    bob: float
    beat: float
    floats: bool = False


class MovingSprite(msgspec.Struct, frozen=True):
    """A painted subject: pixels (RGB bytes) and matte (bytes) from `left` and `top` of the still.

    `center` and `height` are those of the subject, or of the animal or vehicle that it rides, in pixels;
    `nearness` is 0 far to 1 near.
    """

    name: str
    rgb: Array
    matte: Array
    left: int
    top: int
    center: float
    height: float
    is_mirrored: bool
    nearness: float
    gait: MoverGait


class SourceStill(msgspec.Struct, frozen=True):
    """A still image with even sides; `near`, `sky` and `water` are float32 in 0..1 of any size.

    `fronts` are the foreground masks from far to near (float32 in 0..1, any size). `sprites` are subjects
    that move through the scene, and that the image does not show.
    """

    rgb: Array
    near: Array
    fronts: tuple[Array, ...] = ()
    sky: Array | None = None
    water: Array | None = None
    sprites: tuple[MovingSprite, ...] = ()


def separate(still: SourceStill, grid: tuple[int, int]) -> tuple[BackgroundLayer, ...]:
    """Return the layers of a still, far to near; `grid` is the size (width, height) of the nearness maps."""
    height, width = still.rgb.shape[:2]
    near = cv2.resize(still.near, grid, interpolation=cv2.INTER_AREA)
    solids = [
        (cv2.resize(front, (width, height), interpolation=cv2.INTER_LINEAR) > 0.5).astype(np.uint8)
        for front in still.fronts
    ]
    rim, lap = _disc(_RIM * min(width, height)), _disc(_LAP * min(width, height))
    layers: list[BackgroundLayer] = []
    for index in range(len(solids) + 1):
        nearer = solids[index] if index < len(solids) else np.zeros((height, width), np.uint8)
        planes = yuv.of_rgb(remove(still.rgb, cv2.dilate(nearer, rim)) if index < len(solids) else still.rgb)
        visible = 1 - nearer if index == 0 else solids[index - 1] & (1 - nearer)
        level = _level(near, visible, grid)
        if index == 0:
            layers.append(BackgroundLayer(planes, level))
            continue
        matte = cv2.GaussianBlur(cv2.dilate(solids[index - 1], lap) * np.uint8(255), (0, 0), 1.1)
        half = cv2.resize(matte, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        small = cv2.resize(solids[index - 1], grid, interpolation=cv2.INTER_AREA)
        layers.append(
            BackgroundLayer(planes, _ground_objects(level, layers[-1].near, small > 0), matte, half)
        )
    return tuple(layers)


def _level(near: Array, visible: Array, grid: tuple[int, int]) -> Array:
    """Return a layer's nearness, extended to the regions that it does not cover, and smoothed."""
    share = cv2.resize(visible.astype(np.float32), grid, interpolation=cv2.INTER_AREA)
    own = (
        fill_hidden(near[..., None], (share < 0.95).astype(np.uint8))
        if share.max() > 0.95
        else near[..., None]
    )
    flat = own.reshape(own.shape[:2]).astype(np.float32)
    return cv2.GaussianBlur(flat, (0, 0), _SOFT * grid[0])


def _ground_objects(near: Array, ground: Array, front: Array) -> Array:
    """Limit objects to the nearness of the ground at their feet, so that they do not slide over it."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(front.astype(np.uint8))
    lowest, out = front.shape[0] - 1, near.copy()
    for label in range(1, count):
        left, top, width, height, _area = stats[label]
        foot = top + height
        if foot >= lowest:
            continue
        under = ground[foot, left : left + width][labels[foot - 1, left : left + width] == label]
        box = (slice(top, foot), slice(left, left + width))
        inside = labels[box] == label
        if under.size:
            limit = np.float32(np.median(under) + ABOVE_GROUND)
            out[box][inside] = np.minimum(np.median(near[box][inside]), limit)
    filled_depth = fill_hidden(out[..., None], (~front).astype(np.uint8))
    return cv2.GaussianBlur(filled_depth.reshape(front.shape).astype(np.float32), (0, 0), 1.5)


def _disc(radius: float) -> Array:
    side = 2 * max(1, round(radius)) + 1
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))


def remove(rgb: Array, hidden: Array) -> Array:
    """Return the image with the `hidden` pixels (nonzero bytes) filled in from their surroundings."""
    if not hidden.any():
        return rgb
    smooth = fill_hidden(rgb.astype(np.float32), hidden)
    soft = cv2.GaussianBlur(hidden.astype(np.float32), (0, 0), 1.2)[..., None] * (hidden[..., None] > 0)
    return np.clip(rgb + (smooth - rgb) * soft, 0, 255).astype(np.uint8)


def fill_hidden(values: Array, hidden: Array) -> Array:
    """Fill in hidden float values (height, width, channels) from the known values around them.

    Each level of a pyramid averages the known values and passes the averages down to the unknown values.
    """
    visible = (hidden == 0).astype(np.float32)
    levels = [(values * visible[..., None], visible)]
    while min(levels[-1][1].shape) > 2 and levels[-1][1].min() < 1e-3:
        color, weight = levels[-1]
        size = (max(1, -(-weight.shape[1] // 2)), max(1, -(-weight.shape[0] // 2)))
        levels.append(
            (
                _channels(cv2.resize(color, size, interpolation=cv2.INTER_AREA)),
                cv2.resize(weight, size, interpolation=cv2.INTER_AREA),
            )
        )
    result: Array | None = None
    for color, weight in reversed(levels):
        level = color / np.maximum(weight, 1e-4)[..., None]
        if result is None:
            result = level
            continue
        size = (weight.shape[1], weight.shape[0])
        wide = _channels(cv2.resize(result, size, interpolation=cv2.INTER_LINEAR))
        share = np.clip(weight * 4, 0, 1)[..., None]
        result = wide + (level - wide) * share
    assert result is not None  # noqa: S101 - there is always a first level
    return result


def _channels(values: Array) -> Array:
    return values if values.ndim == 3 else values[..., None]
