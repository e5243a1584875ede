"""The text-to-image models of the catalog as `/v1/images/generations` offers them, and their sizes."""

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

# What clients of OpenAI send by default; a model without such a size makes the one of nearest shape, and one
# that takes a width and a height in a narrower range makes the same shape within it.
STANDARD = ("256x256", "512x512", "1024x1024", "1536x1024", "1024x1536", "1792x1024", "1024x1792")
_SIZE = re.compile(r"([1-9]\d{1,4})x([1-9]\d{1,4})", re.ASCII)


class ImageSize(NamedTuple):
    """One size that a model makes: its pixels, and the inputs that ask for it."""

    width: int
    height: int
    inputs: Mapping[str, str]

    @property
    def text(self) -> str:
        """The size as `WIDTHxHEIGHT`."""
        return f"{self.width}x{self.height}"


def names(catalog: Catalog) -> tuple[str, ...]:
    """The models that make an image from a prompt alone, in the catalog's order."""
    return tuple(model.name for model in catalog.models() if _is_text_to_image(model))


def inputs(catalog: Catalog, name: str, wanted: Any) -> dict[str, Any]:
    """Return a model's inputs for the `size` of a request.

    Raises `InvalidRequest` with the sizes that it makes.

    A model that the catalog lacks is one of the account's own, which takes any width and height.
    """
    if wanted is None or wanted in ("", "auto"):
        return {}
    sizes = tuple(_sizes(catalog[name])) if name in catalog else ()
    for size in sizes:
        if wanted == size.inputs.get("size"):
            return dict(size.inputs)
    found = _SIZE.fullmatch(wanted) if isinstance(wanted, str) else None
    if found is None:
        allowed = f"one of {_listed(sizes)}" if sizes else "WIDTHxHEIGHT"
        raise InvalidRequest(f"size must be {allowed}, or auto", param="size")
    width, height = int(found[1]), int(found[2])
    if not sizes:
        if wanted in STANDARD and name in catalog:
            width, height = _within(catalog[name], width, height)
        return {"width": width, "height": height}
    for size in sizes:
        if (size.width, size.height) == (width, height):
            return dict(size.inputs)
    if wanted not in STANDARD:
        raise InvalidRequest(f"size must be one of {_listed(sizes)}, or auto; got {wanted}", param="size")
    return dict(_nearest(sizes, width, height).inputs)


def _is_text_to_image(model: Model) -> bool:
    required = [each.name for each in model.inputs if each.required and each.default is None]
    by_prompt = model.output_kind == "image" and required == ["prompt"]
    return by_prompt and model.price != metering.CHILDREN  # a workflow has sizes and outputs of its own


def _sizes(model: Model) -> Iterator[ImageSize]:
    """Every size of a model that has a list of them; none for one that takes a width and a height."""
    choices = {each.name: each.choices for each in model.inputs if each.choices}
    by = model.sized_by or ("size",)
    if not all(name in choices for name in by):
        return
    for chosen in itertools.product(*(choices[name] for name in by)):
        width, height = model.dimensions(" ".join(chosen))
        yield ImageSize(width, height, dict(zip(by, chosen, strict=True)))


def _nearest(sizes: tuple[ImageSize, ...], width: int, height: int) -> ImageSize:
    """The size of the nearest shape, and of those the one with the nearest number of pixels."""

    def distance(size: ImageSize) -> tuple[float, float]:
        shape = abs(math.log(size.width * height / (size.height * width)))
        area = abs(math.log(size.width * size.height / (width * height)))
        return round(shape, 2), area

    return min(sizes, key=distance)


def _within(model: Model, width: int, height: int) -> tuple[int, int]:
    """Scale a size into the range that a model takes, in its shape as far as the range allows."""
    limits = {each.name: each for each in model.inputs}
    sides = [(limits["width"], width), (limits["height"], height)]
    smallest = max((each.min or 1) / side for each, side in sides)
    largest = min((each.max or math.inf) / side for each, side in sides)
    scale = min(max(1.0, smallest), largest)
    fitted = [_side(each, side * scale) for each, side in sides]
    return fitted[0], fitted[1]


def _side(limits: Descriptor, pixels: float) -> int:
    step = limits.snap or 1
    snapped = round(pixels / step) * step
    if snapped > (limits.max or math.inf):
        return snapped - step
    return snapped + step if snapped < (limits.min or 1) else snapped


def _listed(sizes: tuple[ImageSize, ...]) -> str:
    return ", ".join(dict.fromkeys(size.text for size in sizes))
