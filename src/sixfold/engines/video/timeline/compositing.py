"""Compositing of layers on a canvas of byte planes.

A GIF has one RGB plane. A video has Y, U and V planes in the encoder's format (4:2:0, BT.709, video range),
so that frames of input videos need no conversion. A layer has the same planes for its area, premultiplied by
alpha planes (`covers`) if it is not opaque.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Protocol

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video import encode, yuv
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.timeline.sprites import Sprite

Array = NDArray[Any]
Planes = tuple[Array, ...]


class CompositeLayer(msgspec.Struct, frozen=True):
    """Planes with the position of their top left corner; `covers` are alpha planes of the same shapes."""

    planes: Planes
    left: int
    top: int
    covers: Planes | None = None


class CanvasFormat(Protocol):
    """A plane format and the conversions to it."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The subsampling of each plane: frame pixels per plane pixel in both directions."""
        ...

    def fill(self, size: tuple[int, int], color: tuple[int, int, int]) -> Planes: ...

    def layer(self, sprite: Sprite) -> CompositeLayer: ...

    def frame(self, reader: VideoReader, frame: Any, size: tuple[int, int]) -> Planes | None:
        """Return a video frame's planes at an even size, or None if it must be converted through RGB."""
        ...


class Rgb:
    """A single RGB plane."""

    steps = (1,)

    def fill(self, size: tuple[int, int], color: tuple[int, int, int]) -> Planes:
        return (np.full((size[1], size[0], 3), color, np.uint8),)

    def layer(self, sprite: Sprite) -> CompositeLayer:
        """Return the sprite as a layer without a copy."""
        covers = None if sprite.cover is None else (sprite.cover,)
        return CompositeLayer((sprite.pixels,), sprite.left, sprite.top, covers)

    def frame(self, reader: VideoReader, frame: Any, size: tuple[int, int]) -> Planes | None:
        """Return None, because all videos must be converted to RGB."""
        return None


class Yuv420:
    """A full-size Y plane and half-size U and V planes."""

    steps = (1, 2, 2)

    def fill(self, size: tuple[int, int], color: tuple[int, int, int]) -> Planes:
        """Return a canvas of one color; the sides of `size` are even."""
        return tuple(
            np.full((size[1] // step, size[0] // step), part, np.uint8)
            for step, part in zip(self.steps, yuv.color_of(color), strict=True)
        )

    def layer(self, sprite: Sprite) -> CompositeLayer:
        """Return the sprite as a layer, with a transparent border up to even coordinates."""
        height, width = sprite.pixels.shape[:2]
        if sprite.cover is None and not (sprite.left | sprite.top | width | height) & 1:
            return CompositeLayer(encode.yuv_planes(sprite.pixels), sprite.left, sprite.top)
        cover = np.full((height, width), 255, np.uint8) if sprite.cover is None else sprite.cover[..., 0]
        before, above = sprite.left & 1, sprite.top & 1
        padded = cv2.copyMakeBorder(
            np.dstack([sprite.pixels, cover]),
            above,
            (above + height) & 1,
            before,
            (before + width) & 1,
            cv2.BORDER_CONSTANT,
            value=(0, 0, 0, 0),
        )
        full = yuv.of_premultiplied(padded)
        luma, _, _, full_cover = cv2.split(full)
        _, *chroma, half_cover = cv2.split(
            cv2.resize(full, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        )
        covers = (full_cover, half_cover, half_cover)
        return CompositeLayer((luma, *chroma), sprite.left - before, sprite.top - above, covers)

    def frame(self, reader: VideoReader, frame: Any, size: tuple[int, int]) -> Planes | None:
        """Return the planes of a frame whose format converts directly, or None for other formats."""
        return reader.planes(frame, size)


FORMATS: dict[str, CanvasFormat] = {"gif": Rgb(), "mp4": Yuv420(), "webm": Yuv420()}


def crop(
    canvas_format: CanvasFormat, layer: CompositeLayer, corner: tuple[int, int], size: tuple[int, int]
) -> CompositeLayer:
    """Return the part of an opaque layer that has this top left `corner` and `size` (width, height)."""
    down, right = corner[1] - layer.top, corner[0] - layer.left
    planes = (
        plane[down // step :, right // step :][: size[1] // step, : size[0] // step]
        for step, plane in zip(canvas_format.steps, layer.planes, strict=True)
    )
    return CompositeLayer(tuple(planes), *corner)


def draw(
    canvas_format: CanvasFormat, canvas: Planes, layer: CompositeLayer, opacity: float = 1.0, shift: int = 0
) -> None:
    """Draw a layer on the canvas, `shift` pixels to the right (even for subsampled planes), in place."""
    covers = layer.covers or itertools.repeat(None)
    for step, under, pixels, cover in zip(canvas_format.steps, canvas, layer.planes, covers, strict=False):
        _draw_plane(under, pixels, cover, ((layer.left + shift) // step, layer.top // step), opacity)


def _draw_plane(
    under: Array, pixels: Array, cover: Array | None, corner: tuple[int, int], opacity: float
) -> None:
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


def crossfade(under: Planes, over: Planes, share: float) -> Planes:
    """Blend two canvases; `share` is the opacity of `over`."""
    pairs = zip(under, over, strict=True)
    return tuple(cv2.addWeighted(second, share, first, 1 - share, 0) for first, second in pairs)


def wipe(under: Planes, over: Planes, share: float) -> Planes:
    """Combine two canvases: the second covers `share` of the width from the left, up to a soft edge."""
    return tuple(_wipe_plane(*pair, share) for pair in zip(under, over, strict=True))


def _wipe_plane(under: Array, over: Array, share: float) -> Array:
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
