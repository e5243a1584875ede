"""Models as tools: list, quote, run, status. Images are included in the results."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from typing import Any

from sixfold.core import money
from sixfold.core.accounts import rights
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
from sixfold.mcp.jsonrpc import Plain
from sixfold.mcp.server import ToolInvocation
from sixfold.mcp.tools import McpTool, ToolOutcome
from sixfold.web import openapi, predictions
from sixfold.web.services import WebServices

_PICTURES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
# 4 MiB in base64, which clients still accept.
_MAX_PICTURE_BYTES = 3 * 2**20
# Many clients limit a call to 60 s.
_MAX_WAIT, _WAIT = 600, 45

MODEL = OperationField("model", "string", "A model's name, from models", required=True, max_chars=100)
INPUT = OperationField("input", "object", "Its inputs by name; a file is a URL or a data: URI", required=True)
MODELS = (
    OperationField("model", "string", "Tell one model's inputs in full", max_chars=100),
    OperationField("cursor", "string", "next_cursor of the page before", default="", max_chars=200),
)
HARDWARE = OperationField(
    "hardware", "string", "Other hardware than a template's own, paid by its time", max_chars=60
)
QUOTE = (MODEL, INPUT, HARDWARE)
RUN = (
    MODEL,
    INPUT,
    HARDWARE,
    OperationField(
        "wait_seconds",
        "integer",
        "How long to wait for the result; then ask with prediction",
        default=_WAIT,
        minimum=0,
        maximum=_MAX_WAIT,
    ),
)
RUN_SPACE = (
    OperationField(
        "slug", "string", "A space's slug, as in turbo-text-to-image", required=True, max_chars=100
    ),
    OperationField("input", "object", "Its inputs by name; a file is a URL or an upload's id", default={}),
    RUN[-1],
)
PREDICTION = (
    OperationField("id", "string", "A prediction's id, from run; left out: the latest ones", max_chars=100),
    OperationField(
        "wait_seconds", "integer", "How long to wait for its end", default=0, minimum=0, maximum=_MAX_WAIT
    ),
    OperationField("cancel", "boolean", "Cancel it if it has not ended", default=False),
    OperationField("limit", "integer", "How many of the latest", default=10, minimum=1, maximum=50),
)


_READS = {"readOnlyHint": True, "openWorldHint": False}
_SPENDS = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
_TOOLS: Mapping[str, tuple[str, str, tuple[OperationField, ...], Mapping[str, bool]]] = {
    "models": ("Models", "List the models that make things, with their inputs.", MODELS, _READS),
    "quote": (
        "What a run costs",
        "Tell what a run would cost, by time at most, and who would serve it; nothing is spent.",
        QUOTE,
        _READS,
    ),
    "run": (
        "Run a model",
        "Make a picture, a video, a sound or a text with a model, for what quote tells; a failure is free.",
        RUN,
        _SPENDS,
    ),
    "run_space": (
        "Run a workflow space",
        "Run a node graph by its inputs, for what its nodes cost; models lists each as space:<slug>.",
        RUN_SPACE,
        _SPENDS,
    ),
    "prediction": (
        "How a run stands",
        "Tell how a run stands, wait for its end, or cancel it; without an id, list the latest.",
        PREDICTION,
        _SPENDS,
    ),
}
_LOST: Mapping[str, str] = {
    **dict.fromkeys(("models", "quote", "run"), "models without an argument lists what there is."),
    "run_space": "models lists each space as space:<slug>.",
    "prediction": "prediction without an id lists the latest.",
}


class ModelTools:
    """The implementation of the tools."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._pipeline = services.pipeline

    def tools(self) -> list[McpTool]:
        """Return all tools."""
        return [self._tool(name, *row) for name, row in _TOOLS.items()]

    def _tool(
        self,
        name: str,
        title: str,
        description: str,
        fields: tuple[OperationField, ...],
        hints: Mapping[str, bool],
    ) -> McpTool:
        checked = Operation(name, description, fields, False, _unused)
        work = getattr(self, f"do_{name}")

        async def run(call: ToolInvocation, given: Plain) -> ToolOutcome:
            return await work(call, checked.read(given))

        return McpTool(
            name,
            title,
            description,
            checked.schema(),
            run,
            _LOST[name],
            hints,
            rights.RUN,
            streams=name in {"run", "run_space", "prediction"},
        )

    async def do_models(self, call: ToolInvocation, given: Plain) -> ToolOutcome:
        """List all models briefly, including the account's own, or describe one in full."""
        account_id, name = call.principal.account_id, given["model"]
        if name is not None:
            return ToolOutcome(self._model(await self._pipeline.find(name, account_id), whole=True))
        own, following = await self._pipeline.custom_models.page(account_id, cursor=given["cursor"])
        built_in = () if given["cursor"] else self._services.catalog.models()
        models = [self._model(model, whole=False) for model in (*built_in, *(each.model for each in own))]
        return ToolOutcome({"models": models, **({"next_cursor": following} if following else {})})

    async def do_quote(self, call: ToolInvocation, given: Plain) -> ToolOutcome:
        """Return the price of a run."""
        name = given["model"]
        model = await self._pipeline.find(name, call.principal.account_id)
        await self._pipeline.prepare(model, given["input"], charged=True)
        quote = self._pipeline.quote(model, given["input"], hardware=given["hardware"])
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

    async def do_run(self, call: ToolInvocation, given: Plain) -> ToolOutcome:
        """Submit a run, wait for it, and return its output."""
        order = PredictionRequest(
            principal=call.principal,
            model=given["model"],
            inputs=given["input"],
            face="mcp",
            request_id=call.request_id,
            idempotency_id=call.idempotency_id,
            hardware=given["hardware"],
        )
        prediction = await self._pipeline.submit(order)
        return await self._outcome(await self._ended(call, prediction, given["wait_seconds"]))

    async def do_run_space(self, call: ToolInvocation, given: Plain) -> ToolOutcome:
        """Run a graph; see `do_run`."""
        model = workflows.PREFIX + given["slug"].removeprefix(workflows.PREFIX)
        order: Plain = {**given, "model": model, "hardware": None}
        return await self.do_run(call, order)

    async def do_prediction(self, call: ToolInvocation, given: Plain) -> ToolOutcome:
        """Return one prediction, or the latest."""
        tenant = call.principal.tenant
        if given["id"] is None:
            found, _ = await self._pipeline.page(tenant, PredictionFilter(), given["limit"], None)
            return ToolOutcome({"predictions": [self._plain(prediction) for prediction in found]})
        if given["cancel"]:
            return await self._outcome(await self._pipeline.cancel(given["id"], tenant))
        prediction = await self._pipeline.get(given["id"], tenant)
        return await self._outcome(await self._ended(call, prediction, given["wait_seconds"]))

    async def _ended(self, call: ToolInvocation, prediction: Prediction, seconds: int) -> Prediction:
        """Wait until the prediction has ended or the time is over, reporting progress."""
        if not seconds or prediction.is_terminal:
            return prediction
        if call.channel is None or call.progress_token is None:
            return await self._pipeline.wait(prediction, seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in self._pipeline.events(prediction):
                    self._tell(call, event)
        return await self._pipeline.get(prediction.id, Tenant.of(prediction))

    def _tell(self, call: ToolInvocation, event: Event) -> None:
        match event:
            case ProgressEvent(fraction):
                call.progress(fraction, 1.0)
            case StateChanged(prediction) if not prediction.is_terminal:
                call.progress(self._pipeline.bus.progress(prediction.id), 1.0, str(prediction.state))
            case _:
                pass

    async def _outcome(self, prediction: Prediction) -> ToolOutcome:
        """Return a prediction with its images and links to its files."""
        content: list[Plain] = []
        left = _MAX_PICTURE_BYTES
        for file in prediction.output.files if prediction.output is not None else ():
            if file.content_type in _PICTURES and file.size <= left:
                left -= file.size
                data = base64.b64encode(await self._services.blobs.get(file.blob)).decode()
                content.append({"type": "image", "data": data, "mimeType": file.content_type})
            content.append(self._link(file))
        return ToolOutcome(self._plain(prediction), content)

    def _link(self, file: OutputFile) -> Plain:
        return {
            "type": "resource_link",
            "uri": self._services.media_url(file),
            "name": file.name,
            "mimeType": file.content_type,
            "size": file.size,
        }

    def _plain(self, prediction: Prediction) -> Plain:
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
            else self._pipeline.bus.progress(prediction.id),
            "error": prediction.error,
            "hardware": prediction.hardware,
            "cost_usd": money.format_usd(prediction.cost),
            "credits": prediction.credits if prediction.cost else 0,
            **list_price_field(receipt.would_cost(prediction)),
            "engine": engine_name(prediction.engine),
            "quality": prediction.quality,
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
        return pricing.in_words(self._services.catalog, self._pipeline.terms, model)[0]

    def _model(self, model: Model, *, whole: bool) -> Plain:
        found = _described(
            (model.name, model.title, model.description), model.output_kind, model.inputs, whole
        )
        price = self._price_of(model)
        return found | ({"sizes": list(model.sizes), "price": price} if whole else {})


def _described(names: tuple[str, str, str], kind: str, wanted: tuple[Descriptor, ...], whole: bool) -> Plain:
    """Describe a model: inputs as JSON Schema, or briefly as names with a star if required."""
    name, title, description = names
    found: Plain = {"model": name, "title": title, "description": description, "makes": kind}
    if not whole:
        return found | {"inputs": [f"{row.name}*" if row.required else row.name for row in wanted]}
    schema = {
        "type": "object",
        "properties": {row.name: _schema(row) for row in wanted},
        "required": [row.name for row in wanted if row.required],
    }
    return found | {"input_schema": schema}


def _schema(descriptor: Descriptor) -> Plain:
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
    found: Plain = {"type": "string" if media else descriptor.type, "description": descriptor.description}
    limits = {
        "default": descriptor.default,
        "minimum": descriptor.min,
        "maximum": descriptor.max,
        "maxLength": descriptor.max_chars,
        "enum": list(descriptor.choices) or None,
        "format": "uri" if media else None,
    }
    return found | {name: limit for name, limit in limits.items() if limit is not None}


async def _unused(caller: Any, given: Any) -> Plain:
    del caller, given
    # `Operation` only checks the arguments here; `ModelTools` runs its own methods.
    raise NotImplementedError
