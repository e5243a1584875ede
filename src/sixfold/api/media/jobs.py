"""Status and cancellation of the jobs of the Media API; a job id is the only credential."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.media import endpoints, serializers
from sixfold.core.accounts import rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.web import requests, responses
from sixfold.web.predictions import cancel
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

# A client with the alternative base URL appends `status_url` to it.
PATHS = ("/api/media/status/{job_id}", "/alt/api/media/status/{job_id}")


class JobRoutes(ServiceHandlers):
    """Handlers for one job."""

    async def status(self, request: Request) -> Response:
        return self._job(await self._find(request))

    async def cancel(self, request: Request) -> Response:
        """Cancel a job that has not ended."""
        job = await self._find(request)
        return self._job(await cancel(self._services.predictions, job.id, Tenant.of(job)))

    async def _find(self, request: Request) -> Prediction:
        return await self._services.predictions.by_job(requests.path_value(request, "job_id"))

    def _job(self, prediction: Prediction) -> Response:
        body = serializers.job(prediction, self._services.predictions.bus.progress(prediction.id))
        endpoint = endpoints.BY_MODEL.get(prediction.model)
        headers: dict[str, str] = {"Cache-Control": "no-store"}
        if prediction.state is PredictionState.SUCCEEDED and endpoint is not None:
            body["result"] = endpoint.result(prediction, self._services.media_url, job=True)
            headers |= responses.result_headers(prediction)
        elif prediction.state in {PredictionState.FAILED, PredictionState.EXPIRED}:
            if endpoint is None or prediction.error_kind == predictions.UNUSABLE:
                body["error"] = prediction.error or ""
            else:
                body["error"] = endpoint.failure_text
        return responses.json(body, headers=headers)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    jobs = JobRoutes(services)
    handlers = {"GET": jobs.status, "POST": jobs.status, "DELETE": jobs.cancel}
    limit = services.settings.json_body_bytes
    return tuple(RouteEntry(path, handlers, limit, access=rights.PUBLIC) for path in PATHS)
