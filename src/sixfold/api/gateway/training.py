"""`POST /api/training`: a picture service of one's own, learnt from pictures."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.service import begun
from sixfold.core.accounts import rights
from sixfold.core.catalog import trained_models
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices


class TrainingRoutes:
    """Begins trainings; what became of one is the service `custom:<name>` of its account."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def begin(self, request: Request) -> Response:
        """Where to ask after it: no training is over at once."""
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()
        given = await bodies.parse(bodies.parse_object, raw)

        async def make(idempotency_id: str | None) -> Response:
            order = PredictionRequest(
                principal=principal,
                model=trained_models.MODEL,
                inputs=given,
                face="training",
                request_id=requests.request_id(request),
                idempotency_id=idempotency_id,
            )
            try:
                prediction = await self._services.pipeline.submit(order)
            except errors.EngineUnavailable:
                await self._look_at_pictures(order)
                raise
            return responses.json(begun(trained_models.MODEL, prediction), 202)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, responses.error_response), make
        )

    async def _look_at_pictures(self, order: PredictionRequest) -> None:
        """Where nothing can learn, too, what is wrong with pictures goes first; raises `InvalidInput`.

        Nothing is fetched for that: it is about those that came along or lie here.
        """
        model, media = self._services.catalog[trained_models.MODEL], self._services.media
        pictures = model.listed_images(model.check(order.inputs))
        near = {
            name: (row, text)
            for name, (row, text) in pictures.items()
            if not text.startswith(("https://", "http://")) or text.startswith(tuple(media.own_origins))
        }
        await media.resolve_all(order.principal.tenant, near)


def build_api(services: WebServices) -> ApiGroup:
    """The one address."""
    body = services.settings.inline_body_bytes
    return ApiGroup(
        "training",
        responses.error_response,
        (RouteEntry("/api/training", {"POST": TrainingRoutes(services).begin}, body, access=rights.RUN),),
    )
