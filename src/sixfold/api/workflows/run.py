"""A space run by its inputs: files found first, then one order on the road."""

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
_BATCH_INPUTS = 500  # looked at between two turns of the event loop


class WorkflowRunRoutes:
    """Runs spaces."""

    def __init__(self, services: WebServices, catalogue: WorkflowList) -> None:
        self._services = services
        self._catalogue = catalogue
        self._teller = PredictionSerializer(services)

    async def run(self, request: Request) -> Response:
        """Run a space; waits for its end as long as is asked."""
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()

        async def accepted(idempotency_id: str | None) -> Response:
            return await self._run(request, principal, raw, idempotency_id)

        once = IdempotentRequest(principal.replays, raw, responses.error_response)
        return await self._services.idempotency.run(request, once, accepted)

    async def _run(
        self, request: Request, principal: Principal, raw: bytes, idempotency_id: str | None
    ) -> Response:
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        given, wait, webhook = _wanted(body)
        self._services.outbox.validate(webhook)
        space = await self._catalogue.find(requests.path_value(request, "slug"), principal.account_id)
        pipeline = self._services.pipeline
        model = await pipeline.find(space.model, principal.account_id)
        await self._services.workflows.refresh_remote(space.graph, principal.account_id)
        await pipeline.prepare(model, given, charged=True)
        quote = pipeline.quote(model, given)  # before any file is fetched
        order = PredictionRequest(
            principal=principal,
            model=space.model,
            inputs=given,
            face="workflows",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
            webhook=webhook,
            sources=await self._sources(principal.tenant, space, quote.values),
        )
        prediction = await pipeline.submit(order)
        if wait:
            prediction = await pipeline.wait(prediction, wait)
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        status = 200 if prediction.is_terminal else 202
        return responses.json(await self._teller.serialize_with_position(prediction), status, headers)

    async def _sources(
        self, tenant: Tenant, space: Workflow, values: Mapping[str, Any]
    ) -> dict[str, MediaSource]:
        """The files that inputs name; raises `InvalidInput` with every one that is not there."""
        found: dict[str, MediaSource] = {}
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
                found[each.name] = await names.source(tenant, value, kind, each.name)
            except errors.InvalidInput as wrong:
                problems += wrong.problems
        if problems:
            raise errors.InvalidInput(problems)
        return found


def upload(space: Workflow, each: ApiInput, registry: Registry) -> str:
    """The kind of file that an input names; empty for one that names none."""
    spec = registry.get(str(space.graph[each.node_id]["class_type"]))
    given = spec.by_name.get(each.field) if spec is not None else None
    return given.upload if given is not None else each.type if each.type in ("image", "video") else ""


def _wanted(body: Mapping[str, Any]) -> tuple[dict[str, Any], float, Webhook | None]:
    """The inputs, how long to wait, and whom to tell; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    given, wait, url = body.get("input"), body.get("wait"), body.get("webhook")
    wait = _WAIT if wait is None else wait
    if not isinstance(given, dict | None):
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
    return cast("dict[str, Any]", given or {}), float(cast("float", wait)), webhook
