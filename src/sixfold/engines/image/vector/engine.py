"""An image as an SVG of filled paths, traced by vtracer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import vtracer
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.vector import palette

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_SPECKLE, _PRECISION = 6, 6
_OPAQUE = 128  # alpha from which a pixel is there


@dataclass(frozen=True, slots=True)
class Preset:
    """How a kind of image is traced.

    `side`: the longer side is traced at no more pixels. `smooth`: rounds of edge-keeping smoothing first.
    `colors`: how many a precision of 6 bits means; each bit more is 1.7 times as many. The rest is
    vtracer's own: angles in degrees, lengths in pixels.
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
    """Traces `image` with a `preset`, without specks of `speckle` pixels, in `color_precision` bits."""

    name = "vectorizer"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """An SVG with the image's own size; what is transparent is left out."""
        path = task.files.get("image") or task.files.get("image_url")
        if path is None:
            raise EngineError("Tracing needs a picture.")
        picture = decode.decode(path)
        preset = PRESETS.get(str(task.inputs.get("preset")), PRESETS["poster"])
        context.progress(0.1)
        rgba = prepared(picture, preset, _whole(task, "color_precision", _PRECISION))
        context.progress(0.3)
        svg = traced(rgba, preset, _whole(task, "speckle", _SPECKLE))
        context.progress(0.9)
        info = {"width": picture.width, "height": picture.height}
        whole = sized(svg, rgba.shape[1::-1], (picture.width, picture.height)).encode()
        return Result((Artifact("image/svg+xml", whole, info),), {"paths": svg.count("<path")}, "full")


def traced(rgba: Pixels, preset: Preset, speckle: int) -> str:
    """The SVG text of an image in few colors; patches of at most `speckle` pixels across are left out."""
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


def sized(svg: str, traced_at: tuple[int, int], size: tuple[int, int]) -> str:
    """The drawing with the image's own size, whatever it was traced at."""
    body = svg[svg.index("<path") :] if "<path" in svg else "</svg>"
    (across, down), (width, height) = traced_at, size
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{width}" height="{height}" '
        f'viewBox="0 0 {across} {down}">\n'
    )
    return head + body


def prepared(picture: DecodedImage, preset: Preset, precision: int) -> Pixels:
    """The pixels to trace: no larger than is worth it, without noise, in few colors, there or not."""
    scale = min(1.0, preset.side / max(picture.width, picture.height))
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    how = cv2.INTER_AREA
    rgb = picture.rgb if scale == 1 else cv2.resize(picture.rgb, size, interpolation=how)
    for _ in range(preset.smooth):
        rgb = cv2.bilateralFilter(np.ascontiguousarray(rgb), 5, 24, 3)
    rgb = palette.reduced(rgb, max(2, round(preset.colors * _STEP ** (precision - _PRECISION))))
    if picture.alpha is None:
        cover = np.full(rgb.shape[:2], 255, np.uint8)
    else:
        cover = cv2.resize(picture.alpha, size, interpolation=how)
    return np.dstack([rgb, np.where(cover >= _OPAQUE, 255, 0).astype(np.uint8)])


def _whole(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)
