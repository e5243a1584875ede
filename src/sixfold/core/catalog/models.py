"""The catalog: all models that a request can name, and the engines that can serve them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import money, reachability
from sixfold.core.accounts.prices import FREE, InvalidPrice, PriceRow, PriceTable
from sixfold.core.catalog import engine_selection, inputs, metering, timeline
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.engines import Quality
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.unknown_names import unknown_model

REMOTE_KINDS = frozenset({"comfyui", "provider", "graph", "relay", "space"})
_OWN_KINDS = frozenset({"embedded", "weights", "comfyui", "own", "sandbox", "container"})
_quoted: ContextVar[PriceTable | None] = ContextVar("quoted", default=None)
_IN_WORDS = {
    metering.CHILDREN: "the sum of its nodes",
    metering.TOKENS: "by tokens; free on this machine",
}


class Subordinate(msgspec.Struct, frozen=True):
    """A condition under which an engine runs another model: the values in `only`, and `without` an input."""

    only: Mapping[str, Sequence[Any]] = {}
    without: str = ""

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Return whether the run is started for these inputs."""
        if self.without and str(values.get(self.without) or "").strip():
            return False
        return all(values.get(name) in able for name, able in self.only.items())


class EngineSpec(msgspec.Struct, frozen=True):
    """An engine's entry in the catalog; its code is not loaded.

    `concurrency` is the number of workers that may run the engine at the same time (0: the number of slots).
    Each worker runs up to `max_tasks` tasks together, or serves up to `max_sessions` sessions. `options` are
    passed to its factory. `packages` are the optional packages that the engine imports, `setting` is the
    setting that enables it (such as a provider's key), `family` is its folder of weights, and `unlock` is a
    clause that explains how to enable it, such as "set FAL_KEY".

    `vram_gb` is the graphics memory that the weights need and `ram_gb` the memory of a worker in GB; 0 if
    unknown.

    `full_for` maps inputs to the strings for which the engine is `full` instead of `quality`. `only` maps
    inputs to the values that it supports; an omitted input is always supported. `runs` maps the models that
    the engine itself runs to the conditions. If `free_runs` is not 0, an account may have at most that many
    unpriced runs at a time; other runs wait in the queue.
    """

    name: str
    factory: str
    version: str
    quality: Quality
    kind: str
    concurrency: int
    idle_seconds: float
    unlock: str
    full_for: Mapping[str, frozenset[str]] = {}
    only: Mapping[str, tuple[Any, ...]] = {}
    runs: Mapping[str, Subordinate] = {}
    max_tasks: int = 1
    max_sessions: int = 1
    start_seconds: float = 0.0
    cancel_seconds: float = 0.0
    memory_bytes: int | None = None
    vram_gb: float = 0.0
    ram_gb: float = 0.0
    options: Mapping[str, Any] = {}
    packages: tuple[str, ...] = ()
    setting: str = ""
    family: str = ""
    free_runs: int = 0

    @property
    def remote(self) -> bool:
        """Whether the engine calls another machine and therefore does not use a local worker slot."""
        return self.kind in REMOTE_KINDS

    @property
    def on_own_hardware(self) -> bool:
        """Whether the engine runs on machines of this installation, so its runs cost no provider charges.

        A space counts if the operator configured its server, but not if it is hosted on a hub. Workflow nodes
        have separate prices; for model servers, see `Catalog.is_own`.
        """
        if self.kind == "space":
            return bool(self.options.get("trusted"))
        return self.kind in _OWN_KINDS

    def limit_seconds(self, usual: float) -> float:
        """Return the time limit of a run in seconds: the option `limit_seconds`, or else `usual`."""
        return float(self.options.get("limit_seconds", usual))

    def can(self, values: Mapping[str, Any]) -> bool:
        """Return whether the engine supports these inputs."""
        return all(values.get(name) in (None, "", *able) for name, able in self.only.items())

    def quality_for(self, values: Mapping[str, Any]) -> Quality:
        for name, texts in self.full_for.items():
            if " ".join(str(values.get(name, "")).lower().split()) in texts:
                return "full"
        return self.quality


class Model(msgspec.Struct, frozen=True):
    """A model with its inputs, its price and its engines in order of preference.

    `sizes` maps each choice of the input `size`, or of the inputs in `sized_by` joined by a space, to pixels.
    `backends` are the models of which each request selects one. `words` maps inputs to the names that engines
    use. The price is for the quantity in the input `quantity`, or for `max_quantity` units. If the model is
    `metered`, that amount is only held, and the amount that the run reports (`Result.billed`) is captured.
    `hardware` is the hardware of a custom model. `parts` are the models that a workflow runs. `served_by` is
    a clause that names a server outside the catalog. `files` maps names to blobs that every run receives. An
    `internal` model runs only requests that the server itself has prepared, and clients cannot see it.
    `service` tells whether `/api/service` can run it. `task` is a name from `tasks.py`, empty for custom
    models.
    """

    name: str
    title: str
    description: str
    output_kind: str
    price: str
    quantity: str | None
    inputs: tuple[Descriptor, ...]
    sizes: Mapping[str, tuple[int, int]]
    fixed: Mapping[str, Any]
    engines: tuple[EngineSpec, ...]
    sized_by: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    words: Mapping[str, str] = {}
    metered: bool = False
    max_quantity: float = 1
    hardware: str | None = None
    served_by: str = ""
    parts: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    internal: bool = False
    service: bool = True
    task: str = ""

    def listed_images(self, values: Mapping[str, Any]) -> dict[str, tuple[Descriptor, str]]:
        """Return the images of list inputs by the names under which an engine finds them."""
        return {
            f"{image_list.name}.{number:03}": (Descriptor(image_list.name, "image"), text)
            for image_list in self.image_lists
            for number, text in enumerate(cast("list[str]", values.get(image_list.name, [])))
        }

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return validated and complete inputs; raises `InvalidInput` with every problem."""
        try:
            checked = inputs.check(self.inputs, values)
        except errors.InvalidInput as invalid:
            valid_projects = inputs.valid_values([d for d in self.inputs if d.type == "project"], values)
            raise invalid.joined(timeline.problems(valid_projects.values())) from invalid
        for name in self.projects & checked.keys():
            checked[name] = timeline.check(checked[name])
        return checked

    @property
    def projects(self) -> frozenset[str]:
        """The names of the inputs that are video projects."""
        return frozenset(descriptor.name for descriptor in self.inputs if descriptor.type == "project")

    def measured(self, values: Mapping[str, Any], lengths: Mapping[str, float | None]) -> dict[str, Any]:
        """Return the inputs with the file lengths (seconds by clip name) written into video projects."""
        return {
            name: timeline.with_durations(value, lengths) if name in self.projects else value
            for name, value in values.items()
        }

    @property
    def media_inputs(self) -> tuple[Descriptor, ...]:
        """The inputs that specify a file or a URL."""
        return tuple(d for d in self.inputs if d.type in inputs.MEDIA_TYPES)

    @property
    def image_lists(self) -> tuple[Descriptor, ...]:
        """The inputs that specify a list of images."""
        return tuple(d for d in self.inputs if d.type == "images")

    def takes(self, name: str) -> bool:
        """Return whether the model has an input with this name."""
        return any(descriptor.name == name for descriptor in self.inputs)

    def for_engine(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs in the form that an engine expects: `size` becomes `width` and `height`."""
        translated = {self.words.get(name, name): value for name, value in values.items()} | dict(self.fixed)
        if self.sized_by:
            size: Any = " ".join(str(translated.pop(name)) for name in self.sized_by)
        else:
            size = translated.pop("size", None)
        if size is not None:
            translated["width"], translated["height"] = self.dimensions(str(size))
        return translated

    def dimensions(self, size: str) -> tuple[int, int]:
        """Return the width and height in pixels of a validated `size`: a preset of this model, or `WxH`."""
        if size in self.sizes:
            return self.sizes[size]
        width, _, height = size.partition("x")
        return int(width), int(height)

    def choose(
        self, values: Mapping[str, Any], terms: SelectionPolicy, stored: Collection[str] = ()
    ) -> tuple[EngineSpec, Quality]:
        """Return the first engine that may serve these inputs, and its quality.

        `stored` names the media inputs whose bytes are already stored, so their values need not be URLs.
        Raises `EngineUnavailable` with the remedy, or `InvalidInput` if the inputs are not supported by any
        engine.
        """
        held_back = False
        able = [engine for engine in self.engines if engine.can(values)]
        for engine in able:
            if not terms.status_of(engine.name).ready or (engine.kind == "provider" and not terms.paid):
                continue
            quality = engine.quality_for(values)
            if quality == "full" or (terms.previews and not terms.full_only):
                return engine, quality
            held_back = True
        if problems := self.invalid_addresses(values, stored):
            raise errors.InvalidInput(problems)
        request = self.describe_request(values)
        if outages := [status.outage for each in able if (status := terms.status_of(each.name)).outage]:
            raise reachability.unavailable(request, outages)
        subject = "Only a preview engine" if held_back else "No engine"
        allow = "SIXFOLD_PREVIEWS=allow serves previews." if held_back and not terms.full_only else ""
        parts = (f"{subject} can serve {request} here.", _unlock(able, terms, self.served_by), allow)
        raise errors.EngineUnavailable(" ".join(part for part in parts if part))

    def describe_request(self, values: Mapping[str, Any]) -> str:
        """Describe the model and the inputs that not every engine supports: `upscaler with face_enhance`."""
        by = {name for engine in self.engines for name in engine.only}
        settings = [
            f"{descriptor.name} {values[descriptor.name]}" if descriptor.choices else descriptor.name
            for descriptor in self.inputs
            if descriptor.name in by and values.get(descriptor.name)
            if descriptor.choices or descriptor.type != "string"
        ]
        return f"{self.name} with {' and '.join(settings)}" if settings else self.name

    def invalid_addresses(
        self, values: Mapping[str, Any], stored: Collection[str]
    ) -> tuple[errors.Problem, ...]:
        """Return the problems of media inputs that are not URLs; a workflow's files may have other names."""
        media = () if self.price == metering.CHILDREN else (*self.media_inputs, *self.image_lists)
        return tuple(inputs.invalid_addresses([each for each in media if each.name not in stored], values))

    def unlock(self, terms: SelectionPolicy) -> str:
        """Return how to enable the unavailable engines, as one sentence; empty if all are available."""
        return _unlock(self.engines, terms, self.served_by)


def _unlock(engines: Sequence[EngineSpec], terms: SelectionPolicy, served_by: str) -> str:
    missing = [engine.unlock for engine in engines if not terms.status_of(engine.name).ready]
    return engine_selection.sentence([*missing, served_by])


class Catalog:
    """All models by name; an unknown name raises `NotFound`."""

    def __init__(
        self, models: Mapping[str, Model], prices: PriceTable, rates: metering.RunRates | None = None
    ) -> None:
        self._models = dict(models)
        # Models that were discovered while the server runs, by name.
        self.discovered: Mapping[str, Model] = {}
        # Whether model servers of this installation serve these inputs, by model.
        self.served_here: dict[str, Callable[[Mapping[str, Any]], bool]] = {}
        self._prices = self.checked(prices)
        self._engines = {engine.name: engine for model in self._models.values() for engine in model.engines}
        self.rates = rates or metering.FlatRates(metering.HardwareRate("cpu", 0))

    def __getitem__(self, name: str) -> Model:
        model = self._models.get(name) or self.discovered.get(name)
        if model is None:
            raise self.unknown(name)
        return model

    def __contains__(self, name: object) -> bool:
        return name in self._models or name in self.discovered

    def is_own(self, model: Model, engine: EngineSpec, values: Mapping[str, Any]) -> bool:
        """Return whether only machines of this installation, including model servers, serve these inputs."""
        return engine.on_own_hardware or self.served_here.get(model.name, lambda _values: False)(values)

    def check_runs(
        self, model: Model, engine: EngineSpec, values: Mapping[str, Any], terms: SelectionPolicy
    ) -> None:
        """Raise `EngineUnavailable` if a run that the engine starts for these inputs cannot be served."""
        terms = replace(terms, paid=model.price == metering.CHILDREN, full_only=False)
        for name, run in engine.runs.items():
            if not run.applies(values):
                continue
            try:
                self[name].choose({}, terms)
            except errors.EngineUnavailable as error:
                message = f"{model.describe_request(values)} requires {name}: {error.message}"
                raise error.with_message(message) from error

    def unknown(self, name: str) -> errors.NotFound:
        """Return the error for a name that no model has, with similar names."""
        return unknown_model(name, [model.name for model in self.models()])

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of all models, including internal ones."""
        return tuple(sorted(self._models))

    def models(self) -> tuple[Model, ...]:
        """Return all models that clients can run: those of the catalog in order, then the discovered ones."""
        return tuple(each for each in {**self._models, **self.discovered}.values() if not each.internal)

    def find(self, document: Mapping[str, Any]) -> None:
        """Replace the discovered models with those of a document, which use engines of the catalog."""
        self.discovered = {
            name: parse_custom(document, self, name)
            for name in document["models"]
            if name not in self._models and self._engines.keys() >= set(document["models"][name]["engines"])
        }

    def public(self, name: str) -> Model:
        """Return a model that clients can run; raises `NotFound` for any other name."""
        if (model := self[name]).internal:
            raise self.unknown(name)
        return model

    def engines(self) -> Mapping[str, EngineSpec]:
        """Return all engines of the models, by name."""
        return self._engines

    def price_text(self, model: Model, *, by_time: bool = False) -> str:
        """Return the price as a string, such as `0.04 USD per image`; `by_time` is the price on hardware."""
        if by_time or model.price == metering.CONTAINER_TIME:
            hour = self.rates.hardware_rate(model.name, model.hardware).hour_micros
            return f"{money.format_usd(hour)} USD per hour"
        return _IN_WORDS.get(model.price) or self.prices[model.price].text

    @property
    def prices(self) -> PriceTable:
        """The current price table, or the table set by `at`."""
        return _quoted.get() or self._prices

    def reprice(self, prices: PriceTable) -> None:
        """Replace the price table for later quotes; raises `InvalidPrice`."""
        self._prices = self.checked(prices)

    def checked(self, prices: PriceTable) -> PriceTable:
        """Return the price table; raises `InvalidPrice` if a model cannot be priced with it."""
        for model in self._models.values():
            if model.metered and model.price in prices and prices[model.price].request:
                raise InvalidPrice(
                    f"[prices.{model.price}] request_usd must be 0 because {model.name} is charged by usage"
                )
        return prices

    @contextlib.contextmanager
    def at(self, prices: PriceTable | None) -> Generator[None]:
        """Use this price table within the block, even if another table is set meanwhile.

        None has no effect.
        """
        token = _quoted.set(prices or _quoted.get())
        try:
            yield
        finally:
            _quoted.reset(token)

    def has_price(self, name: str) -> bool:
        """Return whether a price is a row of the table or a rate that does not need a row."""
        return name in self.prices or name == metering.CONTAINER_TIME or name in _IN_WORDS

    def price(self, model: Model, values: Mapping[str, Any]) -> PriceRow:
        """Return the price of a run with these validated inputs."""
        rate = self.prices[model.price]
        quantity = _count(values[model.quantity]) if model.quantity else model.max_quantity
        variant = str(values[rate.by]) if rate.by and rate.by in values else None
        return rate.metered(quantity, variant) if model.metered else rate.price(quantity, variant)

    def price_at_most(self, model: Model, values: Mapping[str, Any], unknown: frozenset[str]) -> PriceRow:
        """Return the maximum price of a run if some inputs are `unknown`; the others are validated."""
        if model.price not in self.prices:
            # The hold of such a model does not depend on the inputs.
            return FREE
        rate = self.prices[model.price]
        quantity: float = model.max_quantity
        if model.quantity is not None:
            descriptor = next(descriptor for descriptor in model.inputs if descriptor.name == model.quantity)
            is_known = unknown.isdisjoint((descriptor.name, *descriptor.aliases))
            quantity = _count(values[descriptor.name]) if is_known else _max_quantity(descriptor)
        variant = rate.most_expensive if rate.by in unknown else str(values.get(rate.by or ""))
        return rate.price(quantity, variant)


def _max_quantity(descriptor: Descriptor) -> float:
    return (
        timeline.MAX_SECONDS if descriptor.type == "project" else descriptor.max_items or descriptor.max or 1
    )


def _count(value: Any) -> int | float:
    """Return the quantity in an input: a number, the length of a list, or the seconds of a project."""
    if isinstance(value, Mapping):
        return timeline.seconds(cast("Mapping[str, Any]", value))
    return len(cast("list[object]", value)) if isinstance(value, list) else value


def build(
    document: Mapping[str, Any],
    prices: PriceTable,
    full_texts: Mapping[str, tuple[str, ...]],
    rates: metering.RunRates | None = None,
) -> Catalog:
    """Build the catalog from the files in `data/models`.

    `full_texts` maps each engine with a `named_styles_are_full` input to the strings that it fully supports.
    """
    engines = {name: _engine(name, row, full_texts) for name, row in document["engines"].items()}
    models = {name: _model(name, row, engines) for name, row in document["models"].items()}
    catalog = Catalog(models, prices, rates)
    for model in models.values():
        if not catalog.has_price(model.price):
            raise ValueError(f"price row {model.price} of model {model.name} not found")
    return catalog


def parse_custom(document: Mapping[str, Any], catalog: Catalog, name: str) -> Model:
    """Return the model `name` of a custom model's document, which may use built-in engines.

    Raises `KeyError`, `TypeError` or `ValueError` if the document is not valid.
    """
    engines = {key: _engine(key, row, {}) for key, row in document.get("engines", {}).items()}
    model = _model(name, document["models"][name], {**catalog.engines(), **engines})
    if not catalog.has_price(model.price):
        raise ValueError(f"price row {model.price} of model {name} not found")
    return model


def _engine(name: str, row: Mapping[str, Any], full_texts: Mapping[str, tuple[str, ...]]) -> EngineSpec:
    by_input = row.get("named_styles_are_full")
    full_for = {by_input: frozenset(full_texts.get(name, ()))} if by_input else {}
    plain = {key: value for key, value in row.items() if key not in ("named_styles_are_full", "shares")}
    # Models that were stored by version 0.2 or older.
    if "lanes" in plain:
        plain["max_tasks"] = plain.pop("lanes")
    plain["packages"] = tuple(plain.get("packages", ()))
    plain["runs"] = {key: Subordinate(**row) for key, row in plain.get("runs", {}).items()}
    plain["only"] = {key: tuple(able) for key, able in plain.get("only", {}).items()}
    return EngineSpec(name=name, full_for=full_for, **plain)


def _model(name: str, row: Mapping[str, Any], engines: Mapping[str, EngineSpec]) -> Model:
    fields = {key: value for key, value in row.items() if key in Model.__struct_fields__}
    fields |= {key: tuple(row.get(key, ())) for key in ("sized_by", "backends", "parts")}
    fields |= {
        "name": name,
        "quantity": row.get("quantity"),
        "inputs": tuple(_descriptor(at, key, each) for at, (key, each) in enumerate(row["inputs"].items())),
        "sizes": {key: (int(w), int(h)) for key, (w, h) in row.get("sizes", {}).items()},
        "fixed": row.get("fixed", {}),
        "engines": tuple(engines[engine] for engine in row["engines"]),
    }
    return Model(**fields)


def _descriptor(order: int, name: str, row: Mapping[str, Any]) -> Descriptor:
    fields: dict[str, Any] = {**row, "choices": tuple(row.get("choices", ()))}
    return Descriptor(name=name, order=order, **fields)
