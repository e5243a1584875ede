"""Where graphs are checked, priced and run: one per server, for every account."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from sixfold import errors
from sixfold.core.accounts.prices import FREE, PriceRow
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import inputs as checks
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.catalog.models import Model
from sixfold.core.predictions.service import PredictionService
from sixfold.core.workflows import estimate, input_inference, slices, workflows
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.editor_format.to_api import ConvertedGraph, conversion
from sixfold.core.workflows.estimate import Estimate, UnknownCost
from sixfold.core.workflows.execute import unrunnable
from sixfold.core.workflows.input_inference import ApiInput
from sixfold.core.workflows.limits import DEFAULT_LIMITS, GraphLimits
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.pictures import PictureCodecs, PictureEditor
from sixfold.core.workflows.ports import ChildRequest, ValuePacker
from sixfold.core.workflows.remote_execution import RemoteGraphRunner, import_file
from sixfold.core.workflows.slices import Slices, Steps
from sixfold.core.workflows.storage import GraphFiles, NodeOutputCache
from sixfold.core.workflows.validate import ValidationResult, validation
from sixfold.core.workflows.websocket_hub import WebSocketHub
from sixfold.core.workflows.workflows import Workflow

UNLOCK = "Start a ComfyUI that has them and set SIXFOLD_COMFYUI_URL."
PUBLIC = "On a public address SIXFOLD_COMFYUI_GRAPHS=allow lets graphs run on a ComfyUI that has them."
TEMPLATE = "template:"  # how a node names one
_PLACE = "data:,"  # stands for a file that only a run can know
_MOST_ACCOUNTS = 1000
_SMALL_NODES = 50  # a space of so many is checked and priced within a few milliseconds


@dataclasses.dataclass(frozen=True, slots=True)
class GraphRuntime:
    """What is known of nodes: all classes (read when first asked for), and how values become bytes.

    `pictures` decodes and encodes pictures. `unlock` says how classes come to run that nothing here has.
    """

    registry: Callable[[], Registry]
    packer: Callable[[Path], ValuePacker]
    pictures: PictureCodecs
    unlock: str = UNLOCK
    limits: GraphLimits = DEFAULT_LIMITS


@dataclasses.dataclass(frozen=True, slots=True)
class _AccountGraphs:
    """The classes of a ComfyUI: as it told them, with what is known of them here, and beside our own."""

    known: Registry
    own: Registry
    joined: Registry


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A large space's checked inputs and price, as functions that return them or raise what refused them."""

    graph: Any
    given: Mapping[str, Any]
    inputs: Callable[[], dict[str, Any]]
    price: Callable[[], PriceRow]
    charged: bool


class GraphService:
    """Everything about graphs that faces and the engine share."""

    def __init__(
        self,
        craft: GraphRuntime,
        built_in: Mapping[str, Workflow],
        names: GraphFiles,
        pipeline: PredictionService,
        elsewhere: RemoteGraphRunner | None = None,
    ) -> None:
        self._craft = craft
        self._pipeline = pipeline
        self._outcomes: dict[Tenant, NodeOutputCache] = {}
        self.spaces = built_in
        self.names = names
        self.packer = craft.packer
        self.pictures = PictureEditor(craft.pictures)
        self.limits = craft.limits
        self.media = names.media
        self.elsewhere = elsewhere
        self._found: _AccountGraphs | None = None
        self._prepared: _Prepared | None = None
        self._loaded = False
        self._loading = asyncio.Lock()
        self.slices = Slices()
        self.hub = WebSocketHub()

    @property
    def registry(self) -> Registry:
        """All classes that are known here; read when first asked for."""
        return self._craft.registry()

    async def load(self) -> None:
        """Read all classes in a thread, once: the modules behind them take 0.3 s to import."""
        async with self._loading:
            if not self._loaded:
                await asyncio.to_thread(self._craft.registry)
                self._loaded = True

    @property
    def bus(self) -> Any:
        """What happens to predictions."""
        return self._pipeline.bus

    def outcomes(self, tenant: Tenant) -> NodeOutputCache:
        """The cache of nodes that all credentials of a tenant's account share."""
        tenant = tenant.whole
        if tenant not in self._outcomes:
            if len(self._outcomes) >= _MOST_ACCOUNTS:
                del self._outcomes[next(iter(self._outcomes))]
            self._outcomes[tenant] = self.names.outcomes(tenant)
        return self._outcomes[tenant]

    # -- whether, and for how much -----------------------------------------------------------------

    async def look(self, graph: object = None, account_id: str = "") -> None:
        """See what the ComfyUI has, for a graph that only it can run; without one, now and then.

        The account's own models that its nodes name are met, too.
        """
        if graph is not None:
            await self.load()
        nodes = [mapping(node) for node in mapping(graph).values()]
        classes = {str(node.get("class_type")) for node in nodes}
        foreign = {name for name in classes if not self._runs(name)}
        if self.elsewhere is not None and (foreign or graph is None):
            await self.elsewhere.look(foreign)
            if self._is_stale(known := self.elsewhere.known):
                self._found = await asyncio.to_thread(self._joined, known)
        named = {str(mapping(node.get("inputs")).get("template", "")) for node in nodes} if account_id else ()
        for name in {each.removeprefix(TEMPLATE) for each in named} - {""}:
            if name not in self._pipeline.catalog:
                with contextlib.suppress(errors.NotFound):
                    await self._pipeline.custom_models.find(name, account_id)

    async def convert(self, document: object) -> ConvertedGraph:
        """A document in either format as a graph; raises `NotAWorkflow` or `GraphTooLarge`."""
        await self.load()
        return await self.slices.run(conversion(document, self.classes, self.limits))

    def _runs(self, class_type: str) -> bool:
        spec = self.registry.get(class_type)
        return spec is not None and spec.run is not None

    def check(
        self, graph: object, *, targets: Collection[str] | None = None, strict_models: bool = False
    ) -> ValidationResult:
        """Whether a graph can run: here, or whole on the ComfyUI where that alone has its classes.

        Raises `GraphTooLarge` before anything else is looked at.
        """
        return slices.complete(self._checking(graph, targets, strict_models=strict_models))

    async def verdict(
        self, graph: object, *, targets: Collection[str] | None = None, strict_models: bool = False
    ) -> ValidationResult:
        """The same in slices, so that a large graph does not hold up the event loop."""
        await self.load()
        return await self.slices.run(self._checking(graph, targets, strict_models=strict_models))

    def _checking(
        self, graph: object, targets: Collection[str] | None = None, *, strict_models: bool = False
    ) -> Steps[ValidationResult]:
        yield from self.limits.checking(graph)
        yield
        theirs = self._theirs()
        named = {str(mapping(node).get("class_type")) for node in mapping(graph).values()}
        if theirs is None or all(name in self.registry for name in named):
            verdict = yield from validation(
                graph, self.registry, targets=targets, strict_models=strict_models
            )
            if theirs is None or not unrunnable(verdict):
                return verdict
        if not all(name in theirs.joined for name in named):
            return (yield from validation(graph, theirs.joined, targets=targets))
        verdict = yield from validation(graph, theirs.own, targets=targets)
        return dataclasses.replace(verdict, elsewhere=True)

    @property
    def classes(self) -> Registry:
        """All classes that can be named: those that are known here, and those of the ComfyUI."""
        theirs = self._theirs()
        return self.registry if theirs is None else theirs.joined

    def _theirs(self) -> _AccountGraphs | None:
        known = self.elsewhere.known if self.elsewhere is not None else None
        if known is None:
            self._found = None
        elif self._is_stale(known):
            self._found = self._joined(known)
        return self._found

    def _is_stale(self, known: Registry | None) -> TypeGuard[Registry]:
        return known is not None and (self._found is None or self._found.known is not known)

    def _joined(self, known: Registry) -> _AccountGraphs:
        """Their classes beside ours, of which there may be tens of thousands."""
        own = Registry(import_file(known, self.registry))
        joined = Registry([*own, *self.registry])
        for registry in (own, joined):
            registry.index()
        return _AccountGraphs(known, own, joined)

    def estimate(
        self,
        verdict: ValidationResult,
        account_id: str = "",
        *,
        charged: bool = True,
        without: Collection[str] = (),
    ) -> Estimate:
        """What a checked graph would cost an account at most, without some nodes.

        Raises `EngineUnavailable` where an order has no engine here, `InvalidInput` where one is refused.
        """
        return slices.complete(self._estimating(verdict, account_id, charged=charged, without=without))

    async def estimated(
        self, verdict: ValidationResult, account_id: str, *, charged: bool = True
    ) -> Estimate:
        """The same in slices."""
        return await self.slices.run(self._estimating(verdict, account_id, charged=charged))

    def _estimating(
        self,
        verdict: ValidationResult,
        account_id: str = "",
        *,
        charged: bool = True,
        without: Collection[str] = (),
    ) -> Steps[Estimate]:
        quoted = functools.partial(self.price_of, account_id=account_id, charged=charged)
        price = self._worth if verdict.elsewhere else quoted
        asked = yield from estimate.ordering(verdict, lenient=verdict.elsewhere)
        alike = {id(each): each for node, each in asked if node not in without}
        prices: dict[int, PriceRow] = {}
        for key, each in alike.items():
            prices[key] = price(each)
            yield
        orders = tuple((node, each.model, prices[id(each)]) for node, each in asked if node not in without)
        return Estimate(orders, self._vram(verdict))

    def _vram(self, verdict: ValidationResult) -> float | None:
        """What the files of a graph take together, as far as the built-in spaces know them."""
        known = {row["file"]: row["vramGb"] for space in self.spaces.values() for row in space.models}
        files = {each["file"] for each in verdict.missing_models}
        return sum(float(known[file]) for file in files) if files <= known.keys() else None

    def as_quoted(self, prediction_id: str) -> contextlib.AbstractContextManager[None]:
        """Price what a graph orders within the block as the graph itself was priced."""
        return self._pipeline.quotes.using(prediction_id)

    def price_of(self, asked: ChildRequest, account_id: str, *, charged: bool) -> PriceRow:
        """What an order costs at most; raises what `estimate` does."""
        built_in, own = self._pipeline.catalog, self._pipeline.custom_models
        model = built_in[asked.model] if asked.model in built_in else own.known(asked.model, account_id)
        if model is None:
            sentence = (
                f"There is no model {asked.model} for this graph; `GET /api/services` lists the models."
            )
            raise errors.EngineUnavailable(sentence)
        if model.price == CHILDREN:  # they would wait for each other's places
            raise errors.BadRequest(f"A graph cannot run another graph ({asked.model})")
        quote = self._pipeline.quote(model, _given(model, asked), charged=charged)
        most = built_in.price_at_most(model, quote.values, _unknown(model, asked))
        if quote.price.list_micros is None:
            return max(quote.price, most, key=lambda price: price.micros)
        return max(quote.price, most.waive(), key=estimate.list_price_of)

    def _worth(self, asked: ChildRequest) -> PriceRow:
        """The price of what the ComfyUI does, whether or not an engine here could."""
        catalog = self._pipeline.catalog
        if asked.model not in catalog:
            return FREE
        model = catalog[asked.model]
        values = model.check(_given(model, asked))
        price = catalog.price_at_most(model, values, _unknown(model, asked))
        return price.waive() if catalog.prices.own_hardware_free else price

    def checked(self, model: Model, given: Mapping[str, Any]) -> dict[str, Any]:
        """A model's checked inputs; where some are wrong, its graph tells what is wrong with the others."""
        ready = self._prepared
        if ready is not None and ready.graph is model.fixed.get("graph") and ready.given == given:
            return dict(ready.inputs())
        return slices.complete(self._checking_inputs(model, given))

    def _checking_inputs(self, model: Model, given: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        try:
            return model.check(given)
        except errors.InvalidInput as wrong:
            graph = model.fixed.get("graph")
            if model.price != CHILDREN or graph is None:
                raise
            named = {each.input for each in wrong.problems}
            good = checks.check(tuple(each for each in model.inputs if each.name not in named), given)
            places = workflows.api_inputs(model.fixed.get("api_inputs", ()))
            verdict = yield from self._checking(input_inference.apply(graph, places, good))
            more = _problems(verdict, places)
            more = [each for each in more if each.input in good]
            raise errors.InvalidInput([*wrong.problems, *more]) from wrong

    def price(self, model: Model, values: Mapping[str, Any], *, charged: bool) -> PriceRow:
        """What is held for a run of a space (an appraiser of the pipeline); raises what `estimate` does."""
        graph = model.fixed.get("graph")
        if graph is None:  # its graph comes with the order, and so does what is held
            return Estimate(()).price
        ready = self._prepared
        if ready is not None and ready.graph is graph and ready.charged == charged:
            self._prepared = None
            if ready.inputs() == values:
                return ready.price()
        return slices.complete(self._pricing(model, values, charged=charged))

    async def prepare(self, model: Model, given: Mapping[str, Any], *, charged: bool) -> None:
        """Check and price a run of a large space in slices; `checked` and `price` give what was found.

        They must be called before anything else is awaited.
        """
        graph = model.fixed.get("graph")
        if graph is None:
            return
        await self.load()
        if len(graph) <= _SMALL_NODES:
            return
        inputs = await self._outcome(self._checking_inputs(model, given))
        price: Callable[[], Any] = inputs
        with contextlib.suppress(errors.SixfoldError):  # of the inputs, which the call raises
            price = await self._outcome(self._pricing(model, inputs(), charged=charged))
        self._prepared = _Prepared(graph, given, inputs, price, charged=charged)

    async def _outcome(self, steps: Steps[Any]) -> Callable[[], Any]:
        """What a computation gives, as a function that returns or raises it."""
        try:
            found = await self.slices.run(steps)
        except errors.SixfoldError as error:
            refusal = error

            def refused() -> Any:
                raise refusal

            return refused
        return lambda: found

    def _pricing(self, model: Model, values: Mapping[str, Any], *, charged: bool) -> Steps[PriceRow]:
        graph = model.fixed["graph"]
        inputs = workflows.api_inputs(model.fixed.get("api_inputs", ()))
        yield
        applied = input_inference.apply(graph, inputs, values)
        yield
        verdict = yield from self._checking(applied)
        if not verdict.valid:
            self.refuse(verdict, inputs)
        self.require(verdict)
        owner = str(model.fixed.get("_owner", ""))
        return (yield from self._estimating(verdict, owner, charged=charged)).price

    def require(self, verdict: ValidationResult) -> None:
        """Raise `EngineUnavailable` where nothing runs some known class."""
        if not verdict.elsewhere and unrunnable(verdict):
            raise errors.EngineUnavailable(self.lacking(verdict))

    def lacking(self, verdict: ValidationResult) -> str:
        """The sentence on the classes that nothing here can run."""
        missing = sorted({*verdict.missing_classes, *unrunnable(verdict)})
        told = f"No engine here has the node classes {', '.join(missing)}."
        if self._theirs() is None:
            return f"{told} {self._craft.unlock}"
        ours = ", ".join(name for name in missing if self._runs(name))
        if ours:
            return f"{ours} run only here, and other nodes only on the ComfyUI: a graph is not divided."
        return f"{told} The connected ComfyUI lacks them too: install their custom nodes there."

    def refuse(self, verdict: ValidationResult, inputs: tuple[ApiInput, ...] = ()) -> None:
        """Raise what keeps a graph from running: `EngineUnavailable`, or `InvalidInput` with every fault."""
        if verdict.missing_classes:
            raise errors.EngineUnavailable(self.lacking(verdict))
        raise errors.InvalidInput(_problems(verdict, inputs))


def _problems(verdict: ValidationResult, inputs: tuple[ApiInput, ...]) -> list[errors.Problem]:
    """Every fault of a graph, by the names of its inputs."""
    named = {(each.node_id, each.field): each.name for each in inputs}
    problems: list[errors.Problem] = []
    for fault in verdict.errors:
        field = str(fault["extra_info"].get("input_name") or "workflow")
        name = named.get((str(fault.get("node_id")), field), field)
        sentence = f"{name}: {fault['message']} ({fault['details']})"
        problems.append(errors.Problem(name, sentence, fault["type"]))
    return problems


def _standing(each: checks.Descriptor) -> Any:
    """A value for an input that only a run can know."""
    if each.type in ("integer", "number"):
        return each.min or 1
    return each.choices[0] if each.choices else "…"


def _given(model: Model, asked: ChildRequest) -> dict[str, Any]:
    """An order's inputs, with something in the place of what only a run can know."""
    given = {name: value for name, value in asked.inputs.items() if not isinstance(value, UnknownCost)}
    for each in model.inputs:
        if each.type in checks.MEDIA_TYPES and (each.name in asked.inputs or each.required):
            given[each.name] = _PLACE
        elif each.required and each.name not in given and each.default is None:
            given[each.name] = _standing(each)
    return given


def _unknown(model: Model, asked: ChildRequest) -> frozenset[str]:
    """The inputs of an order that only a run can know."""
    found = {name for name, value in asked.inputs.items() if isinstance(value, UnknownCost)}
    if asked.open:
        found |= {each.name for each in model.inputs if each.name not in asked.inputs}
    return frozenset(found)
