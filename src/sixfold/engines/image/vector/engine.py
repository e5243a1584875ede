"""Vectorization with vtracer: an image as an SVG of filled paths."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
import vtracer
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.vector import palette

Pixels = NDArray[Any]  # bytes

_SPECKLE, _PRECISION = 6, 6
# Smallest alpha that counts as opaque.
_OPAQUE = 128


class Preset(msgspec.Struct, frozen=True):
    """Settings for tracing one kind of image.

    `side`: limit of the longer side while tracing. `smooth`: rounds of edge-preserving smoothing. `colors`:
    number of colors at a precision of 6 bits; each further bit multiplies it by 1.7. The rest are settings of
    vtracer: angles in degrees, lengths in pixels.
    """

    side: int
    smooth: int
    colors: int
    mode: str = "spline"
    corner: int = 60
    length: float = 4.0
    splice: int = 45
    decimals: int = 2


PRESETS = {
    "poster": Preset(side=1600, smooth=2, colors=24),
    "logo": Preset(side=1600, smooth=1, colors=10, corner=45),
    "photo": Preset(side=1400, smooth=1, colors=72, corner=120, splice=60),
    "pixel": Preset(side=192, smooth=0, colors=32, mode="none", decimals=0),
}
_STEP = 1.7


class VectorEngine:
    """Traces `image` with a `preset`; `speckle` drops small patches, `color_precision` is in bits."""

    name = "vectorizer"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return an SVG with the image's size, without transparent parts."""
        path = task.files.get("image") or task.files.get("image_url")
        if path is None:
            raise EngineError("image is required.")
        image = decode.decode(path)
        preset = PRESETS.get(str(task.inputs.get("preset")), PRESETS["poster"])
        context.progress(0.1)
        rgba = prepare(image, preset, _integer(task, "color_precision", _PRECISION))
        context.progress(0.3)
        svg = trace(rgba, preset, _integer(task, "speckle", _SPECKLE))
        context.progress(0.9)
        info = {"width": image.width, "height": image.height}
        document = set_size(svg, rgba.shape[1::-1], (image.width, image.height)).encode()
        return Result((Artifact("image/svg+xml", document, info),), {"paths": svg.count("<path")}, "full")


def trace(rgba: Pixels, preset: Preset, speckle: int) -> str:
    """Return the SVG of an image with few colors, without patches of at most `speckle` pixels across."""
    data = encode.encode(np.ascontiguousarray(rgba[..., :3]), rgba[..., 3], format="png")
    return vtracer.convert_raw_image_to_svg(
        data,
        "png",
        "color",
        "stacked",
        preset.mode,
        speckle // 3 if preset.mode == "none" else speckle,
        8,
        0,
        preset.corner,
        preset.length,
        10,
        preset.splice,
        preset.decimals,
    )


def set_size(svg: str, traced_at: tuple[int, int], size: tuple[int, int]) -> str:
    """Return the SVG with the image's size in place of the size at which it was traced."""
    body = svg[svg.index("<path") :] if "<path" in svg else "</svg>"
    (across, down), (width, height) = traced_at, size
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{width}" height="{height}" '
        f'viewBox="0 0 {across} {down}">\n'
    )
    return head + body


def prepare(image: DecodedImage, preset: Preset, precision: int) -> Pixels:
    """Return the pixels to trace: limited in size, smoothed, in few colors, with binary alpha."""
    scale = min(1.0, preset.side / max(image.width, image.height))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    interpolation = cv2.INTER_AREA
    rgb = image.rgb if scale == 1 else cv2.resize(image.rgb, size, interpolation=interpolation)
    for _ in range(preset.smooth):
        rgb = cv2.bilateralFilter(np.ascontiguousarray(rgb), 5, 24, 3)
    rgb = palette.reduce_colors(rgb, max(2, round(preset.colors * _STEP ** (precision - _PRECISION))))
    if image.alpha is None:
        cover = np.full(rgb.shape[:2], 255, np.uint8)
    else:
        cover = cv2.resize(image.alpha, size, interpolation=interpolation)
    return np.dstack([rgb, np.where(cover >= _OPAQUE, 255, 0).astype(np.uint8)])


def _integer(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)
