"""Smart resize: one image at up to twenty exact sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.resize import canvas
from sixfold.engines.image.resize.plan import DetectedRegion, ResizePlan, look, plan

_FORMATS = {"JPEG": "jpeg", "WEBP": "webp", "AVIF": "avif"}  # everything else becomes a PNG
_QUALITY = 92


class ResizeEngine:
    """Brings `image_url` (or `image`) to each of `target_sizes`."""

    name = "resizer"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """One file for each size, in order, in the image's own format; `info` says by which method."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise EngineError("Resizing needs a picture.")
        sizes = [_size(text) for text in task.inputs["target_sizes"]]
        reach = max(max(size) for size in sizes) * 2
        picture = decode.decode(path, target=(reach, reach))
        context.progress(0.1)
        seen = look(picture.rgb)
        context.progress(0.25)
        artifacts: list[Artifact] = []
        for number, size in enumerate(sizes):
            artifacts.append(_made(picture, seen, size, context.scratch / f"{number}"))
            context.progress(0.25 + 0.75 * (number + 1) / len(sizes))
        return Result(tuple(artifacts), {"faces": len(seen.heads)}, "full")


def _size(text: object) -> tuple[int, int]:
    width, _, height = str(text).partition("x")
    return int(width), int(height)


def _made(picture: DecodedImage, seen: DetectedRegion, size: tuple[int, int], path: Path) -> Artifact:
    way = plan(seen, (picture.width, picture.height), size)
    rgb, alpha = resized(picture, way, size)
    kind = _FORMATS.get(picture.format, "png")
    path.write_bytes(encode.encode(rgb, alpha, format=kind, quality=_QUALITY))
    info = {"width": size[0], "height": size[1], "method": way.method}
    return Artifact(encode.CONTENT_TYPES[kind], info=info, path=path)


def resized(picture: DecodedImage, way: ResizePlan, size: tuple[int, int]) -> tuple[Pixels, Pixels | None]:
    """An image's colors and alpha at a size; what surrounds an image with alpha is nothing."""
    rgb = np.ascontiguousarray(canvas.carried_out(picture.rgb, way, size), np.uint8)
    if picture.alpha is None:
        return rgb, None
    return rgb, np.ascontiguousarray(canvas.carried_out(picture.alpha, way, size, fill=False), np.uint8)
