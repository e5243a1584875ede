"""A route: one row of `providers.toml`, which turns an order into calls of a provider's model."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

from sixfold.core.money import MICROS_PER_USD
from sixfold.engines.providers.requests import ProviderTask

_TABLE = Path(__file__).with_name("providers.toml")
_MEGAPIXEL = 2**20
_WORDS = {
    "negative": "negative_prompt",
    "count": "num_images",
    "source": "the picture",
    "faces": "face_enhance",
}


@dataclass(frozen=True, slots=True)
class SizeRules:
    """How a provider takes a size, and which it can make."""

    as_: str
    step: int = 1
    least: int = 1
    most: int = 1 << 16
    pixels: int = 1 << 32
    fewest: int = 1
    aspect: float = 100.0
    ratios: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()

    def said(self, width: int, height: int) -> Any:
        """The provider's value for the size nearest to this one."""
        if self.as_ == "ratio":
            return _nearest(self.ratios, ":", width / height)
        if self.as_ == "listed":
            return _nearest(self.listed, "x", width / height)
        made = self.nearest(width, height)
        if self.as_ == "object":
            return {"width": made[0], "height": made[1]}
        return f"{made[0]}x{made[1]}"

    def nearest(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that can be made: of the same shape, as far as that goes, and as large."""
        shape = min(self.aspect, max(1 / self.aspect, width / height))
        area = min(self.pixels, max(self.fewest, width * height))
        made = (math.sqrt(area * shape), math.sqrt(area / shape))
        scale = min(1.0, self.most / max(made))
        scale = max(scale, self.least / min(made))
        sides = [min(self.most, max(self.least, side * scale)) for side in made]
        stepped = [max(self.step, round(side / self.step) * self.step) for side in sides]
        while stepped[0] * stepped[1] > self.pixels:
            stepped[stepped.index(max(stepped))] -= self.step
        while stepped[0] * stepped[1] < self.fewest:
            stepped[stepped.index(min(stepped))] += self.step
        return stepped[0], stepped[1]


def _nearest(names: Sequence[str], separator: str, shape: float) -> str:
    def distance(name: str) -> float:
        width, height = name.split(separator)
        return abs(math.log(int(width) / int(height) / shape))

    return min(names, key=distance)


@dataclass(frozen=True, slots=True)
class UsedInputs:
    """What one call used, as far as its provider says."""

    images: int = 0
    pixels: int = 0
    units: float | None = None  # megapixels or images, as the provider itself bills them
    seconds: float | None = None
    characters: int = 0
    text_in: int = 0
    image_in: int = 0
    out: int = 0


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What a provider takes, in USD; per token it is per million of them."""

    per: str
    source: str
    seen: str
    usd: Decimal = Decimal(0)
    text_in: Decimal = Decimal(0)
    image_in: Decimal = Decimal(0)
    out: Decimal = Decimal(0)

    def micros(self, used: UsedInputs) -> int | None:
        """What a call cost, rounded up, or None where the provider did not say what it used."""
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


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call: the provider's inputs, and how many pictures it is to give."""

    inputs: Mapping[str, Any]
    count: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """One capability at one provider.

    Of films: `pictured` is the model that takes a picture, where it is another one; `lengths` are the seconds
    that it can make; `counted` is one whose frames are set to their moments here; `shares` are what a second
    costs beside the price, by resolution; `values` are its own for ours, by input. Of sounds: `voices` are
    the provider's for ours, `speeds` the slowest and the quickest that it speaks.
    """

    provider: str
    capability: str
    model: str
    most: int
    fields: Mapping[str, str]
    price: ModelPrice
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sizes: SizeRules | None = None
    pictured: str = ""
    lengths: tuple[int, ...] = ()
    counted: bool = False
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    voices: Mapping[str, str] = field(default_factory=dict[str, str])
    speeds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The engine's name, by which a model's row refers to it."""
        return f"{self.provider}-{self.capability}"

    def names(self) -> Mapping[str, str]:
        """The provider's fields in the words of our interface, for what it says of them."""
        return {theirs: _WORDS.get(ours, ours) for ours, theirs in reversed(list(self.fields.items()))}

    def said(self, word: str, value: Any) -> Any:
        """The provider's value for one of ours."""
        return self.values.get(word, {}).get(value, value)

    def unheard(self, order: ProviderTask) -> list[str]:
        """The inputs that were asked for and that this provider's model does not take."""
        return [_WORDS.get(word, word) for word in order.asked() if word not in self.fields]

    def calls(self, order: ProviderTask, shape: tuple[int, int] | None) -> list[ModelCall]:
        """The calls of an order; `shape` is the size to ask for, where one is known."""
        each = self.most if "count" in self.fields else 1
        counts = [min(each, order.count - done) for done in range(0, order.count, each)]
        return [self._call(order, shape, index, count) for index, count in enumerate(counts)]

    def _call(self, order: ProviderTask, shape: tuple[int, int] | None, index: int, count: int) -> ModelCall:
        seed = order.seed_of(index) if "seed" in self.fields else None
        size = self.sizes.said(*shape) if self.sizes and shape else None
        values = {
            "prompt": self._prompt(order),
            "seed": seed,
            "count": count,
            "size": size,
            "strength": order.strength,
            "scale": order.scale,
            "faces": order.faces,
            "negative": order.negative or None if self.fields.get("negative") != "prompt" else None,
        }
        said = {
            self.fields[word]: value
            for word, value in values.items()
            if value is not None and word in self.fields
        }
        return ModelCall({**self.fixed, **said}, count, seed)

    def _prompt(self, order: ProviderTask) -> str:
        template = look(order.model)
        prompt = template.replace("{prompt}", order.prompt)
        if order.negative and self.fields.get("negative") == "prompt":
            prompt += f"\n\nLeave out: {order.negative}"
        return prompt


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator puts over a row: another model, further inputs ("" for none), other prices."""

    model: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    price: Mapping[str, Any] = field(default_factory=dict[str, Any])


def route(provider: str, capability: str, over: Override | None = None) -> ModelRoute:
    """A row's route, with what an operator puts over it; raises `ValueError` where there is no such row."""
    rows_here = _table()[provider]
    if capability not in rows_here:
        raise ValueError(f"{provider} has no route {capability!r}; it has {', '.join(rows_here)}")
    row, own = rows_here[capability], over or Override()
    price: dict[str, Any] = {
        name: Decimal(str(given)) if name in _AMOUNTS else given
        for name, given in {**row["price"], **own.price}.items()
    }
    sizes = {"as_" if name == "as" else name: value for name, value in row.get("size", {}).items()}
    for name in ("ratios", "listed"):
        sizes[name] = tuple(sizes.get(name, ()))
    return ModelRoute(
        provider=provider,
        capability=capability,
        model=own.model or row["model"],
        most=row["most"],
        fields=row["fields"],
        price=ModelPrice(**price),
        fixed={name: value for name, value in {**row.get("fixed", {}), **own.inputs}.items() if value != ""},
        sizes=SizeRules(**sizes) if "as_" in sizes else None,
        pictured="" if own.model else row.get("pictured", ""),
        lengths=tuple(row.get("lengths", ())),
        counted=row.get("counted", False),
        shares=row.get("shares", {}),
        values=row.get("values", {}),
        voices=_voices(row.get("voices", {})),
        speeds=tuple(row.get("speeds", ())),
    )


def _voices(given: Mapping[str, str] | str) -> Mapping[str, str]:
    """A row's own voices, or those that several rows share under a name."""
    return _table()["voices"][given] if isinstance(given, str) else given


def look(model: str) -> str:
    """What one of our models means by a prompt."""
    return str(_table()["looks"].get(model, "{prompt}"))


_AMOUNTS = frozenset({"usd", "text_in", "image_in", "out"})


def rows() -> Mapping[str, tuple[str, ...]]:
    """Every capability that the table has, by provider."""
    return {name: tuple(row) for name, row in _table().items() if name not in ("looks", "voices")}
