"""The prompts of ComfyUI clients: predictions of one model, shown as a queue and a history."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Row
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows import validation_errors, workflows
from sixfold.core.workflows.comfyui import prompt_queue
from sixfold.core.workflows.documents import as_list, mapping
from sixfold.core.workflows.validate import ValidationResult
from sixfold.web import responses
from sixfold.web.services import WebServices

_FACE = "comfyui"
_MAX_ID, _MAX_NUMBER = 100, 2**53
JsonObject = dict[str, Any]


class ComfyQueue:
    """Queues prompts and reports their state; clients of `hub` are notified when a prompt ends."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._workshop = services.workflows
        self._predictions = services.predictions
        self._numbers = itertools.count(1)
        # One page is decoded at a time, since each of its prompts takes a long turn of the event loop.
        self._decoding = asyncio.Lock()
        self._open: defaultdict[Tenant, set[str]] = defaultdict(set)
        services.predictions.bus.watchers.append(self._on_event)

    async def take(
        self,
        principal: Principal,
        body: Mapping[str, Any],
        request_id: str,
        idempotency_id: str | None = None,
    ) -> tuple[JsonObject | None, JsonObject]:
        """Queue a prompt; return the error or None, and the response."""
        graph = body.get("prompt")
        if graph is None:
            return _refusal(
                validation_errors.fault("no_prompt", "No prompt provided", "No prompt provided")
            ), {}
        targets = [str(node_id) for node_id in as_list(body.get("partial_execution_targets"))] or None
        await self._workshop.refresh_remote(graph, principal.tenant.model_owner)
        validation = await self._workshop.validate(graph, targets=targets, strict_models=_is_strict(body))
        self._workshop.require_runnable(validation)
        if validation.error is not None:
            return {"error": validation.error, "node_errors": dict(validation.node_errors)}, {}
        missing = await self._missing_files(principal.tenant, validation)
        if missing:
            return missing, {}
        charged = not principal.keyless
        estimate = await self._workshop.estimate_cost(
            validation, principal.tenant.model_owner, charged=charged
        )
        client_id = body.get("client_id") or mapping(body.get("extra_data")).get("client_id")
        prediction_request = PredictionRequest(
            principal=principal,
            model=workflows.PROMPT,
            internal=True,
            inputs={},
            face=_FACE,
            request_id=request_id,
            idempotency_id=idempotency_id,
            charged=charged,
            hold=estimate.price,
            extras={
                "graph": graph,
                "prompt_id": str(body.get("prompt_id") or uuid.uuid4())[:_MAX_ID],
                "number": self._position(body),
                "client_id": str(client_id) if client_id else None,
                "extra_data": mapping(body.get("extra_data")),
                "targets": targets,
                "outputs": list(validation.outputs),
            },
        )
        prediction = await self._predictions.submit(prediction_request)
        response: JsonObject = {
            "prompt_id": _prompt_id(prediction),
            "number": prediction.task.inputs["number"],
            "node_errors": dict(validation.node_errors),
        }
        if validation.missing_models:
            response["warnings"] = [
                f"{missing_model['file']} is not installed; the default engine is used instead"
                for missing_model in validation.missing_models
            ]
        return None, response

    def _position(self, body: Mapping[str, Any]) -> float:
        """Return a prompt's position in the queue: the client's number, before all others, or after them."""
        position, number = next(self._numbers), body.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < _MAX_NUMBER:
            return number
        return -position if body.get("front") is True else position

    async def _missing_files(self, tenant: Tenant, validation: ValidationResult) -> JsonObject | None:
        """Return ComfyUI's error for files that inputs name but that do not exist."""
        entries: dict[str, JsonObject] = {}
        for node in validation.nodes.values():
            for name, kind in node.spec.uploads.items():
                value = node.values.get(name)
                if not isinstance(value, str) or not value or "://" in value or value.startswith("data:"):
                    continue
                try:
                    await self._workshop.names.source(tenant, value, kind)
                except errors.BadRequest:
                    error = validation_errors.fault(
                        "custom_validation_failed",
                        "Custom validation failed for node",
                        f"{name} - Invalid {kind} file: {value[:200]}",
                        input_name=name,
                        received_value=value,
                    )
                    row = {"dependent_outputs": list(validation.outputs), "class_type": node.spec.class_type}
                    entries.setdefault(node.id, {"errors": [], **row})["errors"].append(error)
        if not entries:
            return None
        details = [error["details"] for row in entries.values() for error in row["errors"]]
        text = "Prompt outputs failed validation"
        return _refusal(
            validation_errors.fault("prompt_outputs_failed_validation", text, "\n".join(details)), entries
        )

    # -- queue and history -----------------------------------------------------------------------

    async def remaining(self, tenant: Tenant) -> JsonObject:
        """Return the number of prompts that have not ended."""
        return _remaining(await self._services.database.read(prompt_queue.count_unfinished(tenant)))

    async def queue(self, tenant: Tenant) -> JsonObject:
        """Return the running and the queued prompts by number: the oldest that fit into a page."""
        rows = await self._services.database.read(prompt_queue.first(tenant))
        async with self._decoding:
            prompts = [
                (_number(prompt), prompt.state is PredictionState.QUEUED, await _raw(prompt, _item(prompt)))
                async for prompt in _decoded(rows)
            ]
        prompts.sort(key=lambda each: each[0])
        return {
            "queue_running": [item for _, is_queued, item in prompts if not is_queued],
            "queue_pending": [item for _, is_queued, item in prompts if is_queued],
        }

    async def history(self, tenant: Tenant, prompt_id: str | None, limit: int) -> JsonObject:
        """Return the newest ended prompts that fit into a page, oldest first, or the one with `prompt_id`."""
        database = self._services.database
        if prompt_id is not None:
            prompt = await database.read(prompt_queue.find(tenant, prompt_id), in_thread=True)
            if prompt is None or not prompt.is_terminal:
                return {}
            return {_prompt_id(prompt): await _raw(prompt, self._entry(prompt))}
        rows = await database.read(prompt_queue.list_ended(tenant, limit), in_thread=True)
        async with self._decoding:
            return {
                _prompt_id(prompt): await _raw(prompt, self._entry(prompt))
                async for prompt in _decoded(reversed(rows))
            }

    def _entry(self, prediction: Prediction) -> JsonObject:
        data = prediction.output.data if prediction.output is not None else {}
        succeeded = prediction.state is PredictionState.SUCCEEDED
        messages = self._workshop.hub.messages(prediction.id)
        # The server has been restarted since.
        if not messages:
            messages = [_last(prediction)]
        status = {
            "status_str": "success" if succeeded else "error",
            "completed": succeeded,
            "messages": messages,
        }
        outputs = mapping(data.get("outputs"))
        meta = {
            node: {"node_id": node, "display_node": node, "parent_node": None, "real_node_id": node}
            for node in outputs
        }
        return {"prompt": _item(prediction), "outputs": outputs, "status": status, "meta": meta}

    async def withdraw(self, tenant: Tenant, prompt_ids: list[str], *, everything: bool) -> None:
        ids = frozenset(prompt_ids)
        for each in await self._under_way(tenant):
            if each.state is PredictionState.QUEUED and (everything or each.prompt_id in ids):
                await self._predictions.cancel(each.id, tenant)

    async def interrupt(self, tenant: Tenant, prompt_id: str) -> None:
        """Cancel the longest running prompt, or the one with `prompt_id`.

        A prompt that was just accepted may not run yet. Clients cannot see that, so it is also canceled.
        """
        prompts = await self._under_way(tenant)
        selected = [prompt for prompt in prompts if not prompt_id or prompt.prompt_id == prompt_id]
        if selected:
            first = min(selected, key=lambda each: (each.state is PredictionState.QUEUED, each.id))
            await self._predictions.cancel(first.id, tenant)

    async def forget(self, tenant: Tenant, prompt_ids: list[str], *, everything: bool) -> None:
        """Remove ended prompts from the history."""
        database = self._services.database
        named = prompt_queue.named(tenant, prompt_ids)
        ids = await database.read(named) if prompt_ids else ()
        await database.write(prompt_queue.forget(tenant, ids, everything=everything))

    async def _under_way(self, tenant: Tenant) -> tuple[prompt_queue.UnfinishedPrompt, ...]:
        return await self._services.database.read(prompt_queue.under_way(tenant))

    # -- notifications ---------------------------------------------------------------------------

    def _on_event(self, _prediction_id: str, event: Event) -> None:
        """Notify the client that a prompt began or ended, now that the history contains it."""
        if not isinstance(event, StateChanged) or event.prediction.face != _FACE:
            return
        prediction = event.prediction
        if prediction.model != workflows.PROMPT:
            return
        if prediction.is_terminal:
            self._send_end(prediction)
        tenant = Tenant.of(prediction)
        for each in {tenant, tenant.whole}:
            self._count(each, prediction)

    def _count(self, tenant: Tenant, prediction: Prediction) -> None:
        open_ids = self._open[tenant]
        count = len(open_ids)
        (open_ids.discard if prediction.is_terminal else open_ids.add)(prediction.id)
        if len(open_ids) != count:
            status = {"type": "status", "data": {"status": _remaining(len(open_ids))}}
            self._workshop.hub.send_to_tenant(tenant, None, status)
        if not open_ids:
            del self._open[tenant]

    def _send_end(self, prediction: Prediction) -> None:
        hub, prompt_id = self._workshop.hub, _prompt_id(prediction)
        client_id = prediction.task.inputs.get("client_id")
        if prediction.state is PredictionState.SUCCEEDED:
            hub.release(prediction.id, Tenant.of(prediction), client_id)
        hub.forget_withheld(prediction.id)
        kind, data = _last(prediction)
        if all(message[0] != kind for message in hub.messages(prediction.id)):
            hub.remember(prediction.id, kind, data)
            hub.send(Tenant.of(prediction), client_id, {"type": kind, "data": data})
        over = {"type": "executing", "data": {"node": None, "prompt_id": prompt_id}}
        hub.send(Tenant.of(prediction), client_id, over)


async def _decoded(rows: Iterable[Row]) -> AsyncGenerator[Prediction]:
    """Yield predictions one by one, in turns of the event loop, or decoded in a thread if they are large."""
    for row in rows:
        yield await PARSER.run_large(Prediction.stored_size(row), Prediction.from_row, row)


async def _raw(prompt: Prediction, value: Any) -> msgspec.Raw:
    return await PARSER.run_large(prompt.size, responses.raw, value)


def _remaining(count: int) -> JsonObject:
    return {"exec_info": {"queue_remaining": count}}


def _refusal(error: JsonObject, nodes: Mapping[str, Any] | None = None) -> JsonObject:
    return {"error": error, "node_errors": dict(nodes or {})}


def _is_strict(body: Mapping[str, Any]) -> bool:
    return True in (body.get("strict_models"), mapping(body.get("extra_data")).get("strict_models"))


def _prompt_id(prediction: Prediction) -> str:
    return str(prediction.task.inputs.get("prompt_id") or prediction.id)


def _number(prediction: Prediction) -> tuple[float, str]:
    return float(prediction.task.inputs.get("number", 0)), prediction.id


def _item(prediction: Prediction) -> list[Any]:
    """Return a prompt as in the queue and history: number, id, graph, extra data, ids of the output nodes."""
    inputs = prediction.task.inputs
    extra: JsonObject = {**mapping(inputs.get("extra_data"))}
    if inputs.get("client_id"):
        extra["client_id"] = inputs["client_id"]
    outputs = as_list(inputs.get("outputs"))
    return [inputs.get("number", 0), _prompt_id(prediction), inputs.get("graph", {}), extra, outputs]


def _last(prediction: Prediction) -> list[Any]:
    """Return the final message of a run that has ended."""
    ended_ms = prediction.completed_at // 1000 if prediction.completed_at else time.time_ns() // 1_000_000
    response: JsonObject = {"prompt_id": _prompt_id(prediction), "timestamp": ended_ms}
    match prediction.state:
        case PredictionState.SUCCEEDED:
            return ["execution_success", response]
        case PredictionState.CANCELED:
            return ["execution_interrupted", {**response, "node_id": None, "node_type": None, "executed": []}]
        case _:
            failure = {"exception_message": prediction.error or "It failed", "exception_type": "EngineFailed"}
            return [
                "execution_error",
                {**response, "node_id": None, "node_type": None, "executed": [], "traceback": [], **failure},
            ]
