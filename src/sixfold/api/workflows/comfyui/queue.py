"""Prompts of ComfyUI clients: predictions of one model, told as a queue and a history."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows import comfyui_jobs, validation_errors, workflows
from sixfold.core.workflows.documents import listed, mapping
from sixfold.core.workflows.validate import ValidationResult
from sixfold.web import responses
from sixfold.web.services import WebServices

_FACE = "comfyui"
_MOST_ID, _MOST_NUMBER = 100, 2**53
Told = dict[str, Any]


class ComfyQueue:
    """Takes prompts, and says how they stand; `hub` clients hear of their ends here."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._workshop = services.workflows
        self._pipeline = services.pipeline
        self._numbers = itertools.count(1)
        self._open: defaultdict[Tenant, set[str]] = defaultdict(set)
        services.pipeline.bus.watchers.append(self._heard)

    async def take(
        self,
        principal: Principal,
        body: Mapping[str, Any],
        request_id: str,
        idempotency_id: str | None = None,
    ) -> tuple[Told | None, Told]:
        """Queue a prompt: why it is refused, or what the client is told of it."""
        graph = body.get("prompt")
        if graph is None:
            return _refusal(
                validation_errors.fault("no_prompt", "No prompt provided", "No prompt provided")
            ), {}
        targets = [str(each) for each in listed(body.get("partial_execution_targets"))] or None
        await self._workshop.refresh_remote(graph, principal.tenant.model_owner)
        verdict = await self._workshop.validate(graph, targets=targets, strict_models=_is_strict(body))
        self._workshop.require_runnable(verdict)
        if verdict.error is not None:
            return {"error": verdict.error, "node_errors": dict(verdict.node_errors)}, {}
        missing = await self._missing_files(principal.tenant, verdict)
        if missing:
            return missing, {}
        charged = not principal.keyless
        estimate = await self._workshop.estimate_cost(verdict, principal.tenant.model_owner, charged=charged)
        client_id = body.get("client_id") or mapping(body.get("extra_data")).get("client_id")
        order = PredictionRequest(
            principal=principal,
            model=workflows.PROMPT,
            inputs={},
            face=_FACE,
            request_id=request_id,
            idempotency_id=idempotency_id,
            charged=charged,
            hold=estimate.price,
            extras={
                "graph": graph,
                "prompt_id": str(body.get("prompt_id") or uuid.uuid4())[:_MOST_ID],
                "number": self._place(body),
                "client_id": str(client_id) if client_id else None,
                "extra_data": mapping(body.get("extra_data")),
                "targets": targets,
            },
        )
        prediction = await self._pipeline.submit(order)
        told: Told = {
            "prompt_id": _prompt_id(prediction),
            "number": prediction.task.inputs["number"],
            "node_errors": dict(verdict.node_errors),
        }
        if verdict.missing_models:
            told["warnings"] = [
                f"{each['file']} is not installed: the default engine stands in for it"
                for each in verdict.missing_models
            ]
        return None, told

    def _place(self, body: Mapping[str, Any]) -> float:
        """Its place in the queue: the client's own, before all others, or behind them."""
        place, number = next(self._numbers), body.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < _MOST_NUMBER:
            return number
        return -place if body.get("front") is True else place

    async def _missing_files(self, tenant: Tenant, verdict: ValidationResult) -> Told | None:
        """ComfyUI's words on files that inputs name and nobody put there."""
        found: dict[str, Told] = {}
        for node in verdict.nodes.values():
            for name, kind in node.spec.uploads.items():
                value = node.values.get(name)
                if not isinstance(value, str) or not value or "://" in value or value.startswith("data:"):
                    continue
                try:
                    await self._workshop.names.source(tenant, value, kind)
                except errors.BadRequest:
                    wrong = validation_errors.fault(
                        "custom_validation_failed",
                        "Custom validation failed for node",
                        f"{name} - Invalid {kind} file: {value[:200]}",
                        input_name=name,
                        received_value=value,
                    )
                    told = {"dependent_outputs": list(verdict.outputs), "class_type": node.spec.class_type}
                    found.setdefault(node.id, {"errors": [], **told})["errors"].append(wrong)
        if not found:
            return None
        words = [each["details"] for row in found.values() for each in row["errors"]]
        text = "Prompt outputs failed validation"
        return _refusal(
            validation_errors.fault("prompt_outputs_failed_validation", text, "\n".join(words)), found
        )

    # -- how they stand --------------------------------------------------------------------------

    async def remaining(self, tenant: Tenant) -> Told:
        """How many are on their way."""
        return _remaining(await self._services.database.read(comfyui_jobs.remaining(tenant)))

    async def queue(self, tenant: Tenant) -> Told:
        """What runs, and what waits, both by their numbers: the oldest, as far as they fit into a page."""
        found = sorted(await self._services.database.read(comfyui_jobs.first(tenant)), key=_number)
        items = await responses.encode_each(_item(each) for each in found)
        waits = [each.state is PredictionState.QUEUED for each in found]
        return {
            "queue_running": [item for item, is_queued in zip(items, waits, strict=True) if not is_queued],
            "queue_pending": [item for item, is_queued in zip(items, waits, strict=True) if is_queued],
        }

    async def history(self, tenant: Tenant, prompt_id: str | None, most: int) -> Told:
        """What has ended, the newest that fit into a page, oldest first, or the one that is named."""
        database = self._services.database
        if prompt_id is None:
            found = await database.read(comfyui_jobs.ended(tenant, most))
        else:
            one = await database.read(comfyui_jobs.named(tenant, prompt_id))
            found = (one,) if one is not None and one.is_terminal else ()
        entries = await responses.encode_each(self._entry(each) for each in found)
        return {_prompt_id(each): entry for each, entry in zip(found, entries, strict=True)}

    def _entry(self, prediction: Prediction) -> Told:
        data = prediction.output.data if prediction.output is not None else {}
        succeeded = prediction.state is PredictionState.SUCCEEDED
        messages = self._workshop.hub.messages(prediction.id)
        if not messages:  # the server was started anew since
            messages = [_last(prediction)]
        status = {
            "status_str": "success" if succeeded else "error",
            "completed": succeeded,
            "messages": messages,
        }
        return {"prompt": _item(prediction), "outputs": data.get("outputs", {}), "status": status, "meta": {}}

    async def withdraw(self, tenant: Tenant, prompt_ids: list[str], *, everything: bool) -> None:
        """Cancel what waits."""
        for each in await self._under_way(tenant):
            if each.state is PredictionState.QUEUED and (everything or _prompt_id(each) in prompt_ids):
                await self._pipeline.cancel(each.id, tenant)

    async def interrupt(self, tenant: Tenant, prompt_id: str) -> None:
        """Cancel the prompt that runs longest, or the one that is named.

        One that was taken a moment ago may not run yet: no client can see that, so it is meant, too.
        """
        found = await self._under_way(tenant)
        wanted = [each for each in found if not prompt_id or _prompt_id(each) == prompt_id]
        if wanted:
            first = min(wanted, key=lambda each: (each.state is PredictionState.QUEUED, each.id))
            await self._pipeline.cancel(first.id, tenant)

    async def forget(self, tenant: Tenant, prompt_ids: list[str], *, everything: bool) -> None:
        """Leave what has ended out of the history."""
        forgetting = comfyui_jobs.forget(tenant, prompt_ids, everything=everything)
        await self._services.database.write(forgetting)

    async def _under_way(self, tenant: Tenant) -> tuple[Prediction, ...]:
        return await self._services.database.read(comfyui_jobs.under_way(tenant))

    # -- who is told -----------------------------------------------------------------------------

    def _heard(self, _prediction_id: str, event: Event) -> None:
        """A prompt began or ended: tell its client, now that the history has it."""
        if not isinstance(event, StateChanged) or event.prediction.face != _FACE:
            return
        prediction = event.prediction
        if prediction.model != workflows.PROMPT:
            return
        if prediction.is_terminal:
            self._tell_end(prediction)
        tenant = Tenant.of(prediction)
        for each in {tenant, tenant.whole}:
            self._count(each, prediction)

    def _count(self, tenant: Tenant, prediction: Prediction) -> None:
        still = self._open[tenant]
        count = len(still)
        (still.discard if prediction.is_terminal else still.add)(prediction.id)
        if len(still) != count:
            status = {"type": "status", "data": {"status": _remaining(len(still))}}
            self._workshop.hub.tell_own(tenant, None, status)
        if not still:
            del self._open[tenant]

    def _tell_end(self, prediction: Prediction) -> None:
        hub, prompt_id = self._workshop.hub, _prompt_id(prediction)
        client_id = prediction.task.inputs.get("client_id")
        if prediction.state is PredictionState.SUCCEEDED:
            hub.release(prediction.id, Tenant.of(prediction), client_id)
        hub.forget_withheld(prediction.id)
        kind, data = _last(prediction)
        if all(each[0] != kind for each in hub.messages(prediction.id)):
            hub.remember(prediction.id, kind, data)
            hub.send(Tenant.of(prediction), client_id, {"type": kind, "data": data})
        over = {"type": "executing", "data": {"node": None, "prompt_id": prompt_id}}
        hub.send(Tenant.of(prediction), client_id, over)


def _remaining(count: int) -> Told:
    return {"exec_info": {"queue_remaining": count}}


def _refusal(error: Told, nodes: Mapping[str, Any] | None = None) -> Told:
    return {"error": error, "node_errors": dict(nodes or {})}


def _is_strict(body: Mapping[str, Any]) -> bool:
    return True in (body.get("strict_models"), mapping(body.get("extra_data")).get("strict_models"))


def _prompt_id(prediction: Prediction) -> str:
    return str(prediction.task.inputs.get("prompt_id") or prediction.id)


def _number(prediction: Prediction) -> tuple[float, str]:
    return float(prediction.task.inputs.get("number", 0)), prediction.id


def _item(prediction: Prediction) -> list[Any]:
    """A prompt as the queue and the history list it: number, id, graph, extra data, wanted outputs."""
    inputs = prediction.task.inputs
    extra: Told = {**mapping(inputs.get("extra_data"))}
    if inputs.get("client_id"):
        extra["client_id"] = inputs["client_id"]
    wanted = listed(inputs.get("targets"))
    return [inputs.get("number", 0), _prompt_id(prediction), inputs.get("graph", {}), extra, wanted]


def _last(prediction: Prediction) -> list[Any]:
    """The last word on a run that has ended."""
    moment = prediction.completed_at // 1000 if prediction.completed_at else time.time_ns() // 1_000_000
    told: Told = {"prompt_id": _prompt_id(prediction), "timestamp": moment}
    match prediction.state:
        case PredictionState.SUCCEEDED:
            return ["execution_success", told]
        case PredictionState.CANCELED:
            return ["execution_interrupted", {**told, "node_id": None, "node_type": None, "executed": []}]
        case _:
            why = {"exception_message": prediction.error or "It failed", "exception_type": "EngineFailed"}
            return [
                "execution_error",
                {**told, "node_id": None, "node_type": None, "executed": [], "traceback": [], **why},
            ]
