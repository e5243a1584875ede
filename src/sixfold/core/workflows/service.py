"""The workflow service, which validates, prices and runs graphs. Each server has one, for all accounts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from sixfold import errors
from sixfold.core.accounts.prices import FREE, PriceRow
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import inputs as checks
from sixfold.core.catalog.metering import CHILDREN, PreparedQuote
from sixfold.core.catalog.models import Model
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.service import PredictionService
from sixfold.core.workflows import estimate, input_inference, slices, workflows
from sixfold.core.workflows.comfyui.image_editor import ImageCodecs, ImageEditor
from sixfold.core.workflows.comfyui.websocket_hub import WebSocketHub
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.editor_format.to_api import ConvertedGraph, conversion
from sixfold.core.workflows.estimate import Estimate, UnknownCost
from sixfold.core.workflows.execution.execute import unrunnable
from sixfold.core.workflows.execution.remote import RemoteGraphRunner, merge_specs
from sixfold.core.workflows.input_inference import ApiInput
from sixfold.core.workflows.limits import DEFAULT_LIMITS, DocumentMemory, GraphLimits
from sixfold.core.workflows.nodes import Graph, Registry
from sixfold.core.workflows.ports import ChildRequest, ValuePacker
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.storage import GraphFiles, NodeOutputCache
from sixfold.core.workflows.validate import ValidationResult, validation_steps
from sixfold.core.workflows.workflows import Workflow

UNLOCK = "Start a ComfyUI server that has them, and set SIXFOLD_COMFYUI_URL."
PUBLIC = "On a public address SIXFOLD_COMFYUI_GRAPHS=allow lets graphs run on a ComfyUI that has them."
# Prefix with which a node names a template.
TEMPLATE = "template:"
# Placeholder for a file that is known only during the run.
_PLACEHOLDER_URL = "data:,"
_MAX_ACCOUNTS = 1000
# Graphs of at most this many nodes are validated and priced within a few milliseconds.
_SMALL_NODES = 50


class GraphRuntime(msgspec.Struct, frozen=True):
    """The node classes, value packer and image codecs of this installation.

    `registry` returns all classes and reads them on its first call. `unlock` explains how to run classes that
    this server cannot run.
    """

    registry: Callable[[], Registry]
    packer: Callable[[Path], ValuePacker]
    images: ImageCodecs
    unlock: str = UNLOCK
    limits: GraphLimits = DEFAULT_LIMITS


class _RemoteClasses(msgspec.Struct, frozen=True):
    """The classes of the connected ComfyUI server.

    They are as reported, merged with local classes of the same name, and merged with all local classes.
    """

    known: Registry
    own: Registry
    joined: Registry


class GraphService:
    """The workflow service, shared by the APIs and the workflow engine."""

    def __init__(
        self,
        runtime: GraphRuntime,
        built_in: Mapping[str, Workflow],
        names: GraphFiles,
        predictions: PredictionService,
        remote: RemoteGraphRunner | None = None,
    ) -> None:
        self._runtime = runtime
        self._predictions = predictions
        self._output_caches: dict[Tenant, NodeOutputCache] = {}
        self.spaces = built_in
        self.names = names
        self.packer = runtime.packer
        self.images = ImageEditor(runtime.images)
        self.limits = runtime.limits
        self.media = names.media
        self.remote = remote
        self._remote_classes: _RemoteClasses | None = None
        self._loaded = False
        self._loading = asyncio.Lock()
        self.document_memory = DocumentMemory()
        self.hub = WebSocketHub()

    @property
    def registry(self) -> Registry:
        """All local node classes, which the first access reads."""
        return self._runtime.registry()

    async def load(self) -> None:
        """Read all classes in a thread, once: importing their modules takes 0.3 s."""
        async with self._loading:
            if not self._loaded:
                await asyncio.to_thread(self._runtime.registry)
                self._loaded = True

    @property
    def bus(self) -> Any:
        return self._predictions.bus

    def output_cache(self, tenant: Tenant) -> NodeOutputCache:
        """Return the node cache that all credentials of the tenant's account share."""
        tenant = tenant.whole
        if tenant not in self._output_caches:
            if len(self._output_caches) >= _MAX_ACCOUNTS:
                del self._output_caches[next(iter(self._output_caches))]
            self._output_caches[tenant] = self.names.output_cache(tenant)
        return self._output_caches[tenant]

    # -- validating and pricing --------------------------------------------------------------------

    async def refresh_remote(self, graph: object = None, account_id: str = "") -> None:
        """Refresh ComfyUI's classes if a graph needs them, or periodically without a graph.

        Also loads the account's custom models that the graph's nodes name.
        """
        if graph is not None:
            await self.load()
        nodes = [mapping(node) for node in mapping(graph).values()]
        classes = {str(node.get("class_type")) for node in nodes}
        foreign = {name for name in classes if not self._has_function(name)}
        if self.remote is not None and (foreign or graph is None):
            await self.remote.refresh(foreign)
            if self._is_stale(registry := self.remote.known):
                self._remote_classes = await asyncio.to_thread(self._merge_classes, registry)
        class_types = (
            {str(mapping(node.get("inputs")).get("template", "")) for node in nodes} if account_id else ()
        )
        for name in {class_type.removeprefix(TEMPLATE) for class_type in class_types} - {""}:
            if name not in self._predictions.catalog:
                with contextlib.suppress(errors.NotFound):
                    await self._predictions.custom_models.find(name, account_id)

    async def convert(self, document: object, *, any_nodes: bool = False) -> ConvertedGraph:
        """Convert a document of either format to a graph, in the same way as `conversion`.

        Raises `NotAWorkflow` or `GraphTooLarge`.
        """
        await self.load()
        return await slices.run(conversion(document, self.classes, self.limits, any_nodes=any_nodes))

    def _has_function(self, class_type: str) -> bool:
        spec = self.registry.get(class_type)
        return spec is not None and spec.run is not None

    def check(
        self, graph: object, *, targets: Collection[str] | None = None, strict_models: bool = False
    ) -> ValidationResult:
        """Validate a graph for this server, or for ComfyUI if only that has all of its classes.

        Raises `GraphTooLarge` before any other validation.
        """
        return slices.complete(self._validate_steps(graph, targets, strict_models=strict_models))

    async def validate(
        self,
        graph: object,
        *,
        targets: Collection[str] | None = None,
        strict_models: bool = False,
        all_nodes: bool = False,
    ) -> ValidationResult:
        """Validate like `check`, in slices, so that a large graph does not block the event loop."""
        await self.load()
        return await slices.run(
            self._validate_steps(graph, targets, strict_models=strict_models, all_nodes=all_nodes)
        )

    def _validate_steps(
        self,
        graph: object,
        targets: Collection[str] | None = None,
        *,
        strict_models: bool = False,
        all_nodes: bool = False,
    ) -> Steps[ValidationResult]:
        yield from self.limits.checking(graph)
        yield
        remote = self._current_remote_classes()
        class_types = {str(mapping(node).get("class_type")) for node in mapping(graph).values()}
        if remote is None or all(name in self.registry for name in class_types):
            validation = yield from validation_steps(
                graph, self.registry, targets=targets, strict_models=strict_models, all_nodes=all_nodes
            )
            if remote is None or not unrunnable(validation):
                return validation
        if not all(name in remote.joined for name in class_types):
            return (yield from validation_steps(graph, remote.joined, targets=targets, all_nodes=all_nodes))
        validation = yield from validation_steps(graph, remote.own, targets=targets, all_nodes=all_nodes)
        return msgspec.structs.replace(validation, needs_remote=True)

    @property
    def classes(self) -> Registry:
        """All classes that a graph may use: local classes and those of the operator's ComfyUI."""
        remote = self._current_remote_classes()
        return self.registry if remote is None else remote.joined

    def _current_remote_classes(self) -> _RemoteClasses | None:
        registry = self.remote.known if self.remote is not None else None
        if registry is None:
            self._remote_classes = None
        elif self._is_stale(registry):
            self._remote_classes = self._merge_classes(registry)
        return self._remote_classes

    def _is_stale(self, registry: Registry | None) -> TypeGuard[Registry]:
        return registry is not None and (
            self._remote_classes is None or self._remote_classes.known is not registry
        )

    def _merge_classes(self, known: Registry) -> _RemoteClasses:
        """Merge the classes of ComfyUI, possibly tens of thousands, with the local ones."""
        merged = Registry(merge_specs(known, self.registry))
        joined = Registry([*merged, *self.registry])
        for registry in (merged, joined):
            registry.index()
        return _RemoteClasses(known, merged, joined)

    def estimate(
        self,
        validation: ValidationResult,
        account_id: str = "",
        *,
        charged: bool = True,
        without: Collection[str] = (),
    ) -> Estimate:
        """Return the maximum cost of a validated graph, excluding the nodes in `without`.

        Raises `EngineUnavailable` if no engine can serve a child run, and `InvalidInput` if the inputs of a
        child run are invalid.
        """
        return slices.complete(self._estimate_steps(validation, account_id, charged=charged, without=without))

    async def estimate_cost(
        self, validation: ValidationResult, account_id: str, *, charged: bool = True
    ) -> Estimate:
        """Estimate the cost in the same way as `estimate`, in slices."""
        return await slices.run(self._estimate_steps(validation, account_id, charged=charged))

    def _estimate_steps(
        self,
        validation: ValidationResult,
        account_id: str = "",
        *,
        charged: bool = True,
        without: Collection[str] = (),
    ) -> Steps[Estimate]:
        quoted = functools.partial(self.price_of, account_id=account_id, charged=charged)
        price = self._list_price if validation.needs_remote else quoted
        request = yield from estimate.child_request_steps(validation, lenient=validation.needs_remote)
        requests = {id(each): each for node, each in request if node not in without}
        prices: dict[int, PriceRow] = {}
        spaces: set[str] = set()
        for key, each in requests.items():
            prices[key] = price(each)
            # Other requests may remove the model from memory before the next step.
            if self._is_customer_space(each.model, account_id):
                spaces.add(each.model)
            yield
        child_runs = tuple(
            (node, each.model, prices[id(each)]) for node, each in request if node not in without
        )
        estimate.check_spaces(validation, child_runs, spaces)
        return Estimate(child_runs, self._vram(validation))

    def _is_customer_space(self, name: str, account_id: str) -> bool:
        custom_models = self._predictions.custom_models
        return name not in self._predictions.catalog and custom_models.is_customer_space(name, account_id)

    def _vram(self, validation: ValidationResult) -> float | None:
        """Return the total graphics memory in GB for the graph's model files, or None if one is unknown."""
        vram_gb = {row["file"]: row["vramGb"] for space in self.spaces.values() for row in space.models}
        files = {missing_model["file"] for missing_model in validation.missing_models}
        return sum(float(vram_gb[file]) for file in files) if files <= vram_gb.keys() else None

    def as_quoted(self, prediction_id: str) -> contextlib.AbstractContextManager[None]:
        """Price the graph's child runs within the block in the same way as when the graph was quoted."""
        return self._predictions.quotes.using(prediction_id)

    def price_of(self, request: ChildRequest, account_id: str, *, charged: bool) -> PriceRow:
        """Return the maximum price of a child run.

        Raises `BadRequest`, `EngineUnavailable` or `InvalidInput`.
        """
        built_in, custom_models = self._predictions.catalog, self._predictions.custom_models
        model = (
            built_in[request.model]
            if request.model in built_in
            else custom_models.known(request.model, account_id)
        )
        if model is None:
            sentence = f"The model {request.model} was not found: `GET /api/services` lists the models."
            raise errors.EngineUnavailable(sentence)
        # Nested graphs could wait for each other's worker slots forever.
        if model.price == CHILDREN:
            raise errors.BadRequest(f"A graph cannot run another graph ({request.model})")
        quote = self._predictions.quote(model, _child_inputs(model, request), charged=charged)
        maximum = built_in.price_at_most(model, quote.values, _unknown(model, request))
        if quote.price.list_micros is None:
            return max(quote.price, maximum, key=lambda price: price.micros)
        return max(quote.price, maximum.waive(), key=estimate.list_price_of)

    def _list_price(self, request: ChildRequest) -> PriceRow:
        """Return the list price of a node that ComfyUI runs, even if an engine of this server could."""
        catalog = self._predictions.catalog
        if request.model not in catalog:
            return FREE
        model = catalog[request.model]
        values = model.check(_child_inputs(model, request))
        price = catalog.price_at_most(model, values, _unknown(model, request))
        return price.waive() if catalog.prices.own_hardware_free else price

    def checked(self, model: Model, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated inputs of a workflow.

        If some inputs are invalid, the graph is also validated with the valid ones.
        """
        return slices.complete(self._check_inputs_steps(model, values))

    def _check_inputs_steps(self, model: Model, values: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        try:
            return model.check(values)
        except errors.InvalidInput as invalid:
            graph = model.fixed.get("graph")
            if model.price != CHILDREN or graph is None:
                raise
            invalid_names = {problem.input for problem in invalid.problems}
            good = checks.check(
                tuple(node_input for node_input in model.inputs if node_input.name not in invalid_names),
                values,
            )
            api_inputs = workflows.api_inputs(model.fixed.get("api_inputs", ()))
            validation = yield from self._validate_steps(input_inference.apply(graph, api_inputs, good))
            more = _problems(validation, api_inputs)
            more = [problem for problem in more if problem.input in good]
            raise errors.InvalidInput([*invalid.problems, *more]) from invalid

    def price(self, model: Model, values: Mapping[str, Any], *, charged: bool) -> PriceRow:
        """Return the price to hold for a run of a workflow. Raises the errors of `estimate`."""
        graph = model.fixed.get("graph")
        # The graph is part of the request, and so is its price.
        if graph is None:
            return Estimate(()).price
        return slices.complete(self._price_steps(model, values, charged=charged))

    async def named_files(
        self, request: PredictionRequest, model: Model, values: Mapping[str, Any]
    ) -> dict[str, MediaSource]:
        """Return the files that inputs of a workflow name; raises `InvalidInput` with all missing files."""
        found: dict[str, MediaSource] = {}
        problems: list[errors.Problem] = []
        graph: Graph = model.fixed.get("graph") or {}
        for at, each in enumerate(workflows.api_inputs(model.fixed.get("api_inputs") or ()), 1):
            if at % slices.ITEMS == 0:
                await asyncio.sleep(0)
            kind, value = workflows.file_kind(graph, each, self.classes), values.get(each.name)
            if each.name in request.sources or not kind or not isinstance(value, str) or not value:
                continue
            try:
                found[each.name] = await self.names.source(request.principal.tenant, value, kind, each.name)
            except errors.InvalidInput as invalid:
                problems += invalid.problems
        if problems:
            raise errors.InvalidInput(problems)
        return found

    async def prepare(
        self, model: Model, values: Mapping[str, Any], *, charged: bool
    ) -> Mapping[str, Any] | PreparedQuote:
        """Validate and price a run of a large workflow in slices; return the inputs of a small one."""
        graph = model.fixed.get("graph")
        if graph is None:
            return values
        await self.load()
        if len(graph) <= _SMALL_NODES:
            return values
        inputs = await self._outcome(self._check_inputs_steps(model, values))
        price: Callable[[], Any] = inputs
        # An error of the inputs is raised by the quote.
        with contextlib.suppress(errors.SixfoldError):
            price = await self._outcome(self._price_steps(model, inputs(), charged=charged))
        return PreparedQuote(inputs, price)

    async def _outcome(self, steps: Steps[Any]) -> Callable[[], Any]:
        """Run a computation; return a function that returns its result or raises its error."""
        try:
            result = await slices.run(steps)
        except errors.SixfoldError as error:
            failure = error

            def raise_error() -> Any:
                raise failure

            return raise_error
        return lambda: result

    def _price_steps(self, model: Model, values: Mapping[str, Any], *, charged: bool) -> Steps[PriceRow]:
        graph = model.fixed["graph"]
        inputs = workflows.api_inputs(model.fixed.get("api_inputs", ()))
        yield
        filled_graph = input_inference.apply(graph, inputs, values)
        yield
        validation = yield from self._validate_steps(filled_graph)
        if not validation.valid:
            self.raise_errors(validation, inputs)
        self.require_runnable(validation)
        owner = str(model.fixed.get("_owner", ""))
        return (yield from self._estimate_steps(validation, owner, charged=charged)).price

    def require_runnable(self, validation: ValidationResult) -> None:
        """Raise `EngineUnavailable` if a class that the graph uses cannot be run by any server."""
        if not validation.needs_remote and unrunnable(validation):
            raise errors.EngineUnavailable(self.missing_classes_message(validation))

    def missing_classes_message(self, validation: ValidationResult) -> str:
        """Return the sentence about the classes that this server cannot run."""
        missing = sorted({*validation.missing_classes, *unrunnable(validation)})
        sentence = f"This server does not have an engine for the node classes {', '.join(missing)}."
        if self._current_remote_classes() is None:
            return f"{sentence} {self._runtime.unlock}"
        local = ", ".join(name for name in missing if self._has_function(name))
        if local:
            return f"{local} run only on this server, other nodes only on ComfyUI: a graph cannot use both."
        return f"{sentence} The connected ComfyUI lacks them as well: install their custom nodes there."

    def raise_errors(self, validation: ValidationResult, inputs: tuple[ApiInput, ...] = ()) -> None:
        """Raise `EngineUnavailable` for missing node classes, or else `InvalidInput` with every problem."""
        if validation.missing_classes:
            raise errors.EngineUnavailable(self.missing_classes_message(validation))
        raise errors.InvalidInput(_problems(validation, inputs))


def _problems(validation: ValidationResult, inputs: tuple[ApiInput, ...]) -> list[errors.Problem]:
    """Return every error of a graph, by the name of its input."""
    class_types = {(node_input.node_id, node_input.field): node_input.name for node_input in inputs}
    problems: list[errors.Problem] = []
    for fault in validation.errors:
        field = str(fault["extra_info"].get("input_name") or "workflow")
        name = class_types.get((str(fault.get("node_id")), field), field)
        sentence = f"{name}: {fault['message']} ({fault['details']})"
        problems.append(errors.Problem(name, sentence, fault["type"]))
    return problems


def _placeholder(each: checks.Descriptor) -> Any:
    """Return a placeholder for an input that is known only during the run."""
    if each.type in ("integer", "number"):
        return each.min or 1
    return each.choices[0] if each.choices else "…"


def _child_inputs(model: Model, request: ChildRequest) -> dict[str, Any]:
    """Return the inputs of a child run, with placeholders for those known only during the run."""
    values = {name: value for name, value in request.inputs.items() if not isinstance(value, UnknownCost)}
    for node_input in model.inputs:
        if node_input.type in checks.MEDIA_TYPES and (
            node_input.name in request.inputs or node_input.required
        ):
            values[node_input.name] = _PLACEHOLDER_URL
        elif node_input.required and node_input.name not in values and node_input.default is None:
            values[node_input.name] = _placeholder(node_input)
    return values


def _unknown(model: Model, request: ChildRequest) -> frozenset[str]:
    """Return the names of the inputs that are known only during the run."""
    result = {name for name, value in request.inputs.items() if isinstance(value, UnknownCost)}
    if request.open:
        result |= {node_input.name for node_input in model.inputs if node_input.name not in request.inputs}
    return frozenset(result)
