"""The route that runs a named workflow, with inputs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.accounts.keys import Principal
from sixfold.core.predictions.models import Webhook
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.net import urls
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import PredictionSerializer
from sixfold.web.services import ServiceHandlers, WebServices

_WAIT, _MAX_WAIT = 60.0, 600.0


class WorkflowRunRoutes(ServiceHandlers):
    """Runs named workflows."""

    def __init__(self, services: WebServices, workflow_list: WorkflowList) -> None:
        super().__init__(services)
        self._workflow_list = workflow_list
        self._serializer = PredictionSerializer(services)

    async def run(self, request: Request) -> Response:
        """Run a workflow and wait for its end, at most for the time in the request."""
        principal = await self._enter(request)
        raw = await request.body()

        async def accepted(idempotency_id: str | None) -> Response:
            return await self._run(request, principal, raw, idempotency_id)

        idempotent_request = IdempotentRequest(principal.replays, raw, responses.error_response)
        return await self._services.idempotency.run(request, idempotent_request, accepted)

    async def _run(
        self, request: Request, principal: Principal, raw: bytes, idempotency_id: str | None
    ) -> Response:
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        inputs, wait, webhook = _parse_body(body)
        self._services.outbox.validate(webhook)
        space = await self._workflow_list.find(requests.path_value(request, "slug"), principal.account_id)
        service = self._services.predictions
        await self._services.workflows.refresh_remote(space.graph, principal.account_id)
        prediction_request = PredictionRequest(
            principal=principal,
            model=space.model,
            inputs=inputs,
            face="workflows",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
            webhook=webhook,
        )
        prediction = await service.submit(prediction_request)
        if wait:
            prediction = await service.wait(prediction, wait)
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        status = 200 if prediction.is_terminal else 202
        return responses.json(await self._serializer.serialize_with_position(prediction), status, headers)


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
