"""The video models of `/v1/videos`, and their inputs for OpenAI's fields `seconds` and `size`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.catalog import metering
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Catalog, Model
from sixfold.errors import UnknownModel

TEXT, IMAGE = "video-text", "video-image"
REFERENCE = "image_url"
OPENAI_PREFIX = "sora-"
DEFAULT_SECONDS = 4.0
_SIZE = re.compile(r"([1-9]\d{2,3})x([1-9]\d{2,3})", re.ASCII)
# The maximum deviation of the aspect ratio and the short side from a size that the model supports.
_RATIO_TOLERANCE, _SIDE_TOLERANCE = 0.05, 0.1
_WIDE_RATIO = 16 / 9


def names(catalog: Catalog) -> tuple[str, ...]:
    """Return the models that generate a video from a prompt, an image or both, in the catalog's order."""
    return tuple(model.name for model in catalog.models() if not model.internal and _is_video(model))


def resolve(catalog: Catalog, name: Any, *, has_image: bool) -> Model:
    """Return the model with a name; raises `UnknownModel`, and `InvalidRequest` if it needs an image."""
    if name in (None, "", "default") or (isinstance(name, str) and name.startswith(OPENAI_PREFIX)):
        return catalog[IMAGE if has_image else TEXT]
    if not isinstance(name, str):
        raise InvalidRequest("model must be a string", param="model")
    model_names = names(catalog)
    if name not in model_names:
        raise UnknownModel(f"The model {name[:100]!r} was not found for videos: use {', '.join(model_names)}")
    model, inputs = catalog[name], _inputs(catalog[name])
    if has_image and REFERENCE not in inputs:
        raise InvalidRequest(
            f"{name} does not accept an image: omit input_reference", param="input_reference"
        )
    if not has_image and REFERENCE in inputs and inputs[REFERENCE].required:
        raise InvalidRequest(f"{name} requires an image: send input_reference", param="input_reference")
    return model


def length(model: Model, seconds: Any) -> dict[str, Any]:
    """Return the inputs for `seconds`; raises `InvalidRequest` with the lengths that the model supports."""
    inputs = _inputs(model)
    rate, offset, limits = 1.0, 0, inputs.get("duration")
    if limits is None and (frames := inputs.get("num_frames")) is not None:
        # The first frame is at the time 0.
        rate, offset, limits = _rate(model), 1, frames
    if limits is None:
        if seconds in (None, ""):
            return {}
        raise InvalidRequest(f"{model.name} has a fixed length: omit seconds", param="seconds")
    low, high = ((bound - offset) / rate for bound in (limits.min or 0, limits.max or math.inf))
    requested = min(max(DEFAULT_SECONDS, low), high) if seconds in (None, "") else _number(seconds)
    if not low <= requested <= high:
        message = f"seconds must be from {low:g} to {high:g} for {model.name} (got {str(seconds)[:20]})"
        raise InvalidRequest(message, param="seconds")
    return {limits.name: requested if limits.type == "number" else round(requested * rate) + offset}


def size(model: Model, text: Any, *, has_image: bool) -> dict[str, Any]:
    """Return the inputs for `size`; raises `InvalidRequest` with the sizes that the model supports."""
    if text in (None, "", "auto"):
        return {}
    choices = {name: each.choices for name, each in _inputs(model).items() if each.choices}
    resolutions = choices.get("resolution", ())
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is not None:
        width, height = int(match[1]), int(match[2])
        if text in resolutions:
            return {"resolution": text}
        side = _nearest_side(resolutions, min(width, height))
        ratios = choices.get("aspect_ratio", ())
        ratio = next((ratio for ratio in ratios if _is_near(width / height, _ratio(ratio))), None)
        if side and ratio:
            return {"resolution": side, "aspect_ratio": ratio}
        # The video has the shape of its image.
        if side and not ratios and (has_image or _is_near(width / height, _WIDE_RATIO)):
            return {"resolution": side}
    raise InvalidRequest(_size_message(model, resolutions, has_image=has_image), param="size")


def described_size(inputs: Mapping[str, Any]) -> str:
    """Return the size of a video that is not rendered yet, as far as its inputs determine it."""
    resolution = str(inputs.get("resolution") or "")
    if not resolution.endswith("p"):
        return resolution or "auto"
    side = int(resolution[:-1])
    width, height = round(side * _WIDE_RATIO / 2) * 2, side
    shape = inputs.get("aspect_ratio")
    return {"9:16": f"{height}x{width}", "1:1": f"{side}x{side}"}.get(str(shape), f"{width}x{height}")


def described_seconds(model: Model | None, inputs: Mapping[str, Any]) -> str:
    """Return the length of a video that is not rendered yet, as far as its inputs determine it."""
    if "duration" in inputs:
        return f"{inputs['duration']:g}"
    if "num_frames" in inputs and model is not None:
        return f"{round((inputs['num_frames'] - 1) / _rate(model), 1):g}"
    return "0"


def _is_video(model: Model) -> bool:
    required = {
        descriptor.name for descriptor in model.inputs if descriptor.required and descriptor.default is None
    }
    by_prompt = any(descriptor.name == "prompt" for descriptor in model.inputs) and required <= {
        "prompt",
        REFERENCE,
    }
    return model.output_kind == "video" and by_prompt and model.price != metering.CHILDREN


def _inputs(model: Model) -> dict[str, Descriptor]:
    return {descriptor.name: descriptor for descriptor in model.inputs}


def _rate(model: Model) -> float:
    descriptor = _inputs(model).get("frames_per_second")
    return float(
        model.fixed.get("frames_per_second") or (descriptor.default if descriptor is not None else 0) or 24
    )


def _number(seconds: Any) -> float:
    try:
        requested = math.nan if isinstance(seconds, bool) else float(seconds)
    except (TypeError, ValueError, OverflowError):
        requested = math.nan
    if not math.isfinite(requested):
        raise InvalidRequest("seconds must be a number", param="seconds")
    return requested


def _ratio(text: str) -> float:
    width, _, height = text.partition(":")
    return int(width) / int(height) if width.isdigit() and height.isdigit() else 0.0


def _is_near(ratio: float, other: float) -> bool:
    return abs(ratio - other) <= _RATIO_TOLERANCE * other


def _nearest_side(resolutions: tuple[str, ...], side: int) -> str:
    """Return the resolution, such as `720p`, whose short side is near, or an empty string."""
    sides = [
        int(resolution[:-1])
        for resolution in resolutions
        if resolution.endswith("p") and resolution[:-1].isdigit()
    ]
    near = [each for each in sides if abs(each - side) <= _SIDE_TOLERANCE * each]
    return f"{min(near, key=lambda each: abs(each - side))}p" if near else ""


def _size_message(model: Model, resolutions: tuple[str, ...], *, has_image: bool) -> str:
    if not resolutions:
        return f"{model.name} has a fixed size: omit size"
    if not resolutions[0].endswith("p"):
        return f"size must be one of {', '.join(resolutions)} for {model.name}"
    sides = ", ".join(resolution[:-1] for resolution in resolutions)
    shape = "" if has_image else ", 16:9"
    ratios = next(
        (descriptor.choices for descriptor in model.inputs if descriptor.name == "aspect_ratio"), ()
    )
    if ratios:
        shape = f", {' or '.join(each for each in ratios if _ratio(each))}"
    return f"size must be WIDTHxHEIGHT with a short side of {sides}{shape} for {model.name}"
