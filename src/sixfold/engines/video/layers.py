"""A still taken apart into plates, far to near, each complete: what a nearer one hid is filled in.

A plate is a picture with its own nearness and, but for the farthest, a matte. As every plate goes on behind
the next, no move ever opens a hole, and nothing is drawn out into a smear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video import yuv
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

_RIM = 0.011  # of the short side: how far around a matte its own colours are replaced behind it
_LAP = 0.004  # of the short side: how far a matte reaches over its outline
_ABOVE_GROUND = 0.06  # of nearness: enough to be seen as a thing of its own
_SOFT = 0.02  # of the grid's width: nearness changes gently within a plate, so that nothing tears


@dataclass(frozen=True, slots=True)
class BackgroundLayer:
    """One layer: its planes, its `near` (small, float32, 0 far to 1 near), its `matte` (bytes) or None."""

    planes: YuvPlanes
    near: Array
    matte: Array | None = None
    half_matte: Array | None = None


@dataclass(frozen=True, slots=True)
class SourceStill:
    """A picture to be filmed, its sides even. `near`, `sky` and `water` are float32 in 0..1 of any size.

    `fronts` are what stands before everything else, and what stands before that (float32 in 0..1, any size).
    """

    rgb: Array
    near: Array
    fronts: tuple[Array, ...] = ()
    sky: Array | None = None
    water: Array | None = None


def apart(still: SourceStill, grid: tuple[int, int]) -> tuple[BackgroundLayer, ...]:
    """The plates of a still, far to near; `grid` is the size (width, height) that nearness is kept at."""
    height, width = still.rgb.shape[:2]
    near = cv2.resize(still.near, grid, interpolation=cv2.INTER_AREA)
    solids = [
        (cv2.resize(front, (width, height), interpolation=cv2.INTER_LINEAR) > 0.5).astype(np.uint8)
        for front in still.fronts
    ]
    rim, lap = _disc(_RIM * min(width, height)), _disc(_LAP * min(width, height))
    found: list[BackgroundLayer] = []
    for index in range(len(solids) + 1):
        nearer = solids[index] if index < len(solids) else np.zeros((height, width), np.uint8)
        picture = yuv.of_rgb(
            without(still.rgb, cv2.dilate(nearer, rim)) if index < len(solids) else still.rgb
        )
        here = 1 - nearer if index == 0 else solids[index - 1] & (1 - nearer)
        level = _level(near, here, grid)
        if index == 0:
            found.append(BackgroundLayer(picture, level))
            continue
        matte = cv2.GaussianBlur(cv2.dilate(solids[index - 1], lap) * np.uint8(255), (0, 0), 1.1)
        half = cv2.resize(matte, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        small = cv2.resize(solids[index - 1], grid, interpolation=cv2.INTER_AREA)
        found.append(BackgroundLayer(picture, _stood(level, found[-1].near, small > 0), matte, half))
    return tuple(found)


def _level(near: Array, here: Array, grid: tuple[int, int]) -> Array:
    """A plate's nearness: its own where it is, drawn out to where it is not, and gentle throughout."""
    share = cv2.resize(here.astype(np.float32), grid, interpolation=cv2.INTER_AREA)
    own = (
        fill_hidden(near[..., None], (share < 0.95).astype(np.uint8))
        if share.max() > 0.95
        else near[..., None]
    )
    flat = own.reshape(own.shape[:2]).astype(np.float32)
    return cv2.GaussianBlur(flat, (0, 0), _SOFT * grid[0])


def _stood(near: Array, ground: Array, front: Array) -> Array:
    """Each thing no nearer than the ground at its foot, so that it does not slide over it."""
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
            most = np.float32(np.median(under) + _ABOVE_GROUND)
            out[box][inside] = np.minimum(np.median(near[box][inside]), most)
    drawn = fill_hidden(out[..., None], (~front).astype(np.uint8))
    return cv2.GaussianBlur(drawn.reshape(front.shape).astype(np.float32), (0, 0), 1.5)


def _disc(radius: float) -> Array:
    side = 2 * max(1, round(radius)) + 1
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))


def without(rgb: Array, hidden: Array) -> Array:
    """The picture with what is `hidden` (bytes, not 0) filled from around it."""
    if not hidden.any():
        return rgb
    smooth = fill_hidden(rgb.astype(np.float32), hidden)
    soft = cv2.GaussianBlur(hidden.astype(np.float32), (0, 0), 1.2)[..., None] * (hidden[..., None] > 0)
    return np.clip(rgb + (smooth - rgb) * soft, 0, 255).astype(np.uint8)


def fill_hidden(values: Array, hidden: Array) -> Array:
    """Float values (height, width, channels) with the hidden ones drawn from what lies around, near and far.

    A pyramid: each level averages what is known, and hands it back to what is not.
    """
    known = (hidden == 0).astype(np.float32)
    levels = [(values * known[..., None], known)]
    while min(levels[-1][1].shape) > 2 and levels[-1][1].min() < 1e-3:
        colour, weight = levels[-1]
        size = (max(1, -(-weight.shape[1] // 2)), max(1, -(-weight.shape[0] // 2)))
        levels.append(
            (
                _channels(cv2.resize(colour, size, interpolation=cv2.INTER_AREA)),
                cv2.resize(weight, size, interpolation=cv2.INTER_AREA),
            )
        )
    found: Array | None = None
    for colour, weight in reversed(levels):
        here = colour / np.maximum(weight, 1e-4)[..., None]
        if found is None:
            found = here
            continue
        size = (weight.shape[1], weight.shape[0])
        wide = _channels(cv2.resize(found, size, interpolation=cv2.INTER_LINEAR))
        share = np.clip(weight * 4, 0, 1)[..., None]
        found = wide + (here - wide) * share
    assert found is not None  # noqa: S101 - there is always a first level
    return found


def _channels(values: Array) -> Array:
    return values if values.ndim == 3 else values[..., None]
