"""Endpoints for the scripts of run forms: quote, run, events, cancel and live sessions."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core import humanize, money
from sixfold.core.accounts import rights
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.models import Model
from sixfold.core.predictions.events import Event, LogEvent, NodeStateChanged, ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote
from sixfold.core.predictions.states import PredictionState
from sixfold.core.sessions.service import SessionRequest
from sixfold.ui import templating
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import code_samples
from sixfold.ui.predictions.form_uploads import FormUploads
from sixfold.ui.predictions.output_view import OutputView
from sixfold.web import bodies, requests, responses
from sixfold.web.predictions import PredictionSerializer
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_SMALL_BODY_BYTES = 65_536
_SOCKET_PATH = "/ws/containers/sessions"
_OPTIONS = ("hardware", "variant")
_WAIT_SECONDS = 60.0


class RunForm(msgspec.Struct, frozen=True):
    """A parsed run form. `hardware` is None for a fixed price; `wait` requests the result in the response."""

    model: Model
    inputs: dict[str, Any]
    options: dict[str, str]
    hardware: str | None
    extras: dict[str, str]
    wait: bool = False


class RunRoutes:
    """The endpoints of run forms."""

    def __init__(self, services: WebServices, output_view: OutputView) -> None:
        self._services = services
        self._output_view = output_view
        self._serializer = PredictionSerializer(services)

    async def quote(self, request: Request, user: PageUser) -> Response:
        """Return the price and duration of a run, and code samples of the same request."""
        form = await self._parse_form(request, user)
        base = self._services.settings.base_url
        samples = code_samples.build(base, form.model.name, form.inputs, form.options)
        sample_texts = {sample.name: sample.text for sample in samples}
        try:
            prepared = await self._services.predictions.prepare(form.model, form.inputs, charged=True)
            price_quote = self._services.predictions.quote(form.model, prepared, hardware=form.hardware)
        except (errors.InvalidInput, errors.EngineUnavailable) as error:
            # An incomplete form cannot be priced yet.
            return responses.json({"problem": error.message, "samples": sample_texts})
        return responses.json({**await self._price(form.model, price_quote), "samples": sample_texts})

    async def _price(self, model: Model, price_quote: PriceQuote) -> dict[str, Any]:
        """Return the price and duration; prices by time are estimated from earlier runs, if there are any."""
        queued = await self._services.predictions.count_waiting(price_quote.engine.name)
        engine = price_quote.engine.name
        average = self._services.durations.average(model.name, engine)
        has_sample = self._services.durations.has_sample(model.name, engine)
        seconds = self._serializer.until_end(model.name, engine, queued)
        list_price, charged = price_quote.price.list_micros, price_quote.price.micros
        amount = charged if list_price is None else list_price
        cost = f"{money.short_usd(amount)} USD"
        if price_quote.hardware is not None:
            # A charge is rounded up to the micro-dollar.
            micros = math.ceil(amount * average.run / self._services.settings.run_limit_seconds)
            cost = f"about {money.short_usd(micros)} USD" if has_sample else "charged by time"
        elif amount and price_quote.price.meter != "fixed":
            cost = f"at most {cost}"
        if list_price is not None:
            cost = f"{money.short_usd(charged)} USD (list price: {cost})"
        return {
            "cost": cost,
            "took": f"about {humanize.roughly(seconds)}" if has_sample else "duration not yet known",
            "seconds": seconds if has_sample else None,
            "engine": engine_name(engine),
            "quality": price_quote.quality,
        }

    async def run(self, request: Request, user: PageUser) -> Response:
        """Start a run and return its ID; with `wait`, wait up to a minute and return its record."""
        form = await self._parse_form(request, user)
        try:
            prediction = await self.submit(request, user, form)
        except errors.InsufficientCredits as error:
            return self._without_credit(error, user, await self._needed(form))
        if not form.wait:
            return responses.json({"id": prediction.id}, 202)
        prediction = await self._services.predictions.wait(prediction, _WAIT_SECONDS)
        if prediction.is_terminal and prediction.state is not PredictionState.SUCCEEDED:
            raise errors.EngineFailed(prediction.error or f"The run is {prediction.state}")
        return responses.json(await self._serializer.serialize_with_position(prediction))

    async def submit(self, request: Request, user: PageUser, form: RunForm) -> Prediction:
        """Start the run of a form."""
        prediction_request = PredictionRequest(
            principal=user.principal,
            model=form.model.name,
            inputs=form.inputs,
            face="pages",
            request_id=requests.request_id(request),
            hardware=form.hardware,
            extras=form.extras,
        )
        return await self._services.predictions.submit(prediction_request)

    async def _needed(self, form: RunForm) -> str:
        prepared = await self._services.predictions.prepare(form.model, form.inputs, charged=True)
        quote = self._services.predictions.quote(form.model, prepared, hardware=form.hardware)
        return f"this run needs {money.format_usd(quote.price.micros)} USD"

    def _without_credit(self, error: errors.SixfoldError, user: PageUser, needed: str) -> Response:
        """Return the error with the balance, and where the user can add credit."""
        account = user.session.account if user.session is not None else None
        if account is None:
            raise error
        balance = money.format_usd(account.posted - account.held)
        action = templating.GET_CREDIT
        text = f"You have {balance} USD, and {needed}."
        return responses.json({"error": text, "code": error.code, "action": action}, error.status)

    async def events(self, request: Request, user: PageUser) -> Response:
        """Stream the events of a prediction, with the HTML of its result."""
        prediction = await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), user.tenant
        )
        self._services.admission.event_stream(request, user.account_id)
        return StreamingResponse(
            self._event_stream(prediction, user.account_id), 200, _STREAM, "text/event-stream"
        )

    async def _event_stream(self, prediction: Prediction, account_id: str) -> AsyncIterator[bytes]:
        is_first = True
        async for event in self._services.predictions.events(prediction):
            for each in (event,) if not is_first else (*self._nodes(prediction.id), event):
                name, data = await self._server_event(each)
                if data.get("over"):
                    data = {**data, "balance": await self._output_view.balance(account_id)}
                yield b"event: %s\ndata: %s\n\n" % (name, msgspec.json.encode(data))
            is_first = False

    def _nodes(self, prediction_id: str) -> tuple[NodeStateChanged, ...]:
        """Return earlier node events: fast nodes may have finished before the stream started."""
        history = self._services.event_histories.get(prediction_id)
        events = () if history is None else history.events
        return tuple(event for _, event in events if isinstance(event, NodeStateChanged))

    async def _server_event(self, event: Event) -> tuple[bytes, Mapping[str, Any]]:
        match event:
            case StateChanged(prediction):
                position = await self._serializer.position(prediction)
                return b"status", {
                    "status": str(prediction.state),
                    "over": prediction.is_terminal,
                    "position": position,
                    "html": await self._output_view.fragment(prediction),
                }
            case ProgressEvent(fraction):
                return b"progress", {"progress": fraction}
            case LogEvent(line):
                return b"log", {"line": line}
            case NodeStateChanged():
                return b"node", event.record

    async def cancel(self, request: Request, user: PageUser) -> Response:
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.cancel(prediction_id, user.tenant)
        return responses.json({"status": str(prediction.state)})

    async def session(self, request: Request, user: PageUser) -> Response:
        """Start a live session and return its websocket URL, which contains the token."""
        body = bodies.parse_object(await request.body())
        prompt = body.get("prompt")
        inputs = {"prompt": prompt} if prompt else {}
        session_request = SessionRequest(
            user.principal, requests.request_id(request), str(body.get("model", "")), inputs
        )
        try:
            live_session = await self._services.live_sessions.create(session_request)
        except errors.InsufficientCredits as error:
            return self._without_credit(error, user, "a session needs more to start")
        path = f"{_SOCKET_PATH}/{live_session.session.id}?token={quote(live_session.token)}"
        resume = f"{_SOCKET_PATH}/{live_session.session.id}?token={quote(live_session.resume_token)}"
        return responses.json({"path": path, "resume": resume, "id": live_session.session.id}, 201)

    # -- helpers ---------------------------------------------------------------------------------

    async def _parse_form(self, request: Request, user: PageUser) -> RunForm:
        body = bodies.parse_object(await request.body())
        inputs_object: object = body.get("input", {})
        if not isinstance(inputs_object, dict):
            raise errors.BadRequest("input must be an object")
        options = {name: body[name] for name in _OPTIONS if body.get(name)}
        if not all(isinstance(value, str) for value in options.values()):
            raise errors.BadRequest("hardware and variant must be strings")
        form = await self.find(user, str(body.get("model", "")), options)
        return replace(form, inputs=cast("dict[str, Any]", inputs_object), wait=body.get("wait") is True)

    async def find(self, user: PageUser, name: str, options: dict[str, str]) -> RunForm:
        """Return the form of a model without inputs; raises `NotFound` or `InvalidInput`."""
        model = await self._services.predictions.find(name, user.account_id)
        if model.name not in self._services.templates:
            return RunForm(model, {}, {}, None, {})
        rate = self._services.templates.hardware_rate(model.name, options.get("hardware"))
        variant = self._services.templates[model.name].variant(options.get("variant"))
        extras = {} if variant is None else {"variant": variant}
        return RunForm(model, {}, options, rate.hardware, extras)


def routes(services: WebServices, endpoints: RunRoutes, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes below `/pages/`, except that of the start page."""
    script = auth.script
    inputs = services.settings.json_body_bytes
    return (
        RouteEntry("/pages/quote", {"POST": script(endpoints.quote)}, inputs, access=rights.RUN),
        RouteEntry("/pages/run", {"POST": script(endpoints.run)}, inputs, access=rights.RUN),
        RouteEntry(
            "/pages/uploads",
            {"POST": script(FormUploads(services).upload)},
            services.settings.upload_body_bytes,
            access=rights.RUN,
        ),
        RouteEntry(
            "/pages/sessions", {"POST": script(endpoints.session)}, _SMALL_BODY_BYTES, access=rights.RUN
        ),
        RouteEntry(
            "/pages/predictions/{prediction_id}/events", {"GET": script(endpoints.events)}, access=rights.RUN
        ),
        RouteEntry(
            "/pages/predictions/{prediction_id}/cancel",
            {"POST": script(endpoints.cancel)},
            _SMALL_BODY_BYTES,
            access=rights.RUN,
        ),
    )
