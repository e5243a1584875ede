"""`POST /api/service`: every service at one URL, with the inputs beside the service name in the body."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors, near_names
from sixfold.api.gateway import chat_services
from sixfold.api.gateway.chat_handler import ChatHandler
from sixfold.api.gateway.openai import chat
from sixfold.api.gateway.services_list import ServiceList
from sixfold.core import documents, money
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import ListPriceSchema, list_price_field
from sixfold.core.catalog import unknown_names
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engines import Quality
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.clock import rfc3339
from sixfold.core.concurrency import loaded_objects
from sixfold.core.database import now
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import GatewayReply
from sixfold.core.money import Usd
from sixfold.core.predictions import receipt
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import FileChecks, PredictionRequest
from sixfold.web import bodies, predictions, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import OtherOutputs, failure_of
from sixfold.web.raw_asgi import raw_request
from sixfold.web.responses import IgnoredInputsSchema, ignored_inputs_field
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

# Fields of the call that are not inputs of the service.
_CALL_FIELDS = frozenset({"service", "async", "stream"})
_encode = msgspec.json.Encoder().encode


class ServiceResultSchema(ListPriceSchema, IgnoredInputsSchema):
    """The result of a service."""

    id: str
    service: str
    status: Literal["succeeded"]
    output: Any
    outputs: NotRequired[OtherOutputs]
    output_kind: str
    text: NotRequired[str]
    segments: NotRequired[list[Any]]
    image_url: NotRequired[str]
    images: NotRequired[list[str]]
    engine: str
    quality: Quality
    understood: list[str]
    ignored: list[str]
    usage: dict[str, float]
    cost: Usd
    credits_charged: int
    created_at: str


class AcceptedServiceSchema(IgnoredInputsSchema):
    """A service that is running, with the URLs of its prediction."""

    id: str
    prediction_id: str
    service: str
    status: predictions.Status
    status_url: str
    urls: predictions.PredictionUrlsSchema
    created_at: str


class ServiceRoutes(ServiceHandlers):
    """Runs services by name."""

    def __init__(self, services: WebServices, service_list: ServiceList) -> None:
        super().__init__(services)
        self._service_list = service_list
        self._chat_handler = ChatHandler(services, services.gateway, chat.DIALECT)

    async def run(self, request: Request) -> Response:
        """Run a service and return its result, or 202 if `async` is set, or a stream if `stream` is set."""
        principal = await self._enter(request)
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw)
        name, is_async, stream = _service_name(body), _flag(body, "async"), _flag(body, "stream")
        inputs = {key: value for key, value in body.items() if key not in _CALL_FIELDS}
        is_chat = name in chat_services.NAMES
        if is_chat and stream:
            if is_async:
                raise errors.InvalidInput.of("async", "async and stream cannot be combined")
            return await self._stream_chat(request, principal, name, inputs)
        if stream:
            raise errors.InvalidInput.of("stream", f"{name} cannot be streamed: omit stream or use async")

        async def make(idempotency_id: str | None) -> Response:
            if is_chat and not is_async:
                return await self._run_chat(request, principal, name, inputs, idempotency_id)
            job = await self._job_request(request, principal, name, inputs, idempotency_id)
            return await self._run_job(name, job, is_async=is_async)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, responses.error_response), make
        )

    async def _job_request(
        self,
        request: Request,
        principal: Principal,
        name: str,
        inputs: dict[str, Any],
        idempotency_id: str | None,
    ) -> PredictionRequest:
        if not self._service_list.knows(name) and not name.startswith("space:"):
            try:
                await self._services.predictions.custom_models.find(name, principal.account_id)
            except errors.NotFound:
                raise self._unknown_service(name) from None
        return PredictionRequest(
            principal=principal,
            model=name,
            inputs=inputs,
            face="service",
            request_id=requests.request_id(request),
            idempotency_id=idempotency_id,
        )

    async def _run_job(self, name: str, job: PredictionRequest, *, is_async: bool) -> Response:
        service = self._services.predictions
        try:
            prediction = await service.submit(job)
        except errors.UnknownModel:
            # The field `model` names a model of a model server, not the service.
            raise
        except errors.NotFound as error:
            raise self._unknown_service(name) from error
        if not is_async:
            prediction = await service.wait(prediction, self._services.settings.inline_seconds)
        if not prediction.is_terminal:
            headers = responses.ignored_inputs_header(prediction.ignored_inputs)
            return responses.json(accepted_response(name, prediction), 202, headers)
        failure = failure_of(
            prediction,
            lambda: errors.InvalidInput.of(
                self._unusable_input(name, prediction), prediction.error or "cannot be used"
            ),
            errors.EngineFailed(prediction.error or ""),
        )
        if failure is not None:
            raise failure
        return responses.json(self._result(name, prediction), headers=responses.result_headers(prediction))

    def _unknown_service(self, name: str) -> errors.UnknownService:
        near = near_names.question(name, self._service_list.names(), "`GET /api/services` lists the services")
        return errors.UnknownService(f"The service {name[:100]} was not found; {near}")

    def _unusable_input(self, name: str, prediction: Prediction) -> str:
        """Return the name of the input to report as unusable: a file input, or else a required one."""
        catalog = self._services.catalog
        inputs = catalog[name].inputs if name in catalog else ()
        required = (descriptor.name for descriptor in inputs if descriptor.required)
        return (*prediction.task.files, *required, name)[0]

    def _result(self, name: str, prediction: Prediction) -> ServiceResultSchema:
        url = self._services.media_url
        named_outputs = predictions.outputs(prediction, url)
        result: ServiceResultSchema = {
            "id": prediction.id,
            "service": name,
            "status": "succeeded",
            "output": predictions.output(prediction, url),
            "output_kind": prediction.output_kind,
            "engine": engine_name(prediction.engine),
            "quality": cast("Quality", prediction.quality),
            "understood": list(prediction.words.understood),
            "ignored": list(prediction.words.ignored),
            **ignored_inputs_field(name, prediction.ignored_inputs),
            "usage": {"predict_ms": prediction.durations.run / 1000},
            "cost": money.format_usd(prediction.cost),
            "credits_charged": prediction.credits if prediction.cost else 0,
            **list_price_field(receipt.would_cost(prediction)),
            "created_at": rfc3339(prediction.created_at),
        }
        if named_outputs:
            result["outputs"] = named_outputs
        text, segments = text_of(result["output"]), _segments_of(result["output"])
        if text is not None:
            result["text"] = text
        if segments is not None:
            result["segments"] = segments
        files = prediction.output.first.files if prediction.output is not None else ()
        images = [url(file) for file in files if file.content_type.startswith("image/")]
        if prediction.output_kind == "image" and images:
            result["image_url"], result["images"] = images[0], images
        return result

    async def _complete(
        self, principal: Principal, request_id: str, name: str, body: dict[str, Any], key: str | None
    ) -> GatewayReply:
        """Return the reply; a reply already charged under the same Idempotency-Key is not charged again."""
        gateway = self._services.gateway
        with chat_services.input_errors():
            conversation = await bodies.parse(_conversation, _encode(body))
        complete = functools.partial(
            gateway.complete_chat, principal, request_id, conversation, body["model"], services=(name,)
        )
        if key is None:
            return await complete()
        once = await gateway_idempotency.once_id(key, _encode(body))
        paid_cost = await gateway.paid_before(once, request_id)
        async with gateway_idempotency.settled_on_error(self._services.database, once):
            if paid_cost is None:
                return await complete()
            reply = await gateway.complete_prepaid(principal, request_id, conversation, body["model"])
        return msgspec.structs.replace(reply, cost=paid_cost)

    async def _run_chat(
        self, request: Request, principal: Principal, name: str, inputs: dict[str, Any], key: str | None
    ) -> Response:
        body = await self._chat_body(principal, name, inputs)
        request_id = requests.request_id(request)
        reply = await self._complete(principal, request_id, name, body, key)
        ignored = self._ignored_inputs(name, inputs)
        answer = reply.answer
        assert answer is not None  # noqa: S101 - a request without a dialect gets a response without one
        usage = answer.usage
        result: ServiceResultSchema = {
            "id": request_id,
            "service": name,
            "status": "succeeded",
            "output": answer.text,
            "output_kind": "text",
            "text": answer.text,
            "engine": reply.target,
            "quality": "full",
            "understood": [],
            "ignored": [],
            **ignored_inputs_field(name, ignored),
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
        headers = {"X-Sixfold-Engine": engine, "X-Sixfold-Quality": "full"}
        return responses.json(result, headers=headers | responses.ignored_inputs_header(ignored))

    async def _stream_chat(
        self, request: Request, principal: Principal, name: str, inputs: dict[str, Any]
    ) -> Response:
        body = {**await self._chat_body(principal, name, inputs), "stream": True}
        raw = _encode(body)
        with chat_services.input_errors():
            response = await self._chat_handler.answer(
                raw_request(request), principal, await bodies.parse(chat.parse_call, raw), raw, (name,)
            )
        if not isinstance(response, Response):
            response = response.response()
        response.headers.update(responses.ignored_inputs_header(self._ignored_inputs(name, inputs)))
        return response

    def _ignored_inputs(self, name: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        return unknown_names.ignored_inputs(self._services.catalog[name].inputs, inputs)

    async def _chat_body(self, principal: Principal, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a chat completion; raises `InvalidInput`."""
        model = self._services.catalog[name]
        try:
            values = model.check(inputs)
        except errors.InvalidInput as invalid:
            checks = FileChecks(self._services.media)
            raise await checks.complete(invalid, principal.tenant, model, inputs) from invalid
        if problems := model.invalid_addresses(values, ()):
            raise errors.InvalidInput(problems)
        return chat_services.completion(values, await self._inline_image(principal, values.get("image_url")))

    async def _inline_image(self, principal: Principal, text: str | None) -> str:
        """Return an image as a data URI, so that model servers do not have to fetch a URL."""
        if not text:
            return ""
        source = await self._services.media.resolve(principal.tenant, Descriptor("image_url", "image"), text)
        await loaded_objects.reserve(source.size, loaded_objects.INLINED_COPIES)
        data = await self._services.blobs.get(source.blob)
        encoded = await asyncio.to_thread(documents.to_base64, data)
        return f"data:{source.content_type};base64,{encoded}"


def text_of(output: Any) -> str | None:
    """Return the text of an output: the output itself, or its field `text`."""
    text = cast("dict[str, Any]", output).get("text") if isinstance(output, dict) else output
    return text if isinstance(text, str) else None


def _segments_of(output: Any) -> list[Any] | None:
    segments = cast("dict[str, Any]", output).get("segments") if isinstance(output, dict) else None
    return cast("list[Any]", segments) if isinstance(segments, list) else None


def _conversation(raw: bytes) -> ChatRequest:
    return chat.parse_call(raw).parse()


def _service_name(body: dict[str, Any]) -> str:
    name = body.get("service")
    if name is None or name == "":
        raise errors.InvalidInput.of("service", "service is required")
    if not isinstance(name, str):
        raise errors.InvalidInput.of("service", "service must be a string")
    return name


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise errors.InvalidInput.of(name, f"{name} must be true or false")
    return bool(value)


def accepted_response(name: str, prediction: Prediction) -> AcceptedServiceSchema:
    """Return the response to a request that does not wait for the result."""
    urls = predictions.urls(prediction)
    return {
        "id": prediction.id,
        "prediction_id": prediction.id,
        "service": name,
        "status": predictions.status(prediction),
        **ignored_inputs_field(name, prediction.ignored_inputs),
        "status_url": urls["get"],
        "urls": urls,
        "created_at": rfc3339(prediction.created_at),
    }


def build_api(services: WebServices) -> ApiGroup:
    """Return the routes `/api/service` and `/api/services`."""
    service_list = ServiceList(services)
    service = ServiceRoutes(services, service_list)
    return ApiGroup(
        "gateway",
        responses.error_response,
        (
            RouteEntry(
                "/api/service", {"POST": service.run}, services.settings.inline_body_bytes, access=rights.RUN
            ),
            RouteEntry("/api/services", {"GET": service_list.page}, access=rights.PUBLIC),
        ),
    )
