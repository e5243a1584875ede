"""Runs a named workflow with inputs by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.models import Webhook
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.workflows.input_inference import ApiInput
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.workflows import Workflow
from sixfold.net import urls
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import PredictionSerializer
from sixfold.web.services import WebServices

_WAIT, _MAX_WAIT = 60.0, 600.0
# Inputs processed between two yields to the event loop.
_BATCH_INPUTS = 500


class WorkflowRunRoutes:
    """Runs named workflows."""

    def __init__(self, services: WebServices, workflow_list: WorkflowList) -> None:
        self._services = services
        self._workflow_list = workflow_list
        self._serializer = PredictionSerializer(services)

    async def run(self, request: Request) -> Response:
        """Run a workflow and wait for its end, at most for the time in the request."""
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()

        async def accepted(idempotency_id: str | None) -> Response:
            return await self._run(request, principal, raw, idempotency_id)

        idempotent = IdempotentRequest(principal.replays, raw, responses.error_response)
        return await self._services.idempotency.run(request, idempotent, accepted)

    async def _run(
        self, request: Request, principal: Principal, raw: bytes, idempotency_id: str | None
    ) -> Response:
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        inputs, wait, webhook = _parse_body(body)
        self._services.outbox.validate(webhook)
        space = await self._workflow_list.find(requests.path_value(request, "slug"), principal.account_id)
        service = self._services.predictions
        model = await service.find(space.model, principal.account_id)
        await self._services.workflows.refresh_remote(space.graph, principal.account_id)
        await service.prepare(model, inputs, charged=True)
        # Price the run before any file is downloaded.
        quote = service.quote(model, inputs)
        prediction_request = PredictionRequest(
            principal=principal,
            model=space.model,
            inputs=inputs,
            face="workflows",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
            webhook=webhook,
            sources=await self._sources(principal.tenant, space, quote.values),
        )
        prediction = await service.submit(prediction_request)
        if wait:
            prediction = await service.wait(prediction, wait)
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        status = 200 if prediction.is_terminal else 202
        return responses.json(await self._serializer.serialize_with_position(prediction), status, headers)

    async def _sources(
        self, tenant: Tenant, space: Workflow, values: Mapping[str, Any]
    ) -> dict[str, MediaSource]:
        """Return the files that inputs name; raises `InvalidInput` with every missing one."""
        sources: dict[str, MediaSource] = {}
        problems: list[errors.Problem] = []
        registry = self._services.workflows.classes
        for at, each in enumerate(space.inputs or (), 1):
            if at % _BATCH_INPUTS == 0:
                await asyncio.sleep(0)
            kind, value = upload(space, each, registry), values.get(each.name)
            if not kind or not isinstance(value, str) or not value:
                continue
            try:
                names = self._services.workflows.names
                sources[each.name] = await names.source(tenant, value, kind, each.name)
            except errors.InvalidInput as invalid:
                problems += invalid.problems
        if problems:
            raise errors.InvalidInput(problems)
        return sources


def upload(space: Workflow, each: ApiInput, registry: Registry) -> str:
    """Return the kind of file that an input names; empty for other inputs."""
    spec = registry.get(str(space.graph[each.node_id]["class_type"]))
    inputs = spec.by_name.get(each.field) if spec is not None else None
    return inputs.upload if inputs is not None else each.type if each.type in ("image", "video") else ""


def _parse_body(body: Mapping[str, Any]) -> tuple[dict[str, Any], float, Webhook | None]:
    """Return the inputs, the seconds to wait and the webhook; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    inputs, wait, url = body.get("input"), body.get("wait"), body.get("webhook")
    wait = _WAIT if wait is None else wait
    if not isinstance(inputs, dict | None):
        problems.append(errors.Problem("input", "input must be an object", "dict_type"))
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= _MAX_WAIT:
        problems.append(
            errors.Problem("wait", f"wait must be from 0 to {_MAX_WAIT:g} seconds", "out_of_range")
        )
    webhook = None
    try:
        if url is not None:
            webhook = Webhook(urls.parse(str(url)).url)
    except errors.FetchRefused as error:
        problems.append(errors.Problem("webhook", f"webhook: {error.message}", error.code))
    if problems:
        raise errors.InvalidInput(problems)
    return cast("dict[str, Any]", inputs or {}), float(cast("float", wait)), webhook
