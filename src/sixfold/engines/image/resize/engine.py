"""Smart resize: one image at up to twenty exact sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.output_format import CONTENT_TYPES
from sixfold.engines.image.resize import canvas
from sixfold.engines.image.resize.plan import DetectedRegion, ResizePlan, find_region, plan

# All other formats are written as PNG.
_FORMATS = {"JPEG": "jpeg", "WEBP": "webp", "AVIF": "avif"}
_QUALITY = 92


class ResizeEngine:
    """Resizes `image_url` (or `image`) to each of `target_sizes`."""

    name = "resizer"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """Return one file per size, in order, in the format of the image; `info` names the method."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise EngineError("image_url is required.")
        sizes = [_size(text) for text in task.inputs["target_sizes"]]
        reach = max(max(size) for size in sizes) * 2
        image = decode.decode(path, target=(reach, reach))
        context.progress(0.1)
        region = find_region(image.rgb)
        context.progress(0.25)
        artifacts: list[Artifact] = []
        for number, size in enumerate(sizes):
            artifacts.append(_artifact(image, region, size, context.scratch / f"{number}"))
            context.progress(0.25 + 0.75 * (number + 1) / len(sizes))
        return Result(tuple(artifacts), {"faces": len(region.heads)}, "full")


def _size(text: object) -> tuple[int, int]:
    width, _, height = str(text).partition("x")
    return int(width), int(height)


def _artifact(image: DecodedImage, region: DetectedRegion, size: tuple[int, int], path: Path) -> Artifact:
    resize_plan = plan(region, (image.width, image.height), size)
    rgb, alpha = resize(image, resize_plan, size)
    kind = _FORMATS.get(image.format, "png")
    path.write_bytes(encode.encode(rgb, alpha, format=kind, quality=_QUALITY))
    info = {"width": size[0], "height": size[1], "method": resize_plan.method}
    return Artifact(CONTENT_TYPES[kind], info=info, path=path)


def resize(
    image: DecodedImage, resize_plan: ResizePlan, size: tuple[int, int]
) -> tuple[Pixels, Pixels | None]:
    """Return an image's colors and alpha (None if opaque) at a size.

    The canvas around an image with alpha is transparent.
    """
    rgb = np.ascontiguousarray(canvas.apply(image.rgb, resize_plan, size), np.uint8)
    if image.alpha is None:
        return rgb, None
    return rgb, np.ascontiguousarray(canvas.apply(image.alpha, resize_plan, size, fill=False), np.uint8)
