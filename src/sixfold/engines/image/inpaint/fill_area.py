"""The part of an image that a model paints for a mask, and its insertion into the whole image.

A model paints the masked part together with its surroundings, at the size for which the model was trained.
Only the pixels of the mask and its soft edge come from the model; all others are unchanged.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np

from sixfold.core.catalog.engines import Artifact, EngineError, Task, UnusableInput
from sixfold.engines.image import decode, decoder_process, encode
from sixfold.engines.image.decode import DecodedImage, Pixels
from sixfold.engines.image.inpaint import masks
from sixfold.engines.image.inpaint.masks import MaskHole
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.limited_process import Argument

_LEAST_SIDE = 512  # pixels of the area, if the image is large enough
_MARGIN = 0.5  # fraction of the mask's longer side, on each side of it
_MEMORY_BYTES = 3 * 2**29  # memory for an image of 40 megapixels with its mask and distances
_PROCESSES = threading.BoundedSemaphore(2)  # processes at a time, to limit their memory
_INPUTS = ("grow", "feather", "mask_by")  # inputs of a task that are passed to the other process
# The files of a task, and its inputs.
_TASK_ARGUMENTS = 2 + len(_INPUTS)


class FillArea(msgspec.Struct, frozen=True):
    """A decoded image with the hole of its mask; `box` is left, top, width and height of the area."""

    image: DecodedImage
    hole: MaskHole
    box: tuple[int, int, int, int]

    @property
    def pixels(self) -> Pixels:
        """The area's pixels (HxWx3)."""
        return np.ascontiguousarray(self.image.rgb[self._slices])

    @property
    def mask(self) -> Pixels:
        """The area's mask (HxW): 255 where the model paints, 0 elsewhere."""
        return self.hole.mask[self._slices].astype(np.uint8) * 255

    def finish(self, painted: Pixels) -> Pixels:
        """Return the whole image with the painted area (HxWx3, of any size) in its hole."""
        area, fitted = self._slices, _resize(painted, self.box[2:])
        result = self.image.rgb.copy()
        result[area] = masks.blend(result[area], fitted, self.hole.cover[area])
        return result

    @property
    def _slices(self) -> tuple[slice, slice]:
        left, top, width, height = self.box
        return slice(top, top + height), slice(left, left + width)


def read(task: Task) -> FillArea:
    """Return the area of a task's `image` and `mask`; raises `UnusableInput` if the mask marks no pixels."""
    image, hole = masks.read(task)
    if hole is None:
        raise UnusableInput("The mask is empty: make the area to fill white or transparent.")
    return FillArea(image, hole, _box(hole, image.width, image.height))


def _box(hole: MaskHole, width: int, height: int) -> tuple[int, int, int, int]:
    left, top, hole_width, hole_height = hole.box
    margin = round(_MARGIN * max(hole_width, hole_height))
    start_x, size_x = _span(left, hole_width, margin, width)
    start_y, size_y = _span(top, hole_height, margin, height)
    return start_x, start_y, size_x, size_y


def _span(start: int, length: int, margin: int, limit: int) -> tuple[int, int]:
    """Return start and length of a side of the area: hole and margins, at least `_LEAST_SIDE` pixels."""
    size = min(limit, max(_LEAST_SIDE, length + 2 * margin))
    begin = start + (length - size) // 2
    return min(max(0, begin), limit - size), size


# -- in a process with a memory limit ------------------------------------------------------------------


class PreparedArea(msgspec.Struct, frozen=True):
    """The area of a task as PNG files for a provider: the image, and the mask (white is painted)."""

    task: Task
    image: bytes
    mask: bytes
    size: tuple[int, int]

    def finish(self, painted: Path, output: OutputFormat) -> Artifact:
        """Return the whole image, encoded; raises `EngineError` if `painted` cannot be read. Blocks."""
        try:
            data, (width, height) = _call(
                "_finish", self.task, str(painted), *msgspec.structs.astuple(output)
            )
        except UnusableInput as error:
            raise EngineError("The model returned an image that cannot be read: try again.") from error
        return Artifact(output.content_type, data, {"width": width, "height": height})


def prepare(task: Task) -> PreparedArea:
    """Return the area of a task as files; raises `UnusableInput`. Blocks."""
    image, mask, size = _call("_prepare", task)
    return PreparedArea(task, image, mask, tuple(size))


def _call(name: str, task: Task, *arguments: Argument) -> Any:
    files = [str(masks.path(task, file)) for file in ("image", "mask")]
    inputs = [task.inputs.get(name) for name in _INPUTS]
    with _PROCESSES:
        return decoder_process.call(f"{__name__}:{name}", _MEMORY_BYTES, *files, *inputs, *arguments)


def _prepare(*arguments: Argument) -> tuple[bytes, bytes, tuple[int, int]]:
    area = read(_task(*arguments))
    pixels = encode.encode(area.pixels, None, format="png", quality=100)
    white = encode.encode(np.repeat(area.mask[..., None], 3, axis=2), None, format="png", quality=100)
    return pixels, white, (area.box[2], area.box[3])


def _finish(*arguments: Argument) -> tuple[bytes, tuple[int, int]]:
    of_task, (painted, *fields) = arguments[:_TASK_ARGUMENTS], arguments[_TASK_ARGUMENTS:]
    area = read(_task(*of_task))
    rgb = area.finish(decode.decode(Path(str(painted))).rgb)
    output = msgspec.convert(fields, OutputFormat)
    return output.encode(rgb, area.image.alpha), (area.image.width, area.image.height)


def _task(image: Argument, mask: Argument, *inputs: Argument) -> Task:
    files = {"image": Path(str(image)), "mask": Path(str(mask))}
    return Task("", "", dict(zip(_INPUTS, inputs, strict=True)), files)


def _resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    height, width = pixels.shape[:2]
    if (width, height) == size:
        return pixels
    smaller = width * height > size[0] * size[1]
    method = cv2.INTER_AREA if smaller else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(pixels, size, interpolation=method), np.uint8)
