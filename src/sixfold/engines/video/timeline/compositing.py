"""What a frame is painted on: sheets of bytes, one behind the other, and the layers that go over them.

A GIF has one sheet, of RGB. A film has three, as its encoder wants them: lightness, and two colours at half
its size (4:2:0, BT.709, video range), so that the frame of a film goes through as it is. A layer brings the
same sheets for its place, weighed by covers where it does not cover all of it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video import encode, yuv
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.timeline.sprites import Sprite

Array = NDArray[Any]
Sheets = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class CompositeLayer:
    """Sheets with their left upper corner at a place of the frame; `covers` are of the same shapes."""

    sheets: Sheets
    left: int
    top: int
    covers: Sheets | None = None


class CompositeCanvas(Protocol):
    """One kind of sheets, and what makes them."""

    @property
    def steps(self) -> tuple[int, ...]:
        """How many pixels of the frame, across and down, one of each sheet stands for."""
        ...

    def ground(self, size: tuple[int, int], colour: tuple[int, int, int]) -> Sheets:
        """A frame of one colour."""
        ...

    def layer(self, sprite: Sprite) -> CompositeLayer:
        """A sprite on this paper."""
        ...

    def frame(self, reel: VideoReader, frame: Any, size: tuple[int, int]) -> Sheets | None:
        """A film's frame at an even size, where it needs no conversion."""
        ...


class Rgb:
    """One sheet of RGB."""

    steps = (1,)

    def ground(self, size: tuple[int, int], colour: tuple[int, int, int]) -> Sheets:
        """A frame of one colour."""
        return (np.full((size[1], size[0], 3), colour, np.uint8),)

    def layer(self, sprite: Sprite) -> CompositeLayer:
        """A sprite as it is."""
        covers = None if sprite.cover is None else (sprite.cover,)
        return CompositeLayer((sprite.pixels,), sprite.left, sprite.top, covers)

    def frame(self, reel: VideoReader, frame: Any, size: tuple[int, int]) -> Sheets | None:
        """None: no film is of RGB."""
        return None


class HalvedLayer:
    """Lightness at full size, two colours at half."""

    steps = (1, 2, 2)

    def ground(self, size: tuple[int, int], colour: tuple[int, int, int]) -> Sheets:
        """A frame of one colour, its sides even."""
        return tuple(
            np.full((size[1] // step, size[0] // step), part, np.uint8)
            for step, part in zip(self.steps, yuv.colour_of(colour), strict=True)
        )

    def layer(self, sprite: Sprite) -> CompositeLayer:
        """A sprite, with a rim of no cover up to where the colours have pixels."""
        height, width = sprite.pixels.shape[:2]
        if sprite.cover is None and not (sprite.left | sprite.top | width | height) & 1:
            return CompositeLayer(encode.sheets(sprite.pixels), sprite.left, sprite.top)
        cover = np.full((height, width), 255, np.uint8) if sprite.cover is None else sprite.cover[..., 0]
        before, above = sprite.left & 1, sprite.top & 1
        weighed = cv2.copyMakeBorder(
            np.dstack([sprite.pixels, cover]),
            above,
            (above + height) & 1,
            before,
            (before + width) & 1,
            cv2.BORDER_CONSTANT,
            value=(0, 0, 0, 0),
        )
        full = yuv.of_weighed(weighed)
        light, _, _, whole = cv2.split(full)
        _, *colours, part = cv2.split(cv2.resize(full, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA))
        covers = (whole, part, part)
        return CompositeLayer((light, *colours), sprite.left - before, sprite.top - above, covers)

    def frame(self, reel: VideoReader, frame: Any, size: tuple[int, int]) -> Sheets | None:
        """The frame's own planes, where they are such ones."""
        return reel.planes(frame, size)


PAPERS: dict[str, CompositeCanvas] = {"gif": Rgb(), "mp4": HalvedLayer(), "webm": HalvedLayer()}


def cut(
    paper: CompositeCanvas, layer: CompositeLayer, corner: tuple[int, int], size: tuple[int, int]
) -> CompositeLayer:
    """What a layer without a cover has from a corner on, of a size."""
    down, aside = corner[1] - layer.top, corner[0] - layer.left
    found = (
        sheet[down // step :, aside // step :][: size[1] // step, : size[0] // step]
        for step, sheet in zip(paper.steps, layer.sheets, strict=True)
    )
    return CompositeLayer(tuple(found), *corner)


def lay(
    paper: CompositeCanvas, canvas: Sheets, layer: CompositeLayer, opacity: float = 1.0, shift: int = 0
) -> None:
    """Lay a layer over the canvas, `shift` pixels to the right: as many as its coarsest sheet can go."""
    covers = layer.covers or itertools.repeat(None)
    for step, under, pixels, cover in zip(paper.steps, canvas, layer.sheets, covers, strict=False):
        _over(under, pixels, cover, ((layer.left + shift) // step, layer.top // step), opacity)


def _over(under: Array, pixels: Array, cover: Array | None, corner: tuple[int, int], opacity: float) -> None:
    left, top = corner
    height, width = pixels.shape[:2]
    x0, y0 = max(0, left), max(0, top)
    x1, y1 = min(under.shape[1], left + width), min(under.shape[0], top + height)
    if x0 >= x1 or y0 >= y1:
        return
    part = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    under, pixels = under[y0:y1, x0:x1], pixels[part]
    if cover is None:
        under[:] = pixels if opacity >= 1 else cv2.addWeighted(pixels, opacity, under, 1 - opacity, 0)
        return
    cover = cover[part]
    if opacity < 1:
        pixels, cover = (cv2.convertScaleAbs(one, alpha=opacity) for one in (pixels, cover))
    under[:] = cv2.add(cv2.multiply(under, cv2.bitwise_not(cover), scale=1 / 255), pixels)


def mixed(under: Sheets, over: Sheets, share: float) -> Sheets:
    """Two canvases, the second by its share."""
    pairs = zip(under, over, strict=True)
    return tuple(cv2.addWeighted(second, share, first, 1 - share, 0) for first, second in pairs)


def wiped(under: Sheets, over: Sheets, share: float) -> Sheets:
    """Two canvases, the second seen from the left up to a soft edge that goes to the right."""
    return tuple(_wiped(*pair, share) for pair in zip(under, over, strict=True))


def _wiped(under: Array, over: Array, share: float) -> Array:
    width = under.shape[1]
    soft = max(4.0, width / 40)
    edge = share * (width + soft) - soft
    weight = np.clip((edge + soft - np.arange(width)) / soft, 0, 1)
    first, last = math.floor(max(0, edge)), math.ceil(min(width, max(0, edge + soft)))
    out = under.copy()
    out[:, :first] = over[:, :first]
    strip = weight[first:last].astype(np.float32).reshape(1, -1, *[1] * (under.ndim - 2))
    out[:, first:last] = np.rint(over[:, first:last] * strip + under[:, first:last] * (1 - strip))
    return out
