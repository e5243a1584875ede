"""Area E's predictions: run, list, show, cancel, follow."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.areas.hosting import schemas, streaming
from sixfold.core.accounts.keys import Principal
from sixfold.core.work.pipeline import Order
from sixfold.core.work.predictions import Filter
from sixfold.core.work.records import Prediction
from sixfold.core.work.states import State
from sixfold.web import answers, bodies, calls
from sixfold.web.idempotency import Once
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services

_PAGE, _MAX_PAGE = 50, 200
_MAX_FILTER = 100
_STATES = tuple(str(state) for state in State if state is not State.CANCELING)


class Predictions:
    """Runs models and tells how their predictions stand."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, request: Request) -> Response:
        """Run a model; waits for its end as long as is asked."""
        principal = await self._enter(request)
        raw = await request.body()
        once = Once(principal.account_id, raw, answers.coded)

        async def work(idempotency_id: str | None) -> Response:
            wanted = schemas.run_request(bodies.parse_object(raw))
            return await self._run(request, principal, wanted, idempotency_id)

        return await self._services.repeats.run(request, once, work)

    async def _run(
        self, request: Request, principal: Principal, wanted: schemas.RunRequest, idempotency_id: str | None
    ) -> Response:
        principal.require_service(wanted.model)
        pipeline = self._services.pipeline
        order = Order(
            account_id=principal.account_id,
            model=wanted.model,
            inputs=wanted.inputs,
            face="hosting",
            request_id=calls.request_id(request),
            idempotency_id=idempotency_id,
        )
        prediction = await pipeline.submit(order)
        if wanted.wait_seconds:
            prediction = await pipeline.wait(prediction, wanted.wait_seconds)
        return await self._answer(prediction, 200 if prediction.is_terminal else 202)

    async def page(self, request: Request) -> Response:
        """The account's predictions, newest first."""
        principal = await self._enter(request)
        wanted = Filter(model=_text(request, "model"), state=_state(request))
        cursor = _text(request, "cursor") or None
        found, following = await self._services.pipeline.page(
            principal.account_id, wanted, _page_size(request), cursor
        )
        rows = [await self._shown(prediction) for prediction in found]
        return answers.json({"predictions": rows, "next_cursor": following})

    async def show(self, request: Request) -> Response:
        """One prediction."""
        return await self._answer(await self._find(request))

    async def cancel(self, request: Request) -> Response:
        """Cancel what has not ended."""
        principal = await self._enter(request)
        prediction_id = calls.path_value(request, "prediction_id")
        return await self._answer(await self._services.pipeline.cancel(prediction_id, principal.account_id))

    async def events(self, request: Request) -> Response:
        """What happens to one prediction, as it happens."""
        prediction = await self._find(request)
        if "idempotency-key" in request.headers:
            raise errors.BadRequest("A stream cannot be replayed: leave Idempotency-Key out")
        seen = streaming.last_id(request.headers.get("last-event-id"))
        stream = streaming.events(self._services.pipeline, prediction, self._told, seen)
        return StreamingResponse(stream, 200, streaming.HEADERS, "text/event-stream")

    # -- what all of them need ---------------------------------------------------------------------

    async def _enter(self, request: Request) -> Principal:
        principal = await self._services.doors.bearer(request)
        if principal.scope.memory_only:
            raise errors.Forbidden("This key reaches the memory only")
        return principal

    async def _find(self, request: Request) -> Prediction:
        principal = await self._enter(request)
        return await self._services.pipeline.get(
            calls.path_value(request, "prediction_id"), principal.account_id
        )

    async def _answer(self, prediction: Prediction, status: int = 200) -> Response:
        headers = answers.result_headers(prediction) | {"Cache-Control": "no-store"}
        return answers.json(await self._shown(prediction), status, headers)

    async def _shown(self, prediction: Prediction) -> dict[str, Any]:
        position = None
        if prediction.state is State.QUEUED:
            position = await self._services.pipeline.position(prediction)
        return self._told(prediction, position)

    def _told(self, prediction: Prediction, position: int | None = None) -> dict[str, Any]:
        progress = self._services.pipeline.bus.progress(prediction.id)
        return schemas.prediction(prediction, self._services.media_url, progress, position)


def _text(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if len(value) > _MAX_FILTER:
        raise errors.BadRequest(f"{name} is too long")
    return value


def _state(request: Request) -> str:
    value = _text(request, "status")
    if value and value not in _STATES:
        raise errors.BadRequest(f"status must be one of {', '.join(_STATES)}")
    return value


def _page_size(request: Request) -> int:
    text = _text(request, "limit")
    if not text:
        return _PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= _MAX_PAGE):
        raise errors.BadRequest(f"limit must be from 1 to {_MAX_PAGE}")
    return int(text)


def face(services: Services) -> Face:
    """The part of Area E that predictions need."""
    predictions = Predictions(services)
    cancel = {"POST": predictions.cancel, "PUT": predictions.cancel}
    small = services.settings.json_body_bytes
    return Face(
        "hosting",
        answers.coded,
        (
            Route("/api/containers/run", {"POST": predictions.run}, services.settings.inline_body_bytes),
            Route("/api/containers/predictions", {"GET": predictions.page}),
            Route(
                "/api/containers/predictions/{prediction_id}",
                {"GET": predictions.show, "DELETE": predictions.cancel},
                small,
            ),
            Route("/api/containers/predictions/{prediction_id}/cancel", cancel, small),
            Route("/api/containers/predictions/{prediction_id}/events", {"GET": predictions.events}),
        ),
    )
