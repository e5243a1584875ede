"""A sheet that combines several source images side by side, in order.

Models with one source image can use a sheet and a prompt that refers to all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import MORE_IMAGES, Context, Task
from sixfold.engines.image import decode, decoder_process, encode
from sixfold.engines.image.decode import Pixels

SOURCE = "source_image_url"
# Maximum side of a sheet in pixels, and the number of images in a row.
_MAX_SIDE, _COLUMNS = 2048, 4
_MEMORY_BYTES = 2**30


def merge(task: Task, context: Context) -> Task:
    """Return the task with one source image; several images are merged into a sheet.

    Raises `UnusableInput`. The function blocks while large files are decoded in another process.
    """
    more = sorted(name for name in task.files if name.startswith(MORE_IMAGES))
    if not more:
        return task
    paths = [task.files[SOURCE], *(task.files[name] for name in more)]
    target = context.scratch / "sheet.png"
    if decoder_process.is_needed(*paths):
        function = f"{__name__}:write"
        decoder_process.call(function, _MEMORY_BYTES, str(target), "\n".join(map(str, paths)))
    else:
        write(str(target), "\n".join(map(str, paths)))
    files = {name: path for name, path in task.files.items() if name not in more}
    return msgspec.structs.replace(task, files={**files, SOURCE: target})


def write(target: str, paths: str) -> None:
    """Write the sheet of the images at `paths`, one per line, as a PNG; raises `UnusableInput`."""
    images: list[Pixels] = []
    for path in paths.split("\n"):
        image = decode.decode(Path(path), target=(_MAX_SIDE, _MAX_SIDE))
        images.append(_scaled(encode.on_white(image.rgb, image.alpha), _MAX_SIDE / _COLUMNS * 2))
    Path(target).write_bytes(encode.encode(arrange(images), format="png"))


def arrange(images: Sequence[Pixels]) -> Pixels:
    """Return a sheet with the images in rows of equal width; the images of a row have the same height."""
    count = -(-len(images) // _COLUMNS)
    size = -(-len(images) // count)
    rows = [_row(images[at : at + size]) for at in range(0, len(images), size)]
    width = max(row.shape[1] for row in rows)
    sheet = np.vstack([_resized(row, width / row.shape[1]) for row in rows])
    return _scaled(sheet, _MAX_SIDE)


def _row(images: Sequence[Pixels]) -> Pixels:
    height = max(image.shape[0] for image in images)
    return np.hstack([_resized(image, height / image.shape[0]) for image in images])


def _scaled(image: Pixels, most: float) -> Pixels:
    """Scale an image down to at most this long side."""
    scale = most / max(image.shape[:2])
    return _resized(image, scale) if scale < 1 else image


def _resized(image: Pixels, scale: float) -> Pixels:
    height, width = image.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size == (width, height):
        return image
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS), np.uint8)
