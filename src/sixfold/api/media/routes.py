"""Routes of the Media API, which check the key, the parameters and the balance in this order."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.media import auth as media_auth
from sixfold.api.media import endpoints, gallery, jobs, serializers
from sixfold.api.media import errors as error_format
from sixfold.api.media.endpoints import MediaEndpoint
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.web import bodies, requests, responses
from sixfold.web.bodies import BodyFields
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import failure_of
from sixfold.web.routing import ApiGroup, Handler, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

POLLING = "polling"
_MODES = ("", "inline", POLLING)


class MediaRoutes(ServiceHandlers):
    """Handlers for the endpoints that run a model."""

    def maker(self, endpoint: MediaEndpoint) -> Handler:
        async def make(request: Request) -> Response:
            principal, fields, raw = await media_auth.enter(request, self._services.authenticator)
            idempotent_request = IdempotentRequest(principal.replays, raw, error_format.render)

            async def work(idempotency_id: str | None) -> Response:
                try:
                    return await self._make(request, endpoint, (principal, fields, idempotency_id))
                except errors.InvalidInput as error:
                    raise endpoint.contract_error(error) from error

            return await self._services.idempotency.run(request, idempotent_request, work)

        return make

    async def _make(
        self, request: Request, endpoint: MediaEndpoint, parsed: tuple[Principal, BodyFields, str | None]
    ) -> Response:
        principal, fields, idempotency_id = parsed
        inputs = fields.values
        if fields.is_form:
            descriptors = self._services.catalog[endpoint.model].inputs
            inputs = bodies.from_text(descriptors, inputs, fields.repeated)
        mode = _mode(inputs.pop("response_mode", None))
        prediction_request = PredictionRequest(
            principal=principal,
            model=endpoint.model,
            inputs=inputs,
            face="media",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
            job=True,
        )
        prediction = await self._services.predictions.submit(prediction_request)
        if mode != POLLING and not endpoint.queued:
            seconds = self._services.settings.inline_seconds
            prediction = await self._services.predictions.wait(prediction, seconds)
            if prediction.is_terminal:
                return self._ended(endpoint, prediction)
        return responses.json(serializers.queued(prediction), 202)

    def _ended(self, endpoint: MediaEndpoint, prediction: Prediction) -> Response:
        name = next(iter(prediction.task.files), "")
        problem = errors.Problem(name, f"{name}: {prediction.error}", error_format.UNUSABLE)
        other = endpoint.failure(endpoint.failure_text)
        failure = failure_of(prediction, lambda: errors.InvalidInput([problem]), other)
        if failure is not None:
            raise failure
        result = endpoint.result(prediction, self._services.media_url)
        return responses.json(result, headers=responses.result_headers(prediction))


def _mode(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or value not in _MODES:
        raise errors.InvalidInput.of("response_mode", "response_mode must be polling or inline", "enum")
    return value


def build_api(services: WebServices) -> ApiGroup:
    media = MediaRoutes(services)
    limit = services.settings.json_body_bytes
    makers = tuple(
        RouteEntry(path, {"POST": media.maker(endpoint)}, limit, access=rights.RUN)
        for endpoint in endpoints.ENDPOINTS
        for path in endpoint.paths
    )
    return ApiGroup(
        "media",
        error_format.render,
        (*makers, *gallery.routes(services), *jobs.routes(services)),
        tuple(path.removesuffix("{job_id}") for path in jobs.PATHS),
    )
