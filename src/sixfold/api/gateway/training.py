"""`POST /api/training`: train an image service from images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.service import accepted_response
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog import trained_models
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices


class TrainingRoutes(ServiceHandlers):
    """Starts training runs; a finished one is the service `custom:<name>` of its account."""

    async def begin(self, request: Request) -> Response:
        """Start a training run and return 202 with its status URL."""
        principal = await self._enter(request)
        raw = await request.body()
        inputs = await bodies.parse(bodies.parse_object, raw)

        async def make(idempotency_id: str | None) -> Response:
            job = PredictionRequest(
                principal=principal,
                model=trained_models.MODEL,
                inputs=inputs,
                face="training",
                request_id=requests.request_id(request),
                idempotency_id=idempotency_id,
            )
            try:
                prediction = await self._services.predictions.submit(job)
            except errors.EngineUnavailable:
                await self._check_images(job)
                raise
            return responses.json(accepted_response(trained_models.MODEL, prediction), 202)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, responses.error_response), make
        )

    async def admit(self, principal: Principal, values: Mapping[str, Any]) -> None:
        """Raise `Forbidden` if a training would replace a model that the principal has not trained itself."""
        predictions, name = self._services.predictions, f"{trained_models.PREFIX}{values['name']}"
        try:
            found = await predictions.custom_models.find(name, principal.account_id)
        except errors.NotFound:
            return
        try:
            await predictions.get(str(found.document.get("training")), principal.tenant)
        except errors.NotFound:
            principal.require(rights.RUN_ACCOUNT_READ)

    async def _check_images(self, job: PredictionRequest) -> None:
        """Raise `InvalidInput` for unusable images even if no engine is available.

        Only images in the request or stored here are checked; nothing is fetched.
        """
        model, media = self._services.catalog[trained_models.MODEL], self._services.media
        images = model.listed_images(model.check(job.inputs))
        local_images = {
            name: (row, text)
            for name, (row, text) in images.items()
            if not text.startswith(("https://", "http://")) or text.startswith(tuple(media.own_origins))
        }
        await media.resolve_all(job.principal.tenant, local_images)


def build_api(services: WebServices) -> ApiGroup:
    """Return the route `/api/training`, and check what each training would replace."""
    training = TrainingRoutes(services)
    services.predictions.admit[trained_models.MODEL] = training.admit
    body = services.settings.inline_body_bytes
    return ApiGroup(
        "training",
        responses.error_response,
        (RouteEntry("/api/training", {"POST": training.begin}, body, access=rights.RUN),),
    )
