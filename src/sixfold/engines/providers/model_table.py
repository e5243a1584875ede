"""The rows of `providers.toml`: calls of a provider's model, their prices, and engines."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.money import MICROS_PER_USD
from sixfold.engines.providers.requests import ProviderTask
from sixfold.providers import PROVIDERS

_TABLE = Path(__file__).with_name("providers.toml")
_MEGAPIXEL = 2**20
_AMOUNTS = frozenset({"usd", "text_in", "image_in", "out"})
_API_NAMES = {
    "negative": "negative_prompt",
    "count": "num_images",
    "source": "the image",
    "sources": "the images",
    "faces": "face_enhance",
}


class SizeRules(msgspec.Struct, frozen=True):
    """The form in which a provider's model accepts a size, and the sizes that it supports.

    `format` is `object`, `text` or `ratio`; `step`, `min_side` and `max_side` are pixels of a side,
    `min_pixels` and `max_pixels` those of the image; `max_ratio` is the largest ratio of the sides.
    """

    format: str
    step: int = 1
    min_side: int = 1
    max_side: int = 1 << 16
    max_pixels: int = 1 << 32
    min_pixels: int = 1
    max_ratio: float = 100.0
    ratios: tuple[str, ...] = ()

    def encode(self, width: int, height: int) -> Any:
        """Return the provider's value for the supported size nearest to this one."""
        if self.format == "ratio":
            return _nearest(self.ratios, width / height)
        size = self.nearest(width, height)
        if self.format == "object":
            return {"width": size[0], "height": size[1]}
        return f"{size[0]}x{size[1]}"

    def nearest(self, width: int, height: int) -> tuple[int, int]:
        """Return the supported (width, height) that is nearest in shape, then in area."""
        shape = min(self.max_ratio, max(1 / self.max_ratio, width / height))
        area = min(self.max_pixels, max(self.min_pixels, width * height))
        exact = (math.sqrt(area * shape), math.sqrt(area / shape))
        scale = min(1.0, self.max_side / max(exact))
        scale = max(scale, self.min_side / min(exact))
        sides = [min(self.max_side, max(self.min_side, side * scale)) for side in exact]
        stepped = [max(self.step, round(side / self.step) * self.step) for side in sides]
        while stepped[0] * stepped[1] > self.max_pixels:
            stepped[stepped.index(max(stepped))] -= self.step
        while stepped[0] * stepped[1] < self.min_pixels:
            stepped[stepped.index(min(stepped))] += self.step
        return stepped[0], stepped[1]


def _nearest(ratios: Sequence[str], shape: float) -> str:
    def distance(ratio: str) -> float:
        width, height = ratio.split(":")
        return abs(math.log(int(width) / int(height) / shape))

    return min(ratios, key=distance)


class UsedInputs(msgspec.Struct, frozen=True):
    """The usage of one call as reported by its provider; `text_in`, `image_in` and `out` are tokens."""

    images: int = 0
    pixels: int = 0
    units: float | None = None  # megapixels or images, as billed by the provider
    seconds: float | None = None
    characters: int = 0
    text_in: int = 0
    image_in: int = 0
    out: int = 0


class ProviderCost(msgspec.Struct, frozen=True):
    """A provider's price in USD per unit or per million tokens, with the source and month of the price."""

    per: str
    source: str
    seen: str
    usd: Decimal = Decimal(0)
    text_in: Decimal = Decimal(0)
    image_in: Decimal = Decimal(0)
    out: Decimal = Decimal(0)

    def micros(self, used: UsedInputs) -> int | None:
        """Return the cost of a call in micro-dollars, rounded up, or None if the usage is not known."""
        match self.per:
            case "image":
                usd = self.usd * Decimal(str(used.units if used.units is not None else used.images))
            case "megapixel":
                each = math.ceil(used.pixels / max(1, used.images) / _MEGAPIXEL)
                usd = self.usd * Decimal(str(used.units if used.units is not None else each * used.images))
            case "second":
                if used.seconds is None:
                    return None
                usd = self.usd * Decimal(str(used.seconds))
            case "character":
                usd = self.usd * used.characters
            case "unknown":
                return None
            case _:
                if not used.out:
                    return None
                tokens = used.text_in * self.text_in + used.image_in * self.image_in + used.out * self.out
                usd = tokens / 1_000_000
        return int((usd * MICROS_PER_USD).to_integral_value(ROUND_CEILING))


class ModelCall(msgspec.Struct, frozen=True):
    """One call: the provider's inputs and the number of images to return."""

    inputs: Mapping[str, Any]
    count: int
    seed: int | None


class ModelRoute(msgspec.Struct, frozen=True):
    """One capability at one provider: a row of `providers.toml`.

    Video: `image_model` is the model for a source image, if it differs; `durations` are those it supports,
    in seconds; `retime` marks models whose frames are retimed here; `cost_factors` multiply the cost by
    resolution; `values` maps the API's values to the provider's, by input. Speech: `voices` maps the API's
    voices to the provider's; `speeds` are the slowest and the fastest speed.
    """

    provider: str
    capability: str
    model: str
    max_per_call: int
    fields: Mapping[str, str]
    cost: ProviderCost
    fixed: Mapping[str, Any] = {}
    sizes: SizeRules | None = None
    image_model: str = ""
    durations: tuple[int, ...] = ()
    retime: bool = False
    cost_factors: Mapping[str, float] = {}
    values: Mapping[str, Mapping[str, Any]] = {}
    voices: Mapping[str, str] = {}
    speeds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The engine's name in the catalog."""
        return f"{self.provider}-{self.capability}"

    def names(self) -> Mapping[str, str]:
        """Return the API's input names by the provider's field names, for its error messages."""
        return {theirs: _API_NAMES.get(ours, ours) for ours, theirs in reversed(list(self.fields.items()))}

    def provider_value(self, name: str, value: Any) -> Any:
        """Return the provider's value for an input's value in the API."""
        return self.values.get(name, {}).get(value, value)

    def unsupported_inputs(self, request: ProviderTask) -> list[str]:
        """Return the names of the request's inputs that this model does not support."""
        return [_API_NAMES.get(name, name) for name in request.optional_inputs() if name not in self.fields]

    def calls(self, request: ProviderTask, size: tuple[int, int] | None) -> list[ModelCall]:
        """Return the calls that serve a request; `size` is the (width, height) to request, if known."""
        each = self.max_per_call if "count" in self.fields else 1
        counts = [min(each, request.count - done) for done in range(0, request.count, each)]
        return [self._call(request, size, index, count) for index, count in enumerate(counts)]

    def _call(self, request: ProviderTask, size: tuple[int, int] | None, index: int, count: int) -> ModelCall:
        seed = request.seed_for(index) if "seed" in self.fields else None
        values = {
            "prompt": self._prompt(request),
            "seed": seed,
            "count": count,
            "size": self.sizes.encode(*size) if self.sizes and size else None,
            "strength": request.strength,
            "scale": request.scale,
            "faces": request.faces,
            "negative": request.negative or None if self.fields.get("negative") != "prompt" else None,
        }
        inputs = {
            self.fields[name]: value
            for name, value in values.items()
            if value is not None and name in self.fields
        }
        return ModelCall({**self.fixed, **inputs}, count, seed)

    def _prompt(self, request: ProviderTask) -> str:
        prompt = prompt_template(request.model).replace("{prompt}", request.prompt)
        if request.negative and self.fields.get("negative") == "prompt":
            prompt += f"\n\nLeave out: {request.negative}"
        return prompt


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text("utf-8"))


class Override(msgspec.Struct, frozen=True):
    """An operator's changes to a row: the model, inputs (an empty value removes one), and prices."""

    model: str = ""
    inputs: Mapping[str, Any] = {}
    price: Mapping[str, Any] = {}


def engine_rows() -> dict[str, dict[str, Any]]:
    """Return the catalog's rows of all engines of providers, in the order of `sixfold/providers.py`."""
    return {
        f"{provider}-{capability}": {
            **row["engine"],
            "provider": provider,
            "options": {**row["engine"].get("options", {}), "route": capability},
        }
        for provider in PROVIDERS
        for capability, row in _table().get(provider, {}).items()
        if "engine" in row
    }


def route(provider: str, capability: str, over: Override | None = None) -> ModelRoute:
    """Return the route of a row with the operator's changes; raises `ValueError` for an unknown row."""
    rows = _table()[provider]
    if capability not in rows:
        raise ValueError(f"{provider} has an unknown route {capability!r}: use {', '.join(rows)}")
    row, override = rows[capability], over or Override()
    cost: dict[str, Any] = {
        name: Decimal(str(value)) if name in _AMOUNTS else value
        for name, value in {**row["cost"], **override.price}.items()
    }
    sizes = dict(row.get("size", {}))
    sizes["ratios"] = tuple(sizes.get("ratios", ()))
    return ModelRoute(
        provider=provider,
        capability=capability,
        model=override.model or row["model"],
        max_per_call=row.get("max_per_call", 1),
        fields=row["fields"],
        cost=ProviderCost(**cost),
        fixed={
            name: value for name, value in {**row.get("fixed", {}), **override.inputs}.items() if value != ""
        },
        sizes=SizeRules(**sizes) if "format" in sizes else None,
        image_model="" if override.model else row.get("image_model", ""),
        durations=tuple(row.get("durations", ())),
        retime=row.get("retime", False),
        cost_factors=row.get("cost_factors", {}),
        values=row.get("values", {}),
        voices=_voices(row.get("voices", {})),
        speeds=tuple(row.get("speeds", ())),
    )


def _voices(voices: Mapping[str, str] | str) -> Mapping[str, str]:
    """Return the voices of a row, which may be the name of a table that several rows share."""
    return _table()["voices"][voices] if isinstance(voices, str) else voices


def prompt_template(model: str) -> str:
    """Return the prompt to send for a model; `{prompt}` stands for the caller's prompt."""
    return str(_table()["prompts"].get(model, "{prompt}"))


def capabilities() -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(row) for name, row in _table().items() if name not in ("prompts", "voices")}
