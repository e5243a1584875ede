"""Endpoints for the scripts of run forms: quote, upload, run, events, cancel and live sessions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core import humanize, money
from sixfold.core.accounts import rights
from sixfold.core.catalog import metering
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.models import Model
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions.events import Event, LogEvent, NodeStateChanged, ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote
from sixfold.core.sessions.service import SessionRequest
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import code_samples
from sixfold.ui.predictions.output_view import OutputView
from sixfold.web import bodies, requests, responses, uploads
from sixfold.web.predictions import PredictionSerializer
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_SMALL = 65_536
_SOCKET = "/ws/containers/sessions"
_TERMS = ("hardware", "variant")


@dataclass(frozen=True, slots=True)
class RunForm:
    """A parsed run form. `terms` are the chosen options; `hardware` is None for a fixed price."""

    model: Model
    inputs: dict[str, Any]
    terms: dict[str, str]
    hardware: str | None
    extras: dict[str, str]


class RunRoutes:
    """The endpoints of run forms."""

    def __init__(self, services: WebServices, showing: OutputView) -> None:
        self._services = services
        self._showing = showing
        self._teller = PredictionSerializer(services)
        self._folder = services.settings.data_dir / "tmp"

    async def quote(self, request: Request, user: PageUser) -> Response:
        """Return the price and duration of a run, and code samples of the same request."""
        wanted = await self._wanted(request, user)
        base = self._services.settings.base_url
        told = code_samples.of(base, wanted.model.name, wanted.inputs, wanted.terms)
        calls_as_text = {sample.name: sample.text for sample in told}
        try:
            await self._services.predictions.prepare(wanted.model, wanted.inputs, charged=True)
            quoted = self._services.predictions.quote(wanted.model, wanted.inputs, hardware=wanted.hardware)
        except (errors.InvalidInput, errors.EngineUnavailable) as error:
            # An incomplete form has no price yet.
            return responses.json({"problem": error.message, "samples": calls_as_text})
        return responses.json({**await self._price(wanted.model, quoted), "samples": calls_as_text})

    async def _price(self, model: Model, quoted: PriceQuote) -> dict[str, Any]:
        """Return the price and duration; prices by time are estimated from earlier runs, if there are any."""
        ahead = await self._services.predictions.count_waiting(quoted.engine.name)
        times = self._services.durations
        usual, known = (
            times.average(model.name, quoted.engine.name),
            times.has_sample(model.name, quoted.engine.name),
        )
        seconds = self._teller.until_end(model.name, quoted.engine.name, ahead)
        listed, most = quoted.price.list_micros, quoted.price.micros
        amount = most if listed is None else listed
        cost = f"{money.format_usd(amount)} USD"
        if model.price == metering.CONTAINER_TIME:
            micros = round(amount * usual.run / self._services.settings.run_limit_seconds)
            cost = f"about {money.format_usd(micros)} USD" if known else "paid by time"
        if listed is not None:
            cost = f"{money.format_usd(most)} USD (list price: {cost})"
        return {
            "cost": cost,
            "took": f"about {humanize.roughly(seconds)}" if known else "not timed here yet",
            "engine": engine_name(quoted.engine.name),
            "quality": quoted.quality,
        }

    async def run(self, request: Request, user: PageUser) -> Response:
        """Start a run and return the ID of its prediction."""
        wanted = await self._wanted(request, user)
        order = PredictionRequest(
            principal=user.principal,
            model=wanted.model.name,
            inputs=wanted.inputs,
            face="pages",
            request_id=requests.request_id(request),
            hardware=wanted.hardware,
            extras=wanted.extras,
        )
        prediction = await self._services.predictions.submit(order)
        return responses.json({"id": prediction.id}, 202)

    async def upload(self, request: Request, user: PageUser) -> Response:
        """Store a file of a form and return its URL."""
        path = await asyncio.to_thread(self._new_path)
        try:
            received = await uploads.receive(request, path)
            kept = await self._services.media.upload(user.tenant, path, received.content_type)
        except OSError as error:
            raise errors.StoreFailed from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        url = f"{self._services.settings.base_url}{MEDIA_PATH}{kept.name}"
        return responses.json({"url": url, "media_type": kept.content_type, "bytes": kept.size}, 201)

    async def events(self, request: Request, user: PageUser) -> Response:
        """Stream the events of a prediction, with the HTML of its result."""
        found = await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), user.tenant
        )
        self._services.admission.event_stream(request, user.account_id)
        return StreamingResponse(self._frames(found), 200, _STREAM, "text/event-stream")

    async def _frames(self, prediction: Prediction) -> AsyncIterator[bytes]:
        told_before = False
        async for event in self._services.predictions.events(prediction):
            for each in (event,) if told_before else (*self._nodes(prediction.id), event):
                name, told = await self._told(each)
                yield b"event: %s\ndata: %s\n\n" % (name, msgspec.json.encode(told))
            told_before = True

    def _nodes(self, prediction_id: str) -> tuple[NodeStateChanged, ...]:
        """Return earlier node events: fast nodes may have finished before the stream started."""
        history = self._services.event_histories.get(prediction_id)
        events = () if history is None else history.events
        return tuple(event for _, event in events if isinstance(event, NodeStateChanged))

    async def _told(self, event: Event) -> tuple[bytes, Mapping[str, Any]]:
        match event:
            case StateChanged(prediction):
                position = await self._teller.position(prediction)
                return b"status", {
                    "status": str(prediction.state),
                    "over": prediction.is_terminal,
                    "position": position,
                    "html": self._showing.part(prediction),
                }
            case ProgressEvent(fraction):
                return b"progress", {"progress": fraction}
            case LogEvent(line):
                return b"log", {"line": line}
            case NodeStateChanged():
                return b"node", event.record

    async def cancel(self, request: Request, user: PageUser) -> Response:
        """Cancel a prediction."""
        prediction_id = requests.path_value(request, "prediction_id")
        found = await self._services.predictions.cancel(prediction_id, user.tenant)
        return responses.json({"status": str(found.state)})

    async def session(self, request: Request, user: PageUser) -> Response:
        """Start a live session and return its websocket URL, which contains the token."""
        body = bodies.parse_object(await request.body())
        prompt = body.get("prompt")
        inputs = {"prompt": prompt} if prompt else {}
        wish = SessionRequest(
            user.principal, requests.request_id(request), str(body.get("model", "")), inputs
        )
        opened = await self._services.live_sessions.create(wish)
        path = f"{_SOCKET}/{opened.session.id}?token={quote(opened.token)}"
        return responses.json({"path": path, "id": opened.session.id}, 201)

    # -- helpers ---------------------------------------------------------------------------------

    async def _wanted(self, request: Request, user: PageUser) -> RunForm:
        body = bodies.parse_object(await request.body())
        given: object = body.get("input", {})
        if not isinstance(given, dict):
            raise errors.BadRequest("input must be an object")
        terms = {name: body[name] for name in _TERMS if body.get(name)}
        if not all(isinstance(value, str) for value in terms.values()):
            raise errors.BadRequest("hardware and variant must be strings")
        model = await self._services.predictions.find(str(body.get("model", "")), user.account_id)
        inputs = cast("dict[str, Any]", given)
        if model.name not in self._services.templates:
            return RunForm(model, inputs, {}, None, {})
        hire = self._services.templates.hardware_rate(model.name, terms.get("hardware"))
        variant = self._services.templates[model.name].variant(terms.get("variant"))
        extras = {} if variant is None else {"variant": variant}
        return RunForm(model, inputs, terms, hire.hardware, extras)

    def _new_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"upload-{secrets.token_hex(16)}"


def routes(services: WebServices, showing: OutputView, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes below `/pages/`, except that of the start page."""
    running, part = RunRoutes(services, showing), auth.script
    inputs = services.settings.json_body_bytes
    return (
        RouteEntry("/pages/quote", {"POST": part(running.quote)}, inputs, access=rights.RUN),
        RouteEntry("/pages/run", {"POST": part(running.run)}, inputs, access=rights.RUN),
        RouteEntry(
            "/pages/uploads",
            {"POST": part(running.upload)},
            services.settings.upload_body_bytes,
            access=rights.RUN,
        ),
        RouteEntry("/pages/sessions", {"POST": part(running.session)}, _SMALL, access=rights.RUN),
        RouteEntry(
            "/pages/predictions/{prediction_id}/events", {"GET": part(running.events)}, access=rights.RUN
        ),
        RouteEntry(
            "/pages/predictions/{prediction_id}/cancel",
            {"POST": part(running.cancel)},
            _SMALL,
            access=rights.RUN,
        ),
    )
