"""Routes for predictions: run, queue, quote, list, show, cancel, follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.hosting import container_images, models_list, run_requests, schemas, spaces, streaming
from sixfold.api.hosting.sessions import routes as sessions
from sixfold.core.accounts import rights
from sixfold.core.catalog import unknown_names
from sixfold.core.clock import rfc3339
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.core.predictions.webhooks import Renderer
from sixfold.web import bodies, predictions, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import PredictionSerializer, PredictionStatus
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

Work = Callable[[Prediction, schemas.RunRequest], Awaitable[Response]]
_PAGE, _MAX_PAGE = 50, 200
_MAX_FILTER = 100
_STATES = tuple(str(state) for state in PredictionState if state is not PredictionState.CANCELING)


class PredictionRoutes(ServiceHandlers):
    """Runs models and reports the state of their predictions."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._serializer = PredictionSerializer(services)

    async def run(self, request: Request) -> Response:
        """Run a model and wait for its end, at most for the time in the request."""
        return await self._once(request, self._run)

    async def join(self, request: Request) -> Response:
        """Add a run to a model's queue."""
        return await self._once(request, self._join)

    async def _once(self, request: Request, work: Work) -> Response:
        principal = await self._enter(request)
        raw = await request.body()
        idempotent_request = IdempotentRequest(principal.replays, raw, responses.error_response)

        async def accepted(idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, raw)
            run_request = schemas.run_request(body, request.scope["path_params"].get("model_id"))
            prediction_request = await run_requests.prediction_request(
                self._services, request, principal, run_request, idempotency_id=idempotency_id
            )
            return await work(await self._services.predictions.submit(prediction_request), run_request)

        return await self._services.idempotency.run(request, idempotent_request, accepted)

    async def _run(self, prediction: Prediction, run_request: schemas.RunRequest) -> Response:
        if run_request.wait_seconds:
            prediction = await self._services.predictions.wait(prediction, run_request.wait_seconds)
        return await self._answer(prediction, 200 if prediction.is_terminal else 202)

    async def _join(self, prediction: Prediction, _run_request: schemas.RunRequest) -> Response:
        position = await self._serializer.position(prediction)
        headers = responses.ignored_inputs_header(prediction.ignored_inputs)
        return responses.json(schemas.queue_entry(prediction, position or 0), 202, headers)

    async def quote(self, request: Request) -> Response:
        """Return the price and the expected time of a run, without side effects."""
        principal = await self._enter(request)
        body = await bodies.parse(bodies.parse_object, await request.body() or b"{}")
        run_request = schemas.run_request(body, requests.path_value(request, "model_id"))
        if run_request.model not in self._services.catalog:
            principal.permit(run_request.model)
        terms = await run_requests.terms(self._services, principal, run_request)
        price_quote = await run_requests.quote(self._services, terms, run_request)
        waiting_count = await self._services.predictions.count_waiting(price_quote.engine.name)
        durations = self._services.durations.average(run_request.model, price_quote.engine.name)
        seconds = self._serializer.until_end(run_request.model, price_quote.engine.name, waiting_count)
        cold = self._serializer.is_cold(price_quote.engine.name)
        ignored = unknown_names.ignored_inputs(terms.model.inputs, run_request.inputs)
        price = schemas.quote(price_quote, durations.run, seconds, cold=cold)
        document = {**price, **responses.ignored_inputs_field(run_request.model, ignored)}
        return responses.json(document, headers=responses.ignored_inputs_header(ignored))

    async def page(self, request: Request) -> Response:
        """Return the account's predictions, newest first."""
        principal = await self._enter(request)
        prediction_filter = PredictionFilter(
            model=requests.query_text(request, "model", _MAX_FILTER),
            state=requests.query_choice(request, "status", _STATES, _MAX_FILTER),
        )
        cursor = requests.query_text(request, "cursor", _MAX_FILTER) or None
        page, next_cursor = await self._services.predictions.page(
            principal.tenant,
            prediction_filter,
            requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_FILTER),
            cursor,
        )
        serialized = [await self._serializer.serialize_with_position(prediction) for prediction in page]
        rows = await responses.encode_each(serialized)
        return responses.json({"predictions": rows, "next_cursor": next_cursor})

    async def show(self, request: Request) -> Response:
        return await self._answer(await self._find(request))

    async def cancel(self, request: Request) -> Response:
        """Cancel a prediction that has not ended."""
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        service = self._services.predictions
        return await self._answer(await predictions.cancel(service, prediction_id, principal.tenant))

    async def events(self, request: Request) -> Response:
        prediction = await self._find(request)
        if "idempotency-key" in request.headers:
            raise errors.BadRequest("An event stream does not support Idempotency-Key: omit it")
        self._services.admission.event_stream(request, prediction.account_id)
        last_event = streaming.last_id(request.headers.get("last-event-id"))
        stream = streaming.EventStream(
            self._services, prediction, self._serializer.serialize_with_position, last_event
        )
        return StreamingResponse(stream.frames(), 200, streaming.HEADERS, "text/event-stream")

    # -- shared helpers ----------------------------------------------------------------------------

    async def _find(self, request: Request) -> Prediction:
        principal = await self._enter(request)
        return await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), principal.tenant
        )

    async def _answer(self, prediction: Prediction, status: int = 200) -> Response:
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        return responses.json(await self._serializer.serialize_with_position(prediction), status, headers)


def _webhook_renderer(services: WebServices) -> Renderer:
    def render(prediction: Prediction, event: str, time_us: int) -> dict[str, Any]:
        fraction = services.predictions.bus.progress(prediction.id) if prediction.is_terminal else 0.0
        data = predictions.prediction(prediction, services.media_url, PredictionStatus(fraction))
        return {"type": f"prediction.{event}", "timestamp": rfc3339(time_us), "data": data}

    return render


def build_api(services: WebServices) -> ApiGroup:
    runs = PredictionRoutes(services)
    large = services.settings.inline_body_bytes
    images = container_images.ContainerImageRoutes(services)
    import_image = services.idempotency.once(services.authenticator.bearer, images.post)
    return ApiGroup(
        "hosting",
        responses.error_response,
        (
            *models_list.routes(services, import_image),
            RouteEntry("/api/containers/run", {"POST": runs.run}, large, access=rights.RUN),
            RouteEntry(
                "/api/containers/{model_id:path}/queue/join", {"POST": runs.join}, large, access=rights.RUN
            ),
            RouteEntry(
                "/api/containers/{model_id:path}/quote", {"POST": runs.quote}, large, access=rights.RUN
            ),
            *_predictions(services, runs),
            *sessions.routes(services),
            *spaces.routes(services),
        ),
        sockets=sessions.sockets(services),
    )


def build_predictions(services: WebServices) -> ApiGroup:
    """Return the routes of predictions alone, for a server whose other APIs create them."""
    routes = _predictions(services, PredictionRoutes(services))
    return ApiGroup("hosting", responses.error_response, routes)


def _predictions(services: WebServices, runs: PredictionRoutes) -> tuple[RouteEntry, ...]:
    services.outbox.renderers["hosting"] = _webhook_renderer(services)
    root, small = "/api/containers/predictions", services.settings.json_body_bytes
    one, cancel = f"{root}/{{prediction_id}}", {"POST": runs.cancel, "PUT": runs.cancel}
    return (
        RouteEntry(root, {"GET": runs.page}, access=rights.RUN),
        RouteEntry(one, {"GET": runs.show, "DELETE": runs.cancel}, small, access=rights.RUN),
        RouteEntry(f"{one}/cancel", cancel, small, access=rights.RUN),
        RouteEntry(f"{one}/events", {"GET": runs.events}, access=rights.RUN),
    )
