"""fal's API: requests that wait, the queue, webhooks and uploads.

`FAL_RUN_HOST=HOST/fal` and `FAL_QUEUE_RUN_HOST=HOST/fal/queue` make fal's clients use this server; they
only connect over TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.hosting import run_requests, streaming
from sixfold.api.hosting import schemas as hosting
from sixfold.api.hosting.fal import schemas
from sixfold.api.hosting.fal.files import FalFiles, authenticate
from sixfold.api.hosting.public_names import PublicModel, PublicNames
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.events import ProgressEvent
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.webhooks import Renderer
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import PredictionSerializer
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

FACE = "fal"
_OWNER = "sixfold/"
_KEEP_ALIVE_SECONDS = 15.0
_KEEP_ALIVE = b": ping\n\n"
_MAX_URL_CHARS = 2048


class FalRoutes:
    """Runs and the queue."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._base_url = services.settings.base_url
        self._names = PublicNames("fal")
        self._serializer = PredictionSerializer(services)

    async def run(self, request: Request) -> Response:
        async def answer(prediction: Prediction, public: PublicModel | None) -> Response:
            seconds = self._services.settings.inline_seconds
            result = await self._services.predictions.wait(prediction, seconds, patient=True)
            if not result.is_terminal:
                raise errors.EngineFailed(
                    f"The request did not finish within {seconds:g} s (SIXFOLD_INLINE_SECONDS) and "
                    "continues: "
                    f"poll {schemas.QUEUE}/{requests.path_value(request, 'app')}/requests/{result.id}"
                )
            return self._result(result, public)

        return await self._submit(request, answer, webhook="")

    async def submit(self, request: Request) -> Response:
        """Queue a request; `fal_webhook` receives a POST when it ends."""

        async def answer(prediction: Prediction, _public: PublicModel | None) -> Response:
            app = requests.path_value(request, "app")
            position = await self._serializer.position(prediction) or 0
            return responses.json(schemas.ticket(self._base_url, app, prediction, position))

        return await self._submit(
            request, answer, webhook=requests.query_text(request, "fal_webhook", _MAX_URL_CHARS)
        )

    async def _submit(self, request: Request, answer: Any, *, webhook: str) -> Response:
        principal = await self._enter(request)
        raw = await request.body()
        public, model = self._model(requests.path_value(request, "app"))

        async def work(idempotency_id: str | None) -> Response:
            inputs = await bodies.parse(bodies.parse_object, raw)
            run = hosting.RunRequest(
                model=model,
                inputs=inputs if public is None else public.translate(inputs),
                webhook=hosting.webhook(webhook, ("completed",)),
            )
            try:
                prediction_request = await run_requests.prediction_request(
                    self._services,
                    request,
                    principal,
                    run,
                    face=self._names.face(public),
                    idempotency_id=idempotency_id,
                )
                prediction = await self._services.predictions.submit(prediction_request)
            except errors.InvalidInput as error:
                raise error if public is None else public.client_error(error) from error
            return await answer(prediction, public)

        idempotent_request = IdempotentRequest(principal.replays, raw, schemas.error)
        return await self._services.idempotency.run(request, idempotent_request, work)

    def _model(self, app: str) -> tuple[PublicModel | None, str]:
        """Return the row of an app and the model that serves it; raises `NotFound`."""
        public = self._names.find(app)
        if public is not None:
            return public, public.model
        if app.startswith(_OWNER):
            return None, app.removeprefix(_OWNER)
        raise errors.NotFound(
            f"Application '{app[:100]}' not found: use sixfold/MODEL with a model name from GET /api/services"
        )

    async def status(self, request: Request) -> Response:
        """Return the state of a request, with `logs=1` also its log."""
        prediction = await self._find(request)
        body = await self._status(request, prediction)
        return responses.json(body, 200 if prediction.is_terminal else 202, {"Cache-Control": "no-store"})

    async def stream_status(self, request: Request) -> Response:
        """Stream the states of a request until its end."""
        prediction = await self._find(request)
        self._services.admission.event_stream(request, prediction.account_id)
        frames = self._statuses(request, prediction)
        return StreamingResponse(frames, 200, streaming.HEADERS, "text/event-stream")

    async def _statuses(self, request: Request, prediction: Prediction) -> AsyncIterator[bytes]:
        service = self._services.predictions
        with service.bus.listen(prediction.id) as queue:
            last = b""
            while not service.draining:
                current = await service.get_any(prediction.id)
                frame = b"data: %s\n\n" % responses.encode(await self._status(request, current))
                yield _KEEP_ALIVE if frame == last else frame
                if current.is_terminal:
                    return
                last = frame
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        while isinstance(await queue.get(), ProgressEvent):
                            pass
                except TimeoutError:
                    continue

    async def result(self, request: Request) -> Response:
        """Return the output of a request that has ended."""
        prediction = await self._find(request)
        if not prediction.is_terminal:
            raise errors.BadRequest("Request is still in progress")
        return self._result(prediction, self._names.of_face(prediction.face))

    async def cancel(self, request: Request) -> Response:
        """Cancel a request that has not ended."""
        prediction = await self._find(request)
        is_complete = prediction.is_terminal
        if not is_complete:
            await self._services.predictions.cancel(prediction.id, Tenant.of(prediction))
        body: schemas.FalCancelSchema = {
            "status": "ALREADY_COMPLETED" if is_complete else "CANCELLATION_REQUESTED"
        }
        return responses.json(body, 400 if is_complete else 202)

    def webhook_payload(self, prediction: Prediction, _event: str, _moment: int) -> dict[str, Any]:
        public = self._names.of_face(prediction.face)
        return schemas.webhook(prediction, public, self._services.media_url)

    def _result(self, prediction: Prediction, public: PublicModel | None) -> Response:
        problem = schemas.failure(prediction, public)
        if problem is not None:
            raise problem
        headers = responses.result_headers(prediction) | {"x-fal-request-id": prediction.id}
        return responses.json(schemas.result(prediction, public, self._services.media_url), 200, headers)

    async def _status(self, request: Request, prediction: Prediction) -> schemas.FalStatusSchema:
        return schemas.status(
            self._base_url,
            requests.path_value(request, "app"),
            prediction,
            await self._serializer.position(prediction),
            self._names.of_face(prediction.face),
            logs=request.query_params.get("logs", "").lower() in ("1", "true"),
        )

    async def _find(self, request: Request) -> Prediction:
        principal = await self._enter(request)
        identifier = requests.path_value(request, "request_id")
        return await self._services.predictions.get(identifier, principal.tenant)

    async def _enter(self, request: Request) -> Principal:
        return await authenticate(self._services, request)


def build_api(services: WebServices) -> ApiGroup:
    """Return the routes of fal's API, which has its own error format."""
    routes, files = FalRoutes(services), FalFiles(services)
    render: Renderer = routes.webhook_payload
    services.outbox.renderers[FACE] = render
    large, small = services.settings.inline_body_bytes, services.settings.json_body_bytes
    upload = services.settings.upload_body_bytes
    run = rights.RUN
    return ApiGroup(
        FACE,
        schemas.error,
        (
            RouteEntry("/fal/storage/auth/token", {"POST": files.token}, small, access=run),
            RouteEntry("/fal/storage/upload/initiate", {"POST": files.initiate}, small, access=run),
            RouteEntry("/fal/storage/upload/{name}", {"PUT": files.put}, upload, access=run),
            RouteEntry("/fal/files/upload", {"POST": files.upload}, upload, access=run),
            RouteEntry(
                "/fal/queue/{app:path}/requests/{request_id}/status/stream",
                {"GET": routes.stream_status},
                access=run,
            ),
            RouteEntry(
                "/fal/queue/{app:path}/requests/{request_id}/status", {"GET": routes.status}, access=run
            ),
            RouteEntry(
                "/fal/queue/{app:path}/requests/{request_id}/cancel", {"PUT": routes.cancel}, access=run
            ),
            RouteEntry(
                "/fal/queue/{app:path}/requests/{request_id}/response", {"GET": routes.result}, access=run
            ),
            RouteEntry("/fal/queue/{app:path}/requests/{request_id}", {"GET": routes.result}, access=run),
            RouteEntry("/fal/queue/{app:path}", {"POST": routes.submit}, large, access=run),
            RouteEntry("/fal/{app:path}", {"POST": routes.run}, large, access=run),
        ),
        prefixes=("/fal/",),
    )
