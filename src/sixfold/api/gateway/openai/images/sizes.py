"""The text-to-image models of `/v1/images/generations` and their sizes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.catalog import metering
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Catalog, Model

# Sizes that OpenAI's clients send by default. A model without such a size uses the one of the nearest aspect
# ratio; one with a narrower range of widths and heights uses the same aspect ratio within its range.
STANDARD = ("256x256", "512x512", "1024x1024", "1536x1024", "1024x1536", "1792x1024", "1024x1792")
_SIZE = re.compile(r"([1-9]\d{1,4})x([1-9]\d{1,4})", re.ASCII)


class ImageSize(NamedTuple):
    """A size that a model supports: its pixels, and the inputs that select it."""

    width: int
    height: int
    inputs: Mapping[str, str]

    @property
    def text(self) -> str:
        """The size as `WIDTHxHEIGHT`."""
        return f"{self.width}x{self.height}"


def names(catalog: Catalog) -> tuple[str, ...]:
    """Return the models that need only a prompt, in the catalog's order."""
    return tuple(model.name for model in catalog.models() if _is_text_to_image(model))


def is_name(catalog: Catalog, name: object) -> bool:
    """Return whether a model needs only a prompt."""
    if not isinstance(name, str) or name not in catalog:
        return False
    return not catalog[name].internal and _is_text_to_image(catalog[name])


def own_inputs(catalog: Catalog, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return additional inputs of a model that was found on this machine, such as its sampler."""
    if name not in catalog.discovered:
        return {}
    input_names = {descriptor.name for descriptor in catalog[name].inputs} - {"prompt", "size"}
    return {key: value for key, value in values.items() if key in input_names}


def inputs(catalog: Catalog, name: str, size: Any) -> dict[str, Any]:
    """Return a model's inputs for the `size` of a request.

    A model that is not in the catalog belongs to the account and accepts any width and height. Raises
    `InvalidRequest` with the supported sizes.
    """
    if size is None or size in ("", "auto"):
        return {}
    sizes = tuple(_sizes(catalog[name])) if name in catalog else ()
    for choice in sizes:
        if size == choice.inputs.get("size"):
            return dict(choice.inputs)
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        allowed = f"one of {_join_sizes(sizes)}" if sizes else "WIDTHxHEIGHT"
        raise InvalidRequest(f"size must be {allowed}, or auto", param="size")
    width, height = int(match[1]), int(match[2])
    if not sizes:
        if size in STANDARD and name in catalog:
            width, height = _within(catalog[name], width, height)
        return {"width": width, "height": height}
    for choice in sizes:
        if (choice.width, choice.height) == (width, height):
            return dict(choice.inputs)
    if size not in STANDARD:
        raise InvalidRequest(f"size must be one of {_join_sizes(sizes)}, or auto (got {size})", param="size")
    return dict(_nearest(sizes, width, height).inputs)


def _is_text_to_image(model: Model) -> bool:
    required = [
        descriptor.name for descriptor in model.inputs if descriptor.required and descriptor.default is None
    ]
    by_prompt = model.output_kind == "image" and required == ["prompt"]
    # Workflows define their own sizes and outputs.
    return by_prompt and model.price != metering.CHILDREN


def _sizes(model: Model) -> Iterator[ImageSize]:
    """Yield the sizes of a model with a fixed list of sizes; nothing for any other model."""
    choices = {descriptor.name: descriptor.choices for descriptor in model.inputs if descriptor.choices}
    size_inputs = model.sized_by or ("size",)
    if not all(name in choices for name in size_inputs):
        return
    for values in itertools.product(*(choices[name] for name in size_inputs)):
        width, height = model.dimensions(" ".join(values))
        yield ImageSize(width, height, dict(zip(size_inputs, values, strict=True)))


def _nearest(sizes: tuple[ImageSize, ...], width: int, height: int) -> ImageSize:
    """Return the size of the nearest aspect ratio, and among those the one with the nearest area."""

    def distance(size: ImageSize) -> tuple[float, float]:
        shape = abs(math.log(size.width * height / (size.height * width)))
        area = abs(math.log(size.width * size.height / (width * height)))
        return round(shape, 2), area

    return min(sizes, key=distance)


def _within(model: Model, width: int, height: int) -> tuple[int, int]:
    """Scale a size into the model's range, keeping the aspect ratio as far as possible."""
    limits = {descriptor.name: descriptor for descriptor in model.inputs}
    sides = [(limits["width"], width), (limits["height"], height)]
    smallest = max((descriptor.min or 1) / side for descriptor, side in sides)
    largest = min((descriptor.max or math.inf) / side for descriptor, side in sides)
    scale = min(max(1.0, smallest), largest)
    scaled = [_side(descriptor, side * scale) for descriptor, side in sides]
    return scaled[0], scaled[1]


def _side(limits: Descriptor, pixels: float) -> int:
    step = limits.snap or 1
    snapped = round(pixels / step) * step
    if snapped > (limits.max or math.inf):
        return snapped - step
    return snapped + step if snapped < (limits.min or 1) else snapped


def _join_sizes(sizes: tuple[ImageSize, ...]) -> str:
    return ", ".join(dict.fromkeys(size.text for size in sizes))
