"""`POST /api/service`: one address for every service, its inputs beside its name."""

from __future__ import annotations

import base64
from typing import Any, Literal, NotRequired, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import chat_services
from sixfold.api.gateway.chat_handler import ChatHandler
from sixfold.api.gateway.openai import chat
from sixfold.api.gateway.services_list import ServiceList
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import ListPriceSchema, list_price_field
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engines import Quality
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.clock import rfc3339
from sixfold.core.database import now
from sixfold.core.gateway.gateway import GatewayReply
from sixfold.core.money import Usd
from sixfold.core.predictions import receipt
from sixfold.core.predictions import repository as work
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.web import bodies, predictions, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import OtherOutputs
from sixfold.web.raw_asgi import raw_request
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

_OWN = frozenset({"service", "async", "stream"})  # what is said of the call, not to the service
_encode = msgspec.json.Encoder().encode


class ServiceResultSchema(ListPriceSchema):
    """The result of a service."""

    id: str
    service: str
    status: Literal["succeeded"]
    output: Any
    outputs: NotRequired[OtherOutputs]
    output_kind: str
    text: NotRequired[str]
    image_url: NotRequired[str]
    images: NotRequired[list[str]]
    engine: str
    quality: Quality
    usage: dict[str, float]
    cost: Usd
    credits_charged: int
    created_at: str


class AcceptedServiceSchema(TypedDict):
    """A service that runs, and where its end is read."""

    id: str
    service: str
    status: predictions.Status
    status_url: str
    created_at: str


class ServiceRoutes:
    """Runs whichever service is named."""

    def __init__(self, services: WebServices, catalogue: ServiceList) -> None:
        self._services = services
        self._catalogue = catalogue
        self._talker = ChatHandler(services, services.gateway, chat.TONGUE)

    async def run(self, request: Request) -> Response:
        """Its answer; 202 with `async`, a stream with `stream`."""
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw)
        name, later, stream = _named(body), _switch(body, "async"), _switch(body, "stream")
        given = {key: value for key, value in body.items() if key not in _OWN}
        talk = name in chat_services.NAMES
        if talk and stream:
            if later:
                raise errors.InvalidInput.of("async", "What is streamed is not answered later: choose one")
            return await self._streamed(request, principal, name, given)
        if stream:
            raise errors.InvalidInput.of(
                "stream", f"{name} has nothing to stream: leave stream out, or use async"
            )

        async def make(idempotency_id: str | None) -> Response:
            if talk and not later:
                return await self._talk(request, principal, name, given, idempotency_id)
            order = await self._order(request, principal, name, given, idempotency_id)
            return await self._made(name, order, later=later)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, responses.error_response), make
        )

    # -- what is made ------------------------------------------------------------------------------

    async def _order(
        self,
        request: Request,
        principal: Principal,
        name: str,
        given: dict[str, Any],
        idempotency_id: str | None,
    ) -> PredictionRequest:
        if not self._catalogue.knows(name) and not name.startswith("space:"):
            try:
                await self._services.pipeline.custom_models.find(name, principal.account_id)
            except errors.NotFound:
                raise _unknown(name) from None
        return PredictionRequest(
            principal=principal,
            model=name,
            inputs=given,
            face="service",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
        )

    async def _made(self, name: str, order: PredictionRequest, *, later: bool) -> Response:
        pipeline = self._services.pipeline
        try:
            prediction = await pipeline.submit(order)
        except errors.UnknownModel:  # of those that a language model is asked for by
            raise
        except errors.NotFound as error:
            raise _unknown(name) from error
        if not later:
            prediction = await pipeline.wait(prediction, self._services.settings.inline_seconds)
        if not prediction.is_terminal:
            return responses.json(begun(name, prediction), 202)
        if prediction.state is PredictionState.CANCELED:
            raise errors.Conflict("The request was canceled")
        if prediction.error_kind == work.UNUSABLE:
            raise errors.InvalidInput.of(self._blamed(name, prediction), prediction.error or "cannot be used")
        if prediction.state is not PredictionState.SUCCEEDED:
            raise errors.EngineFailed(prediction.error or "")
        return responses.json(self._told(name, prediction), headers=responses.result_headers(prediction))

    def _blamed(self, name: str, prediction: Prediction) -> str:
        """The input that an engine could not use: the file that was given, or what has to be given."""
        catalog = self._services.catalog
        inputs = catalog[name].inputs if name in catalog else ()
        required = (each.name for each in inputs if each.required)
        return (*prediction.task.files, *required, name)[0]

    def _told(self, name: str, prediction: Prediction) -> ServiceResultSchema:
        url = self._services.media_url
        others = predictions.outputs(prediction, url)
        told: ServiceResultSchema = {
            "id": prediction.id,
            "service": name,
            "status": "succeeded",
            "output": predictions.output(prediction, url),
            "output_kind": prediction.output_kind,
            "engine": engine_name(prediction.engine),
            "quality": cast("Quality", prediction.quality),
            "usage": {"predict_ms": prediction.stations.run / 1000},
            "cost": money.format_usd(prediction.cost),
            "credits_charged": prediction.credits if prediction.cost else 0,
            **list_price_field(receipt.would_cost(prediction)),
            "created_at": rfc3339(prediction.created_at),
        }
        if others:
            told["outputs"] = others
        files = prediction.output.first.files if prediction.output is not None else ()
        images = [url(file) for file in files if file.content_type.startswith("image/")]
        if prediction.output_kind == "image" and images:
            told["image_url"], told["images"] = images[0], images
        return told

    # -- what is said ------------------------------------------------------------------------------

    async def _said(
        self, principal: Principal, request_id: str, name: str, asked: dict[str, Any], key: str | None
    ) -> GatewayReply:
        """The reply; one that was paid under the same Idempotency-Key, and never heard, is not paid again."""
        relay = self._services.gateway
        with chat_services.named():
            conversation = chat.wanted(_encode(asked)).parse()
        paid = None if key is None else await relay.paid_before(key, request_id)
        if paid is None:
            return await relay.complete_chat(
                principal, request_id, conversation, asked["model"], services=(name,)
            )
        reply = await relay.complete_prepaid(principal.account_id, request_id, conversation, asked["model"])
        return msgspec.structs.replace(reply, cost=paid)

    async def _talk(
        self, request: Request, principal: Principal, name: str, given: dict[str, Any], key: str | None
    ) -> Response:
        asked = await self._conversation(principal, name, given)
        request_id = requests.request_id(request)
        reply = await self._said(principal, request_id, name, asked, key)
        answer = reply.answer
        assert answer is not None  # noqa: S101 - what was asked in no dialect comes back in none
        usage = answer.usage
        told: ServiceResultSchema = {
            "id": request_id,
            "service": name,
            "status": "succeeded",
            "output": answer.text,
            "output_kind": "text",
            "text": answer.text,
            "engine": reply.target,
            "quality": "full",
            "usage": {
                "input_tokens": usage.input,
                "output_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
            },
            "cost": money.format_usd(reply.cost),
            "credits_charged": money.credits_for(reply.cost),
            **list_price_field(reply.list_price),
            "created_at": rfc3339(await self._services.database.read(now())),
        }
        engine = reply.target.encode("ascii", "replace").decode()
        return responses.json(told, headers={"X-Sixfold-Engine": engine, "X-Sixfold-Quality": "full"})

    async def _streamed(
        self, request: Request, principal: Principal, name: str, given: dict[str, Any]
    ) -> Response:
        asked = {**await self._conversation(principal, name, given), "stream": True}
        raw = _encode(asked)
        with chat_services.named():
            call = chat.wanted(raw)
            answer = await self._talker.answer(raw_request(request), principal, call, raw, (name,))
        return answer if isinstance(answer, Response) else answer.response()

    async def _conversation(self, principal: Principal, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The request as a chat completion; raises `InvalidInput`."""
        values = self._services.catalog[name].check(given)
        return chat_services.completion(values, await self._picture(principal, values.get("image_url")))

    async def _picture(self, principal: Principal, text: str | None) -> str:
        """A picture as an address that has its bytes within: a model server is sent to nobody's."""
        if not text:
            return ""
        source = await self._services.media.resolve(principal.tenant, Descriptor("image_url", "image"), text)
        data = base64.b64encode(await self._services.blobs.get(source.blob)).decode()
        return f"data:{source.content_type};base64,{data}"


def _named(body: dict[str, Any]) -> str:
    name = body.get("service")
    if name is None or name == "":
        raise errors.InvalidInput.of("service", "service is required")
    if not isinstance(name, str):
        raise errors.InvalidInput.of("service", "service must be a string")
    return name


def _switch(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise errors.InvalidInput.of(name, f"{name} must be true or false")
    return bool(value)


def begun(name: str, prediction: Prediction) -> AcceptedServiceSchema:
    """What whoever does not wait is told."""
    return {
        "id": prediction.id,
        "service": name,
        "status": predictions.status(prediction),
        "status_url": f"{predictions.PATH}/{prediction.id}",
        "created_at": rfc3339(prediction.created_at),
    }


def build_api(services: WebServices) -> ApiGroup:
    """The one address, and the list of what it can be asked for."""
    catalogue = ServiceList(services)
    service = ServiceRoutes(services, catalogue)
    return ApiGroup(
        "gateway",
        responses.error_response,
        (
            RouteEntry(
                "/api/service", {"POST": service.run}, services.settings.inline_body_bytes, access=rights.RUN
            ),
            RouteEntry("/api/services", {"GET": catalogue.page}, access=rights.PUBLIC),
        ),
    )


def _unknown(name: str) -> errors.UnknownService:
    return errors.UnknownService(f"There is no service {name[:100]}; `GET /api/services` lists them")
