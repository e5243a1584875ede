"""A task in the engine's own words: what all rows of one denoising loop share, and what each has alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image import decode, encode
from sixfold.engines.image.diffusers import loras
from sixfold.engines.image.diffusers.loras import Chosen
from sixfold.engines.image.diffusers.options import DiffusersOptions, InvalidDiffusersOption
from sixfold.engines.image.diffusers.options import adapters as listed_adapters
from sixfold.engines.image.scene.noise import stable_seed

Pixels = NDArray[np.uint8]

_SIDES = (64, 4096)
_MAX_STEPS = 150
_MAX_PICTURES = 8
_MAX_ADAPTERS = 8
_STRENGTH = 0.6
_SOURCE_INPUTS = ("source_image_url", "image")
_CONTROL_INPUTS = ("control_image_url", "control_image")


@dataclass(frozen=True, slots=True)
class ControlImage:
    """How a control image leads: its kind, how strongly, and between which parts of the loop."""

    kind: str
    scale: float = 1.0
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class SamplingRecipe:
    """What tasks must agree in to be denoised together; `size` is the asked one, in pixels."""

    source: str
    size: tuple[int, int]
    from_image: bool = False
    strength: float = _STRENGTH
    control: ControlImage | None = None
    steps: int | None = None
    guidance: float | None = None
    negative: bool = False
    safety: bool = True
    adapters: Chosen = ()


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One image to make: whose it is, its words, its seed, and the images that it starts from."""

    owner: int
    prompt: str
    negative: str
    seed: int
    image: Pixels | None = None
    control: Pixels | None = None


@dataclass(frozen=True, slots=True)
class DiffusersTask:
    """A task, read: the recipe, its rows, and how the results are written."""

    recipe: SamplingRecipe
    rows: tuple[SizeRow, ...]
    format: str
    quality: int
    alpha: Pixels | None = None


def recipe_of(task: Task, options: DiffusersOptions, size: tuple[int, int] | None = None) -> SamplingRecipe:
    """The recipe of a task; for one that starts from an image, `size` is the image's.

    Raises `EngineError` for what no loop could be run with.
    """
    inputs = task.inputs
    from_image = any(name in task.files for name in _SOURCE_INPUTS)
    if size is None and from_image:
        size = decode.probe(_file(task, _SOURCE_INPUTS))[1:]
    if size is None:
        size = _side(inputs, "width"), _side(inputs, "height")
    steps = _bounded(inputs, "steps", (1, _MAX_STEPS))
    return SamplingRecipe(
        source=options.source_of(str(inputs.get("base") or task.model)),
        size=size,
        from_image=from_image,
        strength=_bounded(inputs, "strength", (0.01, 1)) or _STRENGTH,
        control=_control(task) if any(name in task.files for name in _CONTROL_INPUTS) else None,
        steps=None if steps is None else round(steps),
        guidance=_bounded(inputs, "guidance", (0, 30)),
        negative=bool(str(inputs.get("negative_prompt") or "").strip()),
        safety=inputs.get("enable_safety_checker", True) is not False,
        adapters=_adapters(task, options),
    )


def read(task: Task, owner: int, options: DiffusersOptions) -> DiffusersTask:
    """Everything of a task; raises `EngineError` with a sentence."""
    inputs = task.inputs
    picture = None
    if any(name in task.files for name in _SOURCE_INPUTS):
        picture = _capped(decode.decode(_file(task, _SOURCE_INPUTS), target=(_SIDES[1], _SIDES[1])))
    recipe = recipe_of(task, options, None if picture is None else (picture.width, picture.height))
    prompt = str(inputs.get("style_prompt") or inputs.get("prompt") or "")
    guide = None if recipe.control is None else _guide(task, recipe.control)
    count = round(_bounded(inputs, "num_images", (1, _MAX_PICTURES)) or 1)
    negative = str(inputs.get("negative_prompt") or "")
    image = None if picture is None else picture.rgb
    rows = tuple(
        SizeRow(owner, prompt, negative, seed, image, guide)
        for seed in seeds(int(inputs.get("seed") or 0), count)
    )
    form = _form(inputs.get("format") or ("png" if picture is None else "webp"))
    quality = round(_bounded(inputs, "quality", (1, 100)) or 90)
    return DiffusersTask(recipe, rows, form, quality, None if picture is None else picture.alpha)


def _guide(task: Task, control: ControlImage) -> Pixels:
    """The image that a ControlNet follows, as lines where it wants lines and was given none."""
    picture = decode.decode(_file(task, _CONTROL_INPUTS)).rgb
    return edges(picture) if control.kind == "canny" and not task.inputs.get("control_ready") else picture


def _form(given: Any) -> str:
    """The name of an encoding; raises `EngineError`."""
    form = str(given).lower().replace("jpg", "jpeg")
    if form not in encode.CONTENT_TYPES:
        raise EngineError(f"The format must be one of {', '.join(encode.CONTENT_TYPES)}.")
    return form


def seeds(first: int, count: int) -> list[int]:
    """A seed for each image; the first is the asked one, as with the embedded painter."""
    return [first, *(stable_seed("image", first, index) % 2**31 for index in range(1, count))]


def edges(picture: Pixels) -> Pixels:
    """The image's outlines, white on black, as a Canny ControlNet has learnt them."""
    gray = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return np.repeat(cv2.Canny(gray, 100, 200)[..., None], 3, axis=2).astype(np.uint8)


def fitted(picture: Pixels, size: tuple[int, int]) -> Pixels:
    """The image scaled to cover `size` (width, height) and cropped around its middle to it, exactly."""
    height, width = picture.shape[:2]
    if (width, height) == size:
        return picture
    scale = max(size[0] / width, size[1] / height)
    if scale < 1 - 1e-3 or scale > 1 + 1e-3:
        new = max(size[0], round(width * scale)), max(size[1], round(height * scale))
        picture = np.asarray(
            cv2.resize(picture, new, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LANCZOS4),
            np.uint8,
        )
        width, height = new
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    return np.ascontiguousarray(picture[top : top + size[1], left : left + size[0]])


def _file(task: Task, names: tuple[str, ...]) -> Any:
    return next(task.files[name] for name in names if name in task.files)


def _capped(picture: decode.DecodedImage) -> decode.DecodedImage:
    """The image within the largest side that is worked on, and not below the smallest."""
    width, height = picture.width, picture.height
    scale = min(1.0, _SIDES[1] / max(width, height))
    if scale == 1.0:
        return picture
    size = max(1, round(width * scale)), max(1, round(height * scale))
    rgb = np.asarray(cv2.resize(picture.rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
    alpha = picture.alpha
    if alpha is not None:
        alpha = np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_AREA), np.uint8)
    return decode.DecodedImage(rgb, alpha, picture.format)


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


def _adapters(task: Task, options: DiffusersOptions) -> Chosen:
    """The operator's LoRAs for the model, then the task's own: by name, or one of its files."""
    chosen = [(one.file, one.weight) for one in options.loras.get(task.model, ())]
    try:
        for one in listed_adapters(task.inputs.get("loras") or ()):
            if one.file in task.files:
                chosen.append((str(task.files[one.file]), one.weight))
            elif "/" in one.file or "\\" in one.file or one.file.startswith("."):
                raise UnusableInput("A LoRA is named as in the weights' loras folder, without a path.")
            else:
                chosen.append((one.file, one.weight))
    except (InvalidDiffusersOption, TypeError, ValueError) as error:
        raise UnusableInput("loras must be a list of names, or of {file, weight}.") from error
    if len(chosen) > _MAX_ADAPTERS:
        raise UnusableInput(f"At most {_MAX_ADAPTERS} LoRAs can be combined.")
    return loras.resolved(chosen, options.weights)
