"""OpenAI's images API: generate images from a prompt, edit uploaded images.

Source: https://platform.openai.com/docs/api-reference/images.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import check_replay
from sixfold.api.gateway.openai import media_jobs, partial_results, passthrough
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.images import inline_images, sizes
from sixfold.api.gateway.openai.images.cutouts import ImageCutouts
from sixfold.api.gateway.openai.images.inline_images import InlineImages
from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner, Successes
from sixfold.api.gateway.openai.partial_results import CompleteResult
from sixfold.api.gateway.openai.passthrough import EVENTS, ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog import unknown_names
from sixfold.core.catalog.engines import MORE_IMAGES
from sixfold.core.catalog.prompt_words import MAX_WORDS, NO_WORDS, PromptWords
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.pricing.usage import TokenUsage, Units
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.events import PreviewCallback
from sixfold.core.predictions.models import Prediction
from sixfold.web import bodies, responses
from sixfold.web.idempotency import BATCH_LINE, UncachedStream
from sixfold.web.services import WebServices

MODEL, STYLE, CLEANER, FILL = "ra2", "style-transfer", "inpaint-cleaner", "image-fill"
FORMATS, RESPONSES = ("png", "jpeg", "webp"), ("url", "b64_json")
TRANSPARENT = "transparent"
MAX_PARTIAL_IMAGES = 3
# The bytes of images that a line of a batch can have in base64.
_MAX_LINE_BYTES = 64 * 2**20
_PNG = b"\x89PNG"
BACKGROUNDS = ("auto", "opaque", TRANSPARENT)
# OpenAI's models with these prefixes always return base64.
_BASE64_MODELS = ("gpt-image-", "chatgpt-image-")
# Estimated tokens of a generated image by quality, and of an uploaded one.
_GENERATED_TOKENS, _MAX_GENERATED_TOKENS = {"low": 600, "medium": 2500}, 8000
_UPLOAD_TOKENS = 6500
_INPUT_NAMES = {"source_image_url": "image", "image": "image", "mask": "mask", "style_prompt": "prompt"}


class ImageSchema(TypedDict, total=False):
    """An image, by its URL or in base64."""

    url: str
    b64_json: str


class ImagesSchema(TypedDict):
    """The images of a request; a model server may omit their format."""

    created: int
    data: list[ImageSchema]
    output_format: NotRequired[str]
    # The words of the prompt that a preview engine has painted, and those that it has not.
    understood: NotRequired[list[str]]
    ignored: NotRequired[list[str]]
    incomplete: NotRequired[dict[str, Any]]


class ImageRoutes:
    """`POST /v1/images/generations` and `/v1/images/edits`."""

    def __init__(
        self, services: WebServices, runner: MediaJobRunner, forwarding: UpstreamPassthrough
    ) -> None:
        self._services = services
        self._runner = runner
        self._forwarding = forwarding
        self._cutouts = ImageCutouts(services, runner)
        self._inline = InlineImages(runner)

    def _model(self, name: Any) -> str:
        """Return the text-to-image model with a name; raises `UnknownModel`."""
        catalog = self._services.catalog
        if sizes.is_name(catalog, name):
            return name
        try:
            return media_jobs.resolve_model(MODEL, name)
        except errors.UnknownModel as error:
            # Suggest models that were found on this machine.
            if near := unknown_names.similar_models(name, catalog.discovered):
                raise errors.UnknownModel(f"{error.message}, or {near}") from error
            raise

    async def generate(self, request: Request) -> Response:
        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = await bodies.parse(bodies.parse_object, raw)
            if self._forwarding.serves("images", body.get("model")):
                forwarded_call = _forwarded_call("images", body, raw)
                return await self._forwarding.respond(request, principal, forwarded_call, idempotency_id)
            model = self._model(body.get("model"))
            size = sizes.inputs(self._services.catalog, model, body.get("size"))
            own_inputs = sizes.own_inputs(self._services.catalog, model, body)
            inputs = {"prompt": media_jobs.text(body, "prompt"), **own_inputs, **size}
            job = media_jobs.job_request(request, principal, model, inputs, idempotency_id=idempotency_id)
            return await self._respond(request, body, job, "image_generation")

        return await self._runner.run_once(request, work)

    async def edit(self, request: Request) -> Response:
        """Restyle an image, or fill or erase the area of a mask; the size of the image is unchanged."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            fields = await bodies.fields(request)
            if self._forwarding.serves("edits", fields.values.get("model")):
                raw = await request.body()
                raw, content_type = (
                    await PARSER.run_large(len(raw), passthrough.form, fields.parts)
                    if fields.is_form
                    else (raw, "")
                )
                forwarded_call = _forwarded_call("edits", fields.values, raw, content_type, _uploads(fields))
                # The parts are a copy of the body.
                del fields
                return await self._forwarding.respond(request, principal, forwarded_call, idempotency_id)
            if not fields.is_form:
                raise InvalidRequest("The image must be sent as multipart/form-data", param="image")
            if fields.values.get("model") not in (STYLE, CLEANER, FILL):
                media_jobs.resolve_model(MODEL, fields.values.get("model"))
            values = fields.values
            sizes.inputs(self._services.catalog, MODEL, values.get("size"))
            job = await self._edit_job(request, principal, _images_of(fields), fields)
            # The images are stored, and a run may take minutes.
            del fields
            job = msgspec.structs.replace(job, idempotency_id=idempotency_id)
            return await self._respond(request, values, job, "image_edit")

        return await self._runner.run_once(request, work)

    async def _edit_job(
        self,
        request: Request,
        principal: Principal,
        images: Sequence[bytes | memoryview],
        fields: bodies.BodyFields,
    ) -> MediaJobRequest:
        prompt, mask = media_jobs.text(fields.values, "prompt"), fields.files.get("mask")
        model = STYLE if mask is None else self._masked_model(principal, fields.values.get("model"))
        if mask is None and fields.values.get("model") in (CLEANER, FILL):
            raise InvalidRequest("mask is required and must be a file", param="mask")
        if mask is not None and len(images) > 1:
            message = f"image must be one file if mask is sent to a model of this server (got {len(images)})"
            raise InvalidRequest(message, param="image")
        source, *more = [await self._runner.receive("image", "image", image) for image in images]
        if mask is None:
            inputs = {"source_image_url": source.blob, "style_prompt": prompt}
            sources = {"source_image_url": source}
            # Engines that accept a single image combine several into a sheet.
            sources |= {f"{MORE_IMAGES}{number:03}": each for number, each in enumerate(more)}
            return media_jobs.job_request(request, principal, model, inputs, sources=sources)
        mask_source = await self._runner.receive("mask", "image", mask)
        inputs = {"image": source.blob, "mask": mask_source.blob}
        if model == FILL:
            inputs["prompt"] = prompt
        sources = {"image": source, "mask": mask_source}
        extras = {"mask_by": "transparency"}
        return media_jobs.job_request(request, principal, model, inputs, sources=sources, extras=extras)

    def _masked_model(self, principal: Principal, name: Any) -> str:
        """Return the model for a mask: the requested one, or else the one that can use the prompt here."""
        if name in (CLEANER, FILL):
            return name
        try:
            principal.permit(FILL)
            self._services.catalog[FILL].choose({}, self._services.predictions.terms)
        except (errors.Forbidden, errors.EngineUnavailable):
            return CLEANER
        return FILL

    async def _respond(
        self, request: Request, values: Mapping[str, Any], job: MediaJobRequest, kind: str
    ) -> Response:
        """Return the images as URLs, in base64, or as events whose types begin with `kind`."""
        stream = passthrough.is_stream(values)
        check_replay(stream=stream, has_key=job.idempotency_id is not None)
        partial_count = _check_stream_fields(values, stream=stream)
        inline = stream or str(values.get("model") or "").startswith(_BASE64_MODELS)
        response_format = media_jobs.choice(
            values, "response_format", RESPONSES, "b64_json" if inline else "url"
        )
        output_format = media_jobs.choice(values, "output_format", FORMATS, "png")
        background = media_jobs.choice(values, "background", BACKGROUNDS, "auto")
        extras = {**job.extras, "format": output_format}
        job = msgspec.structs.replace(job, count=media_jobs.count(values), extras=extras)
        if stream:
            return await self._respond_with_events(job, values, kind, background, partial_count)
        result, words = await self._run(job, values, background)
        is_batch_line = BATCH_LINE in request.scope
        size = sum(_file(each).size for each in result.predictions)
        if is_batch_line and size > _MAX_LINE_BYTES:
            response_format = "url"
        headers = responses.result_headers(result.predictions[0])
        output_format = _file(result.predictions[0]).content_type.removeprefix("image/")
        document: ImagesSchema = {"created": int(time.time()), "data": [], "output_format": output_format}
        document |= cast("ImagesSchema", words)

        def more(count: int) -> Mapping[str, Any]:
            complete = count == job.count
            return {} if complete else {"incomplete": _incomplete(job.count, count, result.reason)}

        if response_format == "url":
            urls = [{"url": self._services.media_url(_file(each))} for each in result.predictions]
            return responses.json({**document, "data": urls, **more(len(urls))}, headers=headers)
        body = inline_images.document(document, await self._inline.open(result.predictions), more)
        if size > media_jobs.MAX_STORED_BYTES and not is_batch_line:
            return UncachedStream(body, 200, headers, "application/json")
        return Response(b"".join([piece async for piece in body]), 200, headers, "application/json")

    async def _respond_with_events(
        self, job: MediaJobRequest, values: Mapping[str, Any], kind: str, background: str, partial_count: int
    ) -> Response:
        async def complete(show: PreviewCallback | None) -> CompleteResult:
            result, words = await self._run(msgspec.structs.replace(job, show=show), values, background)
            first = result.predictions[0]
            output = _file(first).content_type.removeprefix("image/")
            images = await self._inline.open(result.predictions)
            fields = {**_completed(kind, output, values), **words}
            return CompleteResult(inline_images.events(images, fields), responses.result_headers(first))

        # Partial images show the background that is cut out.
        if not partial_count or background == TRANSPARENT:
            return partial_results.events(await complete(None))
        job = msgspec.structs.replace(job, extras={**job.extras, "partial_images": partial_count})
        numbers = itertools.count()
        return await partial_results.respond(
            complete, lambda image: _partial(kind, values, image, next(numbers)), MAX_PARTIAL_IMAGES
        )

    async def _run(
        self, job: MediaJobRequest, values: Mapping[str, Any], background: str
    ) -> tuple[Successes, Mapping[str, list[str]]]:
        """Return the images, and the words of the prompt that a preview engine understood and ignored."""
        if background == TRANSPARENT:
            self._cutouts.check(job, values)
        try:
            result = await self._runner.run(job)
        except errors.InvalidInput as error:
            raise _with_openai_names(error) from error
        words = _words(result.predictions, values)
        return (await self._cutouts.cut_out(job, result) if background == TRANSPARENT else result), words


def _forwarded_call(
    wire: str, values: Mapping[str, Any], raw: bytes, content_type: str = "", uploads: int = 0
) -> ForwardedCall:
    """Return a request for a model server, with an upper estimate of its tokens."""
    count = media_jobs.count(values)
    quality = values.get("quality")
    image_tokens = count * _GENERATED_TOKENS.get(
        quality if isinstance(quality, str) else "", _MAX_GENERATED_TOKENS
    )
    upload_tokens = uploads * _UPLOAD_TOKENS
    prompt_tokens = tokens_of(len(media_jobs.text(values, "prompt")))
    usage = TokenUsage(
        prompt_tokens + upload_tokens,
        image_tokens,
        image_in=upload_tokens,
        units=Units(count, image_out=image_tokens),
    )
    stream = passthrough.is_stream(values)
    response_type = EVENTS if stream else "application/json"
    return ForwardedCall(
        wire, MODEL, values["model"], raw, usage, response_type, stream=stream, content_type=content_type
    )


def _images_of(fields: bodies.BodyFields) -> list[bytes | memoryview]:
    """Return the images of a form, in order; raises `InvalidRequest`."""
    images = [part.data for part in fields.parts if part.name in ("image", "image[]") and part.filename]
    if not images:
        raise InvalidRequest("image is required and must be a file", param="image")
    return images


def _uploads(fields: bodies.BodyFields) -> int:
    """Return the number of images to edit: files of a form, or those that JSON names."""
    images = fields.values.get("images")
    files = sum(bool(part.filename) for part in fields.parts)
    return files or (len(cast("list[Any]", images)) if isinstance(images, list) else 1)


def _check_stream_fields(values: Mapping[str, Any], *, stream: bool) -> int:
    """Return the number of partial images; raises `InvalidRequest` for unsupported fields."""
    partial = media_jobs.number(values, "partial_images", 0, 0, MAX_PARTIAL_IMAGES)
    if partial != int(partial):
        message = f"partial_images must be an integer from 0 to {MAX_PARTIAL_IMAGES}"
        raise InvalidRequest(message, param="partial_images")
    if stream and values.get("response_format") == "url":
        raise InvalidRequest(
            "Streamed events contain images in base64: omit response_format", param="response_format"
        )
    if values.get("output_compression") not in (None, "", 100, "100"):
        message = "output_compression is not supported by the models of this server: omit it"
        raise InvalidRequest(message, param="output_compression")
    return int(partial)


def _completed(kind: str, output_format: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event of an image, without tokens because this server charges images by number."""
    return {
        "type": f"{kind}.completed",
        "b64_json": "",
        **_described(values, output_format),
        "usage": {
            "input_tokens": 0,
            "output_tokens": 0,
            "total_tokens": 0,
            "input_tokens_details": {"text_tokens": 0, "image_tokens": 0},
        },
    }


def _partial(kind: str, values: Mapping[str, Any], image: bytes, index: int) -> Mapping[str, Any]:
    """Return the event of a partial image, which is a PNG or a JPEG."""
    return {
        "type": f"{kind}.partial_image",
        "b64_json": base64.b64encode(image).decode(),
        "partial_image_index": index,
        **_described(values, "png" if image.startswith(_PNG) else "jpeg"),
    }


def _described(values: Mapping[str, Any], output_format: str) -> dict[str, Any]:
    size = values.get("size")
    return {
        "background": TRANSPARENT if values.get("background") == TRANSPARENT else "opaque",
        "created_at": int(time.time()),
        "output_format": output_format,
        "quality": "auto",
        "size": size if isinstance(size, str) and size else "auto",
    }


def _words(images: Sequence[Prediction], values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the words of the prompt that a preview engine has painted and ignored; empty for others.

    An image whose masked area is removed ignores all words.
    """
    words = NO_WORDS
    for image in images:
        words |= image.words
    if images[0].model == CLEANER:
        prompt_words = dict.fromkeys(media_jobs.text(values, "prompt").lower().split())
        words = PromptWords(ignored=tuple(prompt_words)[:MAX_WORDS])
    if not (words.understood or words.ignored):
        return {}
    return {"understood": list(words.understood), "ignored": list(words.ignored)}


def _file(prediction: Prediction) -> OutputFile:
    assert prediction.output is not None  # noqa: S101 - it succeeded
    return prediction.output.files[0]


def _incomplete(requested: int, returned: int, reason: errors.SixfoldError | None) -> dict[str, Any]:
    """Return the numbers of requested and returned images, and a message with the reason."""
    message = (reason or errors.StoreFailed()).message
    text = f"{requested - returned} of {requested} images were not generated and are not charged: {message}"
    return {"requested": requested, "returned": returned, "message": text}


def _with_openai_names(error: errors.InvalidInput) -> errors.InvalidInput:
    problems = [
        errors.Problem(
            _INPUT_NAMES.get(
                problem.input, "size" if problem.input in ("width", "height") else problem.input
            ),
            problem.message,
            problem.kind,
        )
        for problem in error.problems
    ]
    return errors.InvalidInput(problems)
