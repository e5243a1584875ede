"""Models as tools: list, quote, run, status. Images are included in the results."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import connections, rights
from sixfold.core.accounts.connections import CredentialEnded
from sixfold.core.accounts.prices import list_price_field
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import inputs
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Model
from sixfold.core.clock import rfc3339
from sixfold.core.media.ports import OutputFile
from sixfold.core.memory.operation_schema import Operation, OperationField
from sixfold.core.predictions import pricing, receipt
from sixfold.core.predictions.events import Event, ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows import workflows
from sixfold.mcp.jsonrpc import JsonObject
from sixfold.mcp.server import ToolInvocation
from sixfold.mcp.tools import McpTool, ToolOutcome
from sixfold.web import openapi, predictions
from sixfold.web.responses import ignored_inputs_field
from sixfold.web.services import WebServices

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
# Clients accept images of up to 4 MiB in base64.
_MAX_IMAGE_BYTES = 3 * 2**20
# Many clients limit a call to 60 s.
_MAX_WAIT, _WAIT = 600, 45

MODEL = OperationField("model", "string", "Name of a model, from models", required=True, max_chars=100)
INPUT = OperationField("input", "object", "Inputs by name; a file is a URL or a data: URI", required=True)
MODELS = (
    OperationField("model", "string", "Return the inputs of this model in full", max_chars=100),
    OperationField("cursor", "string", "next_cursor of the previous response", default="", max_chars=300),
)
HARDWARE = OperationField(
    "hardware", "string", "Hardware other than the template's, charged by time", max_chars=60
)
QUOTE = (MODEL, INPUT, HARDWARE)
RUN = (
    MODEL,
    INPUT,
    HARDWARE,
    OperationField(
        "wait",
        "integer",
        "Seconds to wait for the result; after that, poll with prediction",
        default=_WAIT,
        minimum=0,
        maximum=_MAX_WAIT,
    ),
)
RUN_SPACE = (
    OperationField(
        "slug", "string", "Slug of a workflow, such as turbo-text-to-image", required=True, max_chars=100
    ),
    OperationField("input", "object", "Inputs by name; a file is a URL or the id of an upload", default={}),
    RUN[-1],
)
PREDICTION = (
    OperationField(
        "id", "string", "Id of a prediction, from run; omit it to list the latest predictions", max_chars=100
    ),
    OperationField(
        "wait",
        "integer",
        "Seconds to wait until the run ends",
        default=0,
        minimum=0,
        maximum=_MAX_WAIT,
    ),
    OperationField("cancel", "boolean", "Cancel the run if it has not ended", default=False),
    OperationField("limit", "integer", "Number of predictions to list", default=10, minimum=1, maximum=50),
)


_READS = {"readOnlyHint": True, "openWorldHint": False}
_SPENDS = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
_TOOLS: Mapping[str, tuple[str, str, tuple[OperationField, ...], Mapping[str, bool]]] = {
    "models": ("Models", "List the models, with their inputs.", MODELS, _READS),
    "quote": (
        "Price of a run",
        "Return the price of a run (its maximum, if charged by time) and its engine, without a charge.",
        QUOTE,
        _READS,
    ),
    "run": (
        "Run a model",
        "Generate an image, a video, audio or text with a model at the quoted price. Failed runs are free.",
        RUN,
        _SPENDS,
    ),
    "run_space": (
        "Run a workflow space",
        "Run a workflow at the price of its nodes. The models tool lists each workflow as space:<slug>.",
        RUN_SPACE,
        _SPENDS,
    ),
    "prediction": (
        "Status of a run",
        "Return the status of a run, wait until it ends, or cancel it. Without an id, list the latest runs.",
        PREDICTION,
        _SPENDS,
    ),
}
_NOT_FOUND_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("models", "quote", "run"), "models without an argument lists all names."),
    "run_space": "models lists each space as space:<slug>.",
    "prediction": "prediction without an id lists the latest.",
}


class ModelTools:
    """Implements the tools that list, quote and run models and return their predictions."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._predictions = services.predictions

    def tools(self) -> list[McpTool]:
        return [self._tool(name, *row) for name, row in _TOOLS.items()]

    def _tool(
        self,
        name: str,
        title: str,
        description: str,
        fields: tuple[OperationField, ...],
        hints: Mapping[str, bool],
    ) -> McpTool:
        operation = Operation(name, description, fields, False, _unused)
        method = getattr(self, f"do_{name}")

        async def run(call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
            return await method(call, operation.read(arguments))

        return McpTool(
            name,
            title,
            description,
            operation.schema(),
            run,
            _NOT_FOUND_HINTS[name],
            hints,
            rights.RUN,
            streams=name in {"run", "run_space", "prediction"},
            takes_media=name in {"quote", "run", "run_space"},
        )

    async def do_models(self, call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        """List the models that the key may use, including those of the account, or describe one in full."""
        account_id, name = call.principal.account_id, arguments["model"]
        if name is not None:
            if name not in self._services.catalog:
                call.principal.permit(name)
            return ToolOutcome(self._model(await self._predictions.find(name, account_id), full=True))
        custom_models, next_cursor = await self._predictions.custom_models.page(
            account_id, cursor=arguments["cursor"]
        )
        built_in = () if arguments["cursor"] else self._services.catalog.models()
        models = [
            self._model(model, full=False)
            for model in (*built_in, *(custom_model.model for custom_model in custom_models))
            if call.principal.allows(model.name)
        ]
        return ToolOutcome({"models": models, **({"next_cursor": next_cursor} if next_cursor else {})})

    async def do_quote(self, call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        """Return the price of a run."""
        name = arguments["model"]
        if name not in self._services.catalog:
            call.principal.permit(name)
        model = await self._predictions.find(name, call.principal.account_id)
        prepared = await self._predictions.prepare(model, arguments["input"], charged=True)
        quote = self._predictions.quote(model, prepared, hardware=arguments["hardware"])
        price = self._price_of(model)
        return ToolOutcome(
            {
                "model": name,
                "price": price,
                "hardware": quote.hardware,
                "cost_usd": money.format_usd(quote.price.micros),
                **list_price_field(quote.price.list_micros),
                "credits": quote.price.credits,
                "engine": engine_name(quote.engine.name),
                "quality": quote.quality,
            }
        )

    async def do_run(self, call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        """Start a run, wait for it, and return its output."""
        prediction_request = PredictionRequest(
            principal=call.principal,
            model=arguments["model"],
            inputs=arguments["input"],
            face="mcp",
            request_id=call.request_id,
            idempotency_id=call.idempotency_id,
            hardware=arguments["hardware"],
        )
        prediction = await self._predictions.submit(prediction_request)
        return await self._outcome(await self._wait(call, prediction, arguments["wait"]))

    async def do_run_space(self, call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        """Run a graph; see `do_run`."""
        model = workflows.PREFIX + arguments["slug"].removeprefix(workflows.PREFIX)
        run_arguments: JsonObject = {**arguments, "model": model, "hardware": None}
        return await self.do_run(call, run_arguments)

    async def do_prediction(self, call: ToolInvocation, arguments: JsonObject) -> ToolOutcome:
        """Return one prediction, or the latest."""
        tenant = call.principal.tenant
        if arguments["id"] is None:
            page, _ = await self._predictions.page(tenant, PredictionFilter(), arguments["limit"], None)
            return ToolOutcome({"predictions": [self._document(prediction) for prediction in page]})
        if arguments["cancel"]:
            return await self._outcome(await self._predictions.cancel(arguments["id"], tenant))
        prediction = await self._predictions.get(arguments["id"], tenant)
        return await self._outcome(await self._wait(call, prediction, arguments["wait"]))

    async def _wait(self, call: ToolInvocation, prediction: Prediction, seconds: int) -> Prediction:
        """Wait until the prediction has ended or the time limit has passed, reporting progress."""
        if not seconds or prediction.is_terminal:
            return prediction
        try:
            # The run may have been started with another key, which has not ended.
            with self._services.connections.during(connections.current()):
                return await self._ended(call, prediction, seconds)
        except CredentialEnded:
            raise errors.Unauthenticated from None

    async def _ended(self, call: ToolInvocation, prediction: Prediction, seconds: int) -> Prediction:
        if call.channel is None or call.progress_token is None:
            return await self._predictions.wait(prediction, seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in self._predictions.events(prediction):
                    self._report(call, event)
        return await self._predictions.get(prediction.id, Tenant.of(prediction))

    def _report(self, call: ToolInvocation, event: Event) -> None:
        match event:
            case ProgressEvent(fraction):
                call.progress(fraction, 1.0)
            case StateChanged(prediction) if not prediction.is_terminal:
                call.progress(self._predictions.bus.progress(prediction.id), 1.0, str(prediction.state))
            case _:
                pass

    async def _outcome(self, prediction: Prediction) -> ToolOutcome:
        """Return a prediction with its images and links to its files."""
        content: list[JsonObject] = []
        remaining_bytes = _MAX_IMAGE_BYTES
        for file in prediction.output.files if prediction.output is not None else ():
            if file.content_type in _IMAGE_TYPES and file.size <= remaining_bytes:
                remaining_bytes -= file.size
                data = base64.b64encode(await self._services.blobs.get(file.blob)).decode()
                content.append({"type": "image", "data": data, "mimeType": file.content_type})
            content.append(self._link(file))
        return ToolOutcome(self._document(prediction), content)

    def _link(self, file: OutputFile) -> JsonObject:
        return {
            "type": "resource_link",
            "uri": self._services.media_url(file),
            "name": file.name,
            "mimeType": file.content_type,
            "size": file.size,
        }

    def _document(self, prediction: Prediction) -> JsonObject:
        running = prediction.state is PredictionState.CANCELING
        output = prediction.output.first if prediction.output is not None else None
        files = output.files if output is not None else ()
        others = predictions.outputs(prediction, self._services.media_url)
        return {
            "id": prediction.id,
            "model": prediction.model,
            "status": "running" if running else str(prediction.state),
            "progress": 1.0
            if prediction.state is PredictionState.SUCCEEDED
            else self._predictions.bus.progress(prediction.id),
            "error": prediction.error,
            "hardware": prediction.hardware,
            "cost_usd": money.format_usd(prediction.cost),
            "credits": prediction.credits if prediction.cost else 0,
            **list_price_field(receipt.would_cost(prediction)),
            "engine": engine_name(prediction.engine),
            "quality": prediction.quality,
            "understood": list(prediction.words.understood),
            "ignored": list(prediction.words.ignored),
            **ignored_inputs_field(prediction.model, prediction.ignored_inputs),
            "created_at": rfc3339(prediction.created_at),
            "completed_at": rfc3339(prediction.completed_at),
            "output": [
                {"url": self._services.media_url(file), "content_type": file.content_type, **file.info}
                for file in files
            ],
            "data": output.data if output is not None else {},
            **({"outputs": others} if others else {}),
        }

    def _price_of(self, model: Model) -> str:
        return pricing.in_words(self._services.catalog, self._predictions.terms, model)[0]

    def _model(self, model: Model, *, full: bool) -> JsonObject:
        description = _description(
            (model.name, model.title, model.description), model.output_kind, model.inputs, full
        )
        price = self._price_of(model)
        return description | ({"sizes": list(model.sizes), "price": price} if full else {})


def _description(
    names: tuple[str, str, str], kind: str, descriptors: tuple[Descriptor, ...], full: bool
) -> JsonObject:
    """Return a description of a model: inputs as JSON Schema or, unless `full`, as names (required: `*`)."""
    name, title, description = names
    summary: JsonObject = {"model": name, "title": title, "description": description, "makes": kind}
    if not full:
        return summary | {"inputs": [f"{row.name}*" if row.required else row.name for row in descriptors]}
    schema = {
        "type": "object",
        "properties": {row.name: _schema(row) for row in descriptors},
        "required": [row.name for row in descriptors if row.required],
    }
    return summary | {"input_schema": schema}


def _schema(descriptor: Descriptor) -> JsonObject:
    """Return an input as JSON Schema; media are URLs."""
    media = descriptor.type in inputs.MEDIA_TYPES
    if descriptor.type == "project":
        return openapi.schema_of(descriptor)
    if descriptor.type == "sizes":
        items = {"type": "string", "description": "WIDTHxHEIGHT in pixels"}
        return {"type": "array", "items": items, "description": descriptor.description}
    if descriptor.type in openapi.LIST_ITEMS:
        items = openapi.LIST_ITEMS[descriptor.type]
        return {"type": "array", "items": items, "description": descriptor.description}
    schema: JsonObject = {
        "type": "string" if media else descriptor.type,
        "description": descriptor.description,
    }
    limits = {
        "default": descriptor.default,
        "minimum": descriptor.min,
        "maximum": descriptor.max,
        "maxLength": descriptor.max_chars,
        "enum": list(descriptor.choices) or None,
        "format": "uri" if media else None,
    }
    return schema | {name: limit for name, limit in limits.items() if limit is not None}


async def _unused(caller: Any, _arguments: Any) -> JsonObject:
    del caller, _arguments
    # `Operation` only checks the arguments here; `ModelTools` runs its own methods.
    raise NotImplementedError
