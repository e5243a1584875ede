"""Parser of tasks into a recipe, which the rows of one denoising batch share, and the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.diffusers import folder_models, loras
from sixfold.engines.image.diffusers.loras import LoraWeights
from sixfold.engines.image.diffusers.options import DiffusersOptions, InvalidDiffusersOption, parse_adapters
from sixfold.engines.image.inpaint import fill_area
from sixfold.engines.image.inpaint.fill_area import FillArea
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.image.scene.noise import stable_seed

Pixels = NDArray[np.uint8]

_SIDES = (64, 4096)
_MAX_STEPS = 150
_MAX_IMAGES = 8
_MAX_ADAPTERS = 8
_STRENGTH = 0.6
_SOURCE_INPUTS = ("source_image_url", "image")
_CONTROL_INPUTS = ("control_image_url", "control_image")
_MASK = "mask"


class ControlImage(msgspec.Struct, frozen=True):
    """Options of a control image: its kind, its scale, and the part of the denoising steps (0 to 1)."""

    kind: str
    scale: float = 1.0
    start: float = 0.0
    end: float = 1.0


class SamplingRecipe(msgspec.Struct, frozen=True):
    """The settings that tasks must share to be denoised together; `size` is the requested size in pixels."""

    source: str
    size: tuple[int, int]
    from_image: bool = False
    strength: float = _STRENGTH
    masked: bool = False
    control: ControlImage | None = None
    steps: int | None = None
    guidance: float | None = None
    negative: bool = False
    safety: bool = True
    adapters: LoraWeights = ()


class SizeRow(msgspec.Struct, frozen=True):
    """One image to generate: its owner, prompts, seed, source image, mask (HxW) and control image."""

    owner: int
    prompt: str
    negative: str
    seed: int
    image: Pixels | None = None
    mask: Pixels | None = None
    control: Pixels | None = None


class DiffusersTask(msgspec.Struct, frozen=True):
    """A parsed task: its recipe, its rows and its output format; `area` is set if a mask is filled."""

    recipe: SamplingRecipe
    rows: tuple[SizeRow, ...]
    output: OutputFormat
    alpha: Pixels | None = None
    area: FillArea | None = None

    def complete(self, pixels: Pixels) -> Pixels:
        """Return the image to encode for generated pixels: the whole image if they fill a mask."""
        return pixels if self.area is None else self.area.finish(pixels)


def recipe_of(task: Task, options: DiffusersOptions, size: tuple[int, int] | None = None) -> SamplingRecipe:
    """Return the recipe of a task; `size` is that of the source image or its area. Raise `EngineError`."""
    inputs = task.inputs
    from_image = any(name in task.files for name in _SOURCE_INPUTS)
    if size is None and from_image:
        size = decode.probe(_file(task, _SOURCE_INPUTS))[1:]
    if size is None:
        size = _side(inputs, "width"), _side(inputs, "height")
    steps = _bounded(inputs, "steps", (1, _MAX_STEPS))
    return SamplingRecipe(
        source=str(inputs.get(folder_models.FOLDER) or "")
        or options.source_of(str(inputs.get("base") or task.model)),
        size=size,
        from_image=from_image,
        masked=_MASK in task.files,
        strength=_bounded(inputs, "strength", (0.01, 1)) or (1.0 if _MASK in task.files else _STRENGTH),
        control=_control(task) if any(name in task.files for name in _CONTROL_INPUTS) else None,
        steps=None if steps is None else round(steps),
        guidance=_bounded(inputs, "guidance", (0, 30)),
        negative=bool(str(inputs.get("negative_prompt") or "").strip()),
        safety=inputs.get("enable_safety_checker", True) is not False,
        adapters=_adapters(task, options),
    )


def parse(task: Task, owner: int, options: DiffusersOptions) -> DiffusersTask:
    """Parse a task; raises `EngineError` if it is invalid."""
    inputs = task.inputs
    source = area = mask = None
    if _MASK in task.files:
        area = fill_area.read(task)
        source, mask = decode.DecodedImage(area.pixels, None, area.image.format), area.mask
    elif any(name in task.files for name in _SOURCE_INPUTS):
        source = _limit_size(decode.decode(_file(task, _SOURCE_INPUTS), target=(_SIDES[1], _SIDES[1])))
    recipe = recipe_of(task, options, None if source is None else (source.width, source.height))
    prompt = str(inputs.get("style_prompt") or inputs.get("prompt") or "")
    guide = None if recipe.control is None else _control_image(task, recipe.control)
    count = round(_bounded(inputs, "num_images", (1, _MAX_IMAGES)) or 1)
    negative = str(inputs.get("negative_prompt") or "")
    image = None if source is None else source.rgb
    rows = tuple(
        SizeRow(owner, prompt, negative, seed, image, mask, guide)
        for seed in seeds(int(inputs.get("seed") or 0), count)
    )
    output = OutputFormat.of(inputs, "png" if source is None else "webp")
    transparent = source if area is None else area.image
    alpha = None if transparent is None else transparent.alpha
    return DiffusersTask(recipe, rows, output, alpha, area)


def _control_image(task: Task, control: ControlImage) -> Pixels:
    """Return the control image, as edges if the ControlNet needs edges and the image is not prepared."""
    image = decode.decode(_file(task, _CONTROL_INPUTS)).rgb
    return edges(image) if control.kind == "canny" and not task.inputs.get("control_ready") else image


def seeds(first: int, count: int) -> list[int]:
    """Return `count` seeds; the first is the requested seed, as in the scene engine."""
    return [first, *(stable_seed("image", first, index) % 2**31 for index in range(1, count))]


def edges(image: Pixels) -> Pixels:
    """Return the Canny edges of an image, white on black, as Canny ControlNets expect."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return np.repeat(cv2.Canny(gray, 100, 200)[..., None], 3, axis=2).astype(np.uint8)


def fit(image: Pixels, size: tuple[int, int]) -> Pixels:
    """Scale an image to cover `size` (width, height) and crop it to exactly that size around its center."""
    height, width = image.shape[:2]
    if (width, height) == size:
        return image
    scale = max(size[0] / width, size[1] / height)
    if scale < 1 - 1e-3 or scale > 1 + 1e-3:
        new = max(size[0], round(width * scale)), max(size[1], round(height * scale))
        image = np.asarray(
            cv2.resize(image, new, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LANCZOS4),
            np.uint8,
        )
        width, height = new
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    return np.ascontiguousarray(image[top : top + size[1], left : left + size[0]])


def _file(task: Task, names: tuple[str, ...]) -> Any:
    return next(task.files[name] for name in names if name in task.files)


def _limit_size(image: decode.DecodedImage) -> decode.DecodedImage:
    """Scale an image down to the largest supported side; each side keeps at least one pixel."""
    width, height = image.width, image.height
    scale = min(1.0, _SIDES[1] / max(width, height))
    if scale == 1.0:
        return image
    size = max(1, round(width * scale)), max(1, round(height * scale))
    rgb = np.asarray(cv2.resize(image.rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
    alpha = image.alpha
    if alpha is not None:
        alpha = np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_AREA), np.uint8)
    return decode.DecodedImage(rgb, alpha, image.format)


def _side(inputs: Mapping[str, Any], name: str) -> int:
    return round(_bounded(inputs, name, _SIDES) or 1024)


def _bounded(inputs: Mapping[str, Any], name: str, bounds: tuple[float, float]) -> float | None:
    value = inputs.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UnusableInput(f"{name} must be a number.") from None
    if not bounds[0] <= number <= bounds[1]:
        raise UnusableInput(f"{name} must be from {bounds[0]:g} to {bounds[1]:g}.")
    return number


def _control(task: Task) -> ControlImage:
    inputs = task.inputs
    start = _bounded(inputs, "control_start", (0, 1)) or 0.0
    end = _bounded(inputs, "control_end", (0, 1))
    end = 1.0 if end is None else end
    if start >= end:
        raise UnusableInput("control_start must be before control_end.")
    scale = _bounded(inputs, "control_scale", (0, 2))
    return ControlImage(str(inputs.get("control") or "canny"), 1.0 if scale is None else scale, start, end)


def _adapters(task: Task, options: DiffusersOptions) -> LoraWeights:
    """Return the operator's LoRAs for the model, then those of the task, given by name or as task files."""
    adapters = [(adapter.file, adapter.weight) for adapter in options.loras.get(task.model, ())]
    try:
        for adapter in parse_adapters(task.inputs.get("loras") or ()):
            if adapter.file in task.files:
                adapters.append((str(task.files[adapter.file]), adapter.weight))
            elif "/" in adapter.file or "\\" in adapter.file or adapter.file.startswith("."):
                raise UnusableInput(
                    "A LoRA must be a file name in the weights' loras folder, without a path."
                )
            else:
                adapters.append((adapter.file, adapter.weight))
        if task.inputs.get(folder_models.FOLDER):
            adapters.extend(folder_models.adapters(task.inputs.get("lora")))
    except (InvalidDiffusersOption, TypeError, ValueError) as error:
        raise UnusableInput("loras must be a list of names or of {file, weight} tables.") from error
    if len(adapters) > _MAX_ADAPTERS:
        raise UnusableInput(f"loras must have at most {_MAX_ADAPTERS} entries (got {len(adapters)}).")
    return loras.resolve(adapters, options.weights)
