"""Pictures: by a prompt, and by a picture that came with the request.

Source: https://platform.openai.com/docs/api-reference/images.
"""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.openai import image_models, media_jobs, passthrough
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner
from sixfold.api.gateway.openai.passthrough import EVENTS, ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.usage import TokenUsage, Units
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.web import bodies, responses
from sixfold.web.services import WebServices

MODEL, STYLE, CLEANER = "ra2", "style-transfer", "inpaint-cleaner"
FORMATS, RESPONSES = ("png", "jpeg", "webp"), ("url", "b64_json")
_INLINE = ("gpt-image-", "chatgpt-image-")  # these always gave the picture itself
_DRAWN, _MOST_DRAWN = {"low": 600, "medium": 2500}, 8000  # tokens of a picture, by its quality
_SHOWN = 6500  # tokens of a picture that came along
_INPUTS = {"source_image_url": "image", "image": "image", "mask": "mask", "style_prompt": "prompt"}


class ImageSchema(TypedDict, total=False):
    """An image, by its URL or in base64."""

    url: str
    b64_json: str


class ImagesSchema(TypedDict):
    """The images of a request; a model server may leave out their format."""

    created: int
    data: list[ImageSchema]
    output_format: NotRequired[str]
    incomplete: NotRequired[dict[str, Any]]


class ImageRoutes:
    """`POST /v1/images/generations` and `/v1/images/edits`."""

    def __init__(self, services: WebServices, maker: MediaJobRunner, elsewhere: UpstreamPassthrough) -> None:
        self._services = services
        self._maker = maker
        self._elsewhere = elsewhere
        self._names = frozenset(image_models.names(services.catalog))

    def _model(self, name: Any) -> str:
        """The text-to-image model that a client means by a name; raises `UnknownModel`."""
        return name if isinstance(name, str) and name in self._names else media_jobs.ours(MODEL, name)

    async def generate(self, request: Request) -> Response:
        """Pictures of a prompt."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = await bodies.parse(bodies.parse_object, raw)
            if self._elsewhere.makes("images", body.get("model")):
                passed = _passed("images", body, raw)
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            model = self._model(body.get("model"))
            size = image_models.inputs(self._services.catalog, model, body.get("size"))
            inputs = {"prompt": media_jobs.text(body, "prompt"), **size}
            order = media_jobs.asked(request, principal, model, inputs, idempotency_id=idempotency_id)
            return await self._answer(body, order)

        return await self._maker.once(request, work)

    async def edit(self, request: Request) -> Response:
        """A picture repainted; with a mask, what it lets through taken out. It keeps its own size."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            found = await bodies.fields(request)
            if self._elsewhere.makes("edits", found.values.get("model")):
                raw, kind = passthrough.form(found.parts) if found.is_form else (await request.body(), "")
                passed = _passed("edits", found.values, raw, kind, len(found.files) or 1)
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            if not found.is_form:
                raise InvalidRequest("Send the picture as a form: multipart/form-data", param="image")
            if found.values.get("model") not in (STYLE, CLEANER):
                media_jobs.ours(MODEL, found.values.get("model"))
            if sum(part.name == "image[]" for part in found.parts) > 1:
                raise InvalidRequest("image must be one picture", param="image")
            picture = found.files.get("image") or found.files.get("image[]")
            if picture is None:
                raise InvalidRequest("image is required and must be a file", param="image")
            image_models.inputs(self._services.catalog, MODEL, found.values.get("size"))
            prompt = media_jobs.text(found.values, "prompt")
            order = await self._edited(request, principal, picture, found.files.get("mask"), prompt)
            order = dataclasses.replace(order, idempotency_id=idempotency_id)
            return await self._answer(found.values, order)

        return await self._maker.once(request, work)

    async def _edited(
        self, request: Request, principal: Principal, picture: bytes, mask: bytes | None, prompt: str
    ) -> MediaJobRequest:
        held = await self._maker.receive("image", "image", picture)
        if mask is None:
            inputs = {"source_image_url": held.blob, "style_prompt": prompt}
            sources = {"source_image_url": held}
            return media_jobs.asked(request, principal, STYLE, inputs, sources=sources)
        cover = await self._maker.receive("mask", "image", mask)
        inputs = {"image": held.blob, "mask": cover.blob}
        sources = {"image": held, "mask": cover}
        extras = {"mask_by": "transparency"}
        return media_jobs.asked(request, principal, CLEANER, inputs, sources=sources, extras=extras)

    async def _answer(self, values: Mapping[str, Any], order: MediaJobRequest) -> Response:
        """The pictures, where they lie or as base64."""
        media_jobs.refuse_stream(values)
        inline = str(values.get("model") or "").startswith(_INLINE)
        shape = media_jobs.choice(values, "response_format", RESPONSES, "b64_json" if inline else "url")
        kind = media_jobs.choice(values, "output_format", FORMATS, "png")
        media_jobs.choice(values, "background", ("auto", "opaque"), "auto")
        extras = {**order.extras, "format": kind}
        order = dataclasses.replace(order, count=media_jobs.count(values), extras=extras)
        try:
            made = await self._maker.made(order)
        except errors.InvalidInput as error:
            raise _renamed(error) from error
        first = made.kept[0]
        told: ImagesSchema = {
            "created": int(time.time()),
            "data": await self._images(made.kept, shape),
            "output_format": _file(first).content_type.removeprefix("image/"),
        }
        if len(told["data"]) < order.count:
            told["incomplete"] = _incomplete(order.count, len(told["data"]), made.reason)
        return responses.json(told, headers=responses.result_headers(first))

    async def _images(self, made: Sequence[Prediction], shape: str) -> list[ImageSchema]:
        """Each image that can be read; raises `StoreFailed` where none can."""
        told: list[ImageSchema] = []
        for prediction in made:
            try:
                told.append(await self._told(prediction, shape))
            except errors.StoreFailed:  # it was withdrawn and refunded by itself
                if prediction is made[-1] and not told:
                    raise
        return told

    async def _told(self, prediction: Prediction, shape: str) -> ImageSchema:
        if shape == "url":
            return {"url": self._services.media_url(_file(prediction))}
        return {"b64_json": base64.b64encode(await self._maker.data(prediction)).decode()}


def _passed(
    wire: str, values: Mapping[str, Any], raw: bytes, kind: str = "", pictures: int = 0
) -> ForwardedCall:
    """A request for a model server, and about the most that its pictures take there."""
    count = media_jobs.count(values)
    quality = values.get("quality")
    drawn = count * _DRAWN.get(quality if isinstance(quality, str) else "", _MOST_DRAWN)
    shown = pictures * _SHOWN
    said = tokens_of(len(media_jobs.text(values, "prompt")))
    most = TokenUsage(said + shown, drawn, image_in=shown, units=Units(count, image_out=drawn))
    stream = passthrough.is_stream(values)
    told = EVENTS if stream else "application/json"
    return ForwardedCall(wire, MODEL, values["model"], raw, most, told, stream=stream, content_type=kind)


def _file(prediction: Prediction) -> OutputFile:
    assert prediction.output is not None  # noqa: S101 - it succeeded
    return prediction.output.files[0]


def _incomplete(requested: int, returned: int, reason: errors.SixfoldError | None) -> dict[str, Any]:
    """What is missing of a group, and why."""
    why = (reason or errors.StoreFailed()).message
    message = f"{requested - returned} of {requested} images were not made and are not charged: {why}"
    return {"requested": requested, "returned": returned, "message": message}


def _renamed(error: errors.InvalidInput) -> errors.InvalidInput:
    """The refusal in the words of this dialect."""
    problems = [
        errors.Problem(
            _INPUTS.get(each.input, "size" if each.input in ("width", "height") else each.input),
            each.message,
            each.kind,
        )
        for each in error.problems
    ]
    return errors.InvalidInput(problems)
