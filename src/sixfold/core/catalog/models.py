"""The catalogue: every model that a request can name, and the engines that can serve it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.own_prices import InvalidPrice
from sixfold.core.accounts.prices import FREE, PriceRow, PriceTable
from sixfold.core.catalog import engine_selection, inputs, metering, timeline
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.engines import Quality, TaskRecord
from sixfold.core.catalog.inputs import Descriptor

REMOTE_KINDS = frozenset({"comfyui", "provider", "graph", "relay", "space"})
_OWN_KINDS = frozenset({"embedded", "weights", "comfyui", "own", "sandbox", "container"})
_quoted: ContextVar[PriceTable | None] = ContextVar("quoted", default=None)
_IN_WORDS = {
    metering.CHILDREN: "what its nodes cost",
    metering.TOKENS: "by the tokens; free on this machine",
}


@dataclass(frozen=True, slots=True)
class Subordinate:
    """When an engine orders a run of another model: with the values in `only`, and `without` an input."""

    only: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    without: str = ""

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether the run is ordered for these inputs."""
        if self.without and str(values.get(self.without) or "").strip():
            return False
        return all(values.get(name) in able for name, able in self.only.items())


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine as the catalogue knows it, without loading it.

    `concurrency` is how many workers may run it at once (0: as many as there are slots); each takes
    `lanes` tasks together, or plays as many sessions as it has `seats`. `options` go to its factory;
    `packages` are what it imports beyond the base, `setting` is what makes it reachable (a provider's key),
    `family` names its folder of weights, and `unlock` is the clause that says how it comes to be ready:
    "set FAL_KEY".
    `vram_gb` is what weights take of a graphics card, and `ram_gb` what a worker takes of the machine; 0
    where that is not known.
    `full_for` names inputs and the texts with which the engine is `full` rather than `quality`; `only`
    names inputs and the values with which it can serve at all (an input that is not given is no obstacle).
    `runs` names the models that it orders itself, each with the inputs for which it does. An account has at
    most `free_runs` of its runs without a price at a time, where that is not 0; others wait in the queue.
    """

    name: str
    factory: str
    version: str
    quality: Quality
    kind: str
    concurrency: int
    idle_seconds: float
    unlock: str
    full_for: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    runs: Mapping[str, Subordinate] = field(default_factory=dict[str, "Subordinate"])
    lanes: int = 1
    seats: int = 1
    start_seconds: float = 0.0
    cancel_seconds: float = 0.0
    memory_bytes: int | None = None
    vram_gb: float = 0.0
    ram_gb: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    packages: tuple[str, ...] = ()
    setting: str = ""
    family: str = ""
    free_runs: int = 0

    @property
    def remote(self) -> bool:
        """Whether it waits for another machine and so takes no worker slot of this one."""
        return self.kind in REMOTE_KINDS

    @property
    def on_own_hardware(self) -> bool:
        """Whether this installation's own machines run it, so that no provider is paid.

        A space counts where the operator named its server, and not where a hub did. The nodes of a graph and
        the model servers of a conversation each have prices of their own.
        """
        if self.kind == "space":
            return bool(self.options.get("trusted"))
        return self.kind in _OWN_KINDS

    def limit_seconds(self, usual: float) -> float:
        """How long one of its runs may take: what its options say, else the `usual`."""
        return float(self.options.get("limit_seconds", usual))

    def can(self, values: Mapping[str, Any]) -> bool:
        """Whether it can serve exactly these inputs."""
        return all(values.get(name) in (None, "", *able) for name, able in self.only.items())

    def quality_for(self, values: Mapping[str, Any]) -> Quality:
        """How good this engine is at exactly these inputs."""
        for name, texts in self.full_for.items():
            if " ".join(str(values.get(name, "")).lower().split()) in texts:
                return "full"
        return self.quality


@dataclass(frozen=True, slots=True)
class Model:
    """One model: its inputs, its price and its engines in order of preference.

    `sizes` gives pixels for the choices of the input `size`, or of those in `sized_by`, joined by a space.
    `backends` are the models among which one is taken for each order, by `backends.choose`.
    `words` gives inputs the names by which engines know them.
    The price is for what the input `quantity` asks for, or for `most` units; where it is `metered`, that is
    only held, and what the run tells (`Result.billed`) is captured. `hardware` is what an own model runs on.
    `served_by` is the clause that says what serves it other than engines of the catalogue. `files` are blobs
    that every run is given, by the names under which an engine finds them.
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
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    metered: bool = False
    most: float = 1
    hardware: str | None = None
    served_by: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])

    def listed_pictures(self, values: Mapping[str, Any]) -> dict[str, tuple[Descriptor, str]]:
        """The pictures in the inputs that are lists of them, by the names that an engine finds them by."""
        return {
            f"{each.name}.{number:03}": (Descriptor(each.name, "image"), text)
            for each in self.picture_lists
            for number, text in enumerate(cast("list[str]", values.get(each.name, [])))
        }

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Checked and complete inputs; raises `InvalidInput` with every problem."""
        checked = inputs.check(self.inputs, given)
        for name in self.projects & checked.keys():
            checked[name] = timeline.check(checked[name])
        return checked

    @property
    def projects(self) -> frozenset[str]:
        """The inputs that are films' projects."""
        return frozenset(descriptor.name for descriptor in self.inputs if descriptor.type == "project")

    def measured(self, values: Mapping[str, Any], lengths: Mapping[str, float | None]) -> dict[str, Any]:
        """The inputs with what the files of a project say of its length, in seconds by their names."""
        return {
            name: timeline.measured(value, lengths) if name in self.projects else value
            for name, value in values.items()
        }

    def is_waived(self, prices: PriceTable, terms: SelectionPolicy) -> bool:
        """Whether a usual request for this model is free, since own hardware serves it."""
        if not prices.own_hardware_free:
            return False
        try:
            return self.choose({}, terms)[0].on_own_hardware
        except (errors.EngineUnavailable, errors.InvalidInput):
            return False

    @property
    def media_inputs(self) -> tuple[Descriptor, ...]:
        """The inputs that name a file or a URL."""
        return tuple(d for d in self.inputs if d.type in inputs.MEDIA_TYPES)

    @property
    def picture_lists(self) -> tuple[Descriptor, ...]:
        """The inputs that name several pictures."""
        return tuple(d for d in self.inputs if d.type == "images")

    def takes(self, name: str) -> bool:
        """Whether the model has an input of this name."""
        return any(descriptor.name == name for descriptor in self.inputs)

    def for_engine(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs in an engine's words: a `size` becomes `width` and `height`, fixed ones join."""
        translated = {self.words.get(name, name): value for name, value in values.items()} | dict(self.fixed)
        if self.sized_by:
            size: Any = " ".join(str(translated.pop(name)) for name in self.sized_by)
        else:
            size = translated.pop("size", None)
        if size is not None:
            translated["width"], translated["height"] = self.dimensions(str(size))
        return translated

    def dimensions(self, size: str) -> tuple[int, int]:
        """Pixels of a checked `size`: a preset of this model, or `WxH`."""
        if size in self.sizes:
            return self.sizes[size]
        width, _, height = size.partition("x")
        return int(width), int(height)

    def choose(
        self, values: Mapping[str, Any], terms: SelectionPolicy, stored: Collection[str] = ()
    ) -> tuple[EngineSpec, Quality]:
        """Return the first engine that may serve these inputs, and its quality.

        `stored` names the media inputs whose bytes are stored already, so their values are no addresses.
        Raises `EngineUnavailable` with the remedy, or `InvalidInput` where no engine could serve them.
        """
        held_back = False
        able = [engine for engine in self.engines if engine.can(values)]
        for engine in able:
            if not terms.standing(engine.name).ready or (engine.kind == "provider" and not terms.paid):
                continue
            quality = engine.quality_for(values)
            if quality == "full" or (terms.previews and not terms.full_only):
                return engine, quality
            held_back = True
        if astray := self._astray(values, stored):
            raise errors.InvalidInput(astray)
        what = "Only a preview engine" if held_back else "No engine"
        allow = "SIXFOLD_PREVIEWS=allow serves previews." if held_back and not terms.full_only else ""
        parts = (f"{what} can serve {self.asked(values)} here.", _unlock(able, terms, self.served_by), allow)
        raise errors.EngineUnavailable(" ".join(part for part in parts if part))

    def asked(self, values: Mapping[str, Any]) -> str:
        """The model, and the choices by which its engines differ: `speech-to-speech with task speak`."""
        by = {name for engine in self.engines for name in engine.only}
        chosen = [
            each.name for each in self.inputs if each.name in by and each.choices and values.get(each.name)
        ]
        named = " and ".join(f"{name} {values[name]}" for name in chosen)
        return f"{self.name} with {named}" if named else self.name

    def _astray(self, values: Mapping[str, Any], stored: Collection[str]) -> tuple[errors.Problem, ...]:
        """What no engine could make use of: but a graph's files may have names of their own."""
        media = () if self.price == metering.CHILDREN else (*self.media_inputs, *self.picture_lists)
        return tuple(inputs.unknown_names([each for each in media if each.name not in stored], values))

    def unlock(self, terms: SelectionPolicy) -> str:
        """What would let an engine serve that cannot now, as one sentence; empty when all can."""
        return _unlock(self.engines, terms, self.served_by)


def _unlock(engines: Sequence[EngineSpec], terms: SelectionPolicy, served_by: str) -> str:
    missing = [one.unlock for one in engines if not terms.standing(one.name).ready]
    return engine_selection.sentence([*missing, served_by])


def unknown(name: str) -> errors.NotFound:
    """Return the error for a model that is neither in the catalog nor the account's own."""
    return errors.NotFound(
        f"There is no model {name[:100]}; `GET /api/containers/templates` lists the models"
    )


class Catalog:
    """All models by name; raises `NotFound` for another name."""

    def __init__(
        self, models: Mapping[str, Model], prices: PriceTable, rates: metering.RunRates | None = None
    ) -> None:
        self._models = dict(models)
        self._prices = self.checked(prices)
        self._engines = {engine.name: engine for model in self._models.values() for engine in model.engines}
        self.rates = rates or metering.FlatRates(metering.HardwareRate("cpu", 0))

    def __getitem__(self, name: str) -> Model:
        try:
            return self._models[name]
        except KeyError:
            raise unknown(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def check_runs(
        self, model: Model, engine: EngineSpec, values: Mapping[str, Any], terms: SelectionPolicy
    ) -> None:
        """Raise `EngineUnavailable` where a run that the engine orders for these inputs has no engine."""
        terms = replace(terms, paid=model.price == metering.CHILDREN, full_only=False)
        for name, run in engine.runs.items():
            if not run.applies(values):
                continue
            try:
                self[name].choose({}, terms)
            except errors.EngineUnavailable as error:
                raise errors.EngineUnavailable(
                    f"{model.asked(values)} needs {name}: {error.message}"
                ) from error

    def models(self) -> tuple[Model, ...]:
        """Every model, in the catalogue's order."""
        return tuple(self._models.values())

    def engines(self) -> Mapping[str, EngineSpec]:
        """Every engine that some model names."""
        return self._engines

    def price_text(self, model: Model) -> str:
        """The price in words: `0.04 USD per image`."""
        if model.price == metering.CONTAINER_TIME:
            hour = self.rates.hardware_rate(model.name, model.hardware).hour_micros
            return f"{money.format_usd(hour)} USD per hour"
        return _IN_WORDS.get(model.price) or self.prices[model.price].text

    @property
    def prices(self) -> PriceTable:
        """The table in force: within `at` the one that was given there."""
        return _quoted.get() or self._prices

    def reprice(self, prices: PriceTable) -> None:
        """Put another table in force for what is quoted from now on; raises `InvalidPrice`."""
        self._prices = self.checked(prices)

    def checked(self, prices: PriceTable) -> PriceTable:
        """A table that every model can be priced by; raises `InvalidPrice` where one cannot."""
        for model in self._models.values():
            if model.metered and model.price in prices and prices[model.price].request:
                raise InvalidPrice(
                    f"[prices.{model.price}] request_usd must be 0: {model.name} is charged by what was used"
                )
        return prices

    @contextlib.contextmanager
    def at(self, prices: PriceTable | None) -> Generator[None]:
        """Quote by this table within the block, whatever is put in force meanwhile; None changes nothing."""
        token = _quoted.set(prices or _quoted.get())
        try:
            yield
        finally:
            _quoted.reset(token)

    def has_price(self, name: str) -> bool:
        """Whether there is such a price row."""
        return name in self.prices or name == metering.CONTAINER_TIME or name in _IN_WORDS

    def price(self, model: Model, values: Mapping[str, Any]) -> PriceRow:
        """What a run with these checked inputs costs."""
        rate = self.prices[model.price]
        quantity = _count(values[model.quantity]) if model.quantity else model.most
        variant = str(values[rate.by]) if rate.by and rate.by in values else None
        return rate.metered(quantity, variant) if model.metered else rate.price(quantity, variant)

    def price_at_most(self, model: Model, values: Mapping[str, Any], unknown: frozenset[str]) -> PriceRow:
        """What a run costs at most of which some inputs are unknown; the others are checked."""
        if model.price not in self.prices:
            return FREE  # its hold does not depend on them
        rate = self.prices[model.price]
        quantity: float = model.most
        if model.quantity is not None:
            counted = next(each for each in model.inputs if each.name == model.quantity)
            known = unknown.isdisjoint((counted.name, *counted.aliases))
            quantity = _count(values[counted.name]) if known else _most(counted)
        variant = rate.dearest if rate.by in unknown else str(values.get(rate.by or ""))
        return rate.price(quantity, variant)


def _most(counted: Descriptor) -> float:
    """The most that an input can ask for."""
    return timeline.MOST_SECONDS if counted.type == "project" else counted.max_items or counted.max or 1


def _count(value: Any) -> int | float:
    """How much an input asks for: a number of things or seconds, a list of things, or a project's seconds."""
    if isinstance(value, Mapping):
        return timeline.seconds(cast("Mapping[str, Any]", value))
    return len(cast("list[object]", value)) if isinstance(value, list) else value


def build(
    document: Mapping[str, Any],
    prices: PriceTable,
    full_texts: Mapping[str, tuple[str, ...]],
    rates: metering.RunRates | None = None,
) -> Catalog:
    """The catalogue of what the files in `data/models` say.

    `full_texts` gives, for an engine with a `named_styles_are_full` input, the texts it does fully.
    """
    engines = {name: _engine(name, row, full_texts) for name, row in document["engines"].items()}
    models = {name: _model(name, row, engines) for name, row in document["models"].items()}
    catalog = Catalog(models, prices, rates)
    for model in models.values():
        if not catalog.has_price(model.price):
            raise ValueError(f"model {model.name} has no price row {model.price}")
    return catalog


def own(document: Mapping[str, Any], catalog: Catalog, name: str) -> Model:
    """The model `name` of a document whose engines are its own or the catalogue's.

    Raises `KeyError`, `TypeError` or `ValueError` where it is no such document.
    """
    engines = {key: _engine(key, row, {}) for key, row in document.get("engines", {}).items()}
    model = _model(name, document["models"][name], {**catalog.engines(), **engines})
    if not catalog.has_price(model.price):
        raise ValueError(f"model {name} has no price row {model.price}")
    return model


def _engine(name: str, row: Mapping[str, Any], full_texts: Mapping[str, tuple[str, ...]]) -> EngineSpec:
    by_input = row.get("named_styles_are_full")
    full_for = {by_input: frozenset(full_texts.get(name, ()))} if by_input else {}
    plain = {key: value for key, value in row.items() if key not in ("named_styles_are_full", "shares")}
    plain["packages"] = tuple(plain.get("packages", ()))
    plain["runs"] = {key: Subordinate(**facts) for key, facts in plain.get("runs", {}).items()}
    plain["only"] = {key: tuple(able) for key, able in plain.get("only", {}).items()}
    return EngineSpec(name=name, full_for=full_for, **plain)


def _model(name: str, row: Mapping[str, Any], engines: Mapping[str, EngineSpec]) -> Model:
    return Model(
        name=name,
        title=row["title"],
        description=row["description"],
        output_kind=row["output_kind"],
        price=row["price"],
        quantity=row.get("quantity"),
        inputs=tuple(
            _descriptor(order, input_name, facts)
            for order, (input_name, facts) in enumerate(row["inputs"].items())
        ),
        sizes={key: (int(w), int(h)) for key, (w, h) in row.get("sizes", {}).items()},
        fixed=row.get("fixed", {}),
        engines=tuple(engines[engine] for engine in row["engines"]),
        sized_by=tuple(row.get("sized_by", ())),
        backends=tuple(row.get("backends", ())),
        words=row.get("words", {}),
        metered=row.get("metered", False),
        most=row.get("most", 1),
        hardware=row.get("hardware"),
        served_by=row.get("served_by", ""),
        files=row.get("files", {}),
    )


def _descriptor(order: int, name: str, facts: Mapping[str, Any]) -> Descriptor:
    known: dict[str, Any] = {**facts, "choices": tuple(facts.get("choices", ()))}
    return Descriptor(name=name, order=order, **known)


def fingerprint(model: str, engine: EngineSpec, task: TaskRecord) -> bytes:
    """Equal for orders that give equal bytes: model, engine, version, inputs, and media by content."""
    encoded = msgspec.json.encode([model, engine.name, engine.version, task], order="sorted")
    return hashlib.blake2b(encoded, digest_size=16).digest()
