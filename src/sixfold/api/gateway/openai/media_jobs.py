"""Functions of the image, audio and embedding endpoints: run predictions, and check fields."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts import idempotency
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.concurrency import fair_threads
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.events import PreviewCallback
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance.formats import media_types
from sixfold.errors import UnknownModel
from sixfold.web import requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.predictions import failure_of, refunded_on_failure
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

# The models of these routes, with the names and prefixes of names by which clients request them.
MODEL_ALIASES: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("default", "text-embedding-", "all-minilm"),
    "ra2": ("default", "gpt-image-", "chatgpt-image-", "dall-e-"),
    "tts": ("default", "tts-1", "gpt-4o-mini-tts"),
    "stt": (
        "default",
        "whisper-",
        "gpt-transcribe",
        "gpt-4o-transcribe",
        "gpt-4o-mini-transcribe",
        "gpt-live-transcribe",
        "gpt-realtime-whisper",
    ),
}
# OpenAI's names that `/v1/models` lists if the model can serve them.
OPENAI_NAMES: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"),
    "ra2": ("dall-e-2", "dall-e-3", "gpt-image-1", "gpt-image-1-mini"),
    "tts": ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
    "stt": ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"),
}
# Requested by one of OpenAI's names, these reject preview engines: a store of preview vectors would have to
# be rebuilt later.
FULL_ONLY = frozenset({"embeddings"})
# Larger results are not stored for repeated requests, but read from their files again.
MAX_STORED_BYTES = 16 * 2**20


class MediaJobRequest(msgspec.Struct, frozen=True):
    """A request for `count` predictions; `sources` are the files in the request.

    `show` is called with the partial images of the first prediction.
    """

    principal: Principal
    request_id: str
    model: str
    inputs: Mapping[str, Any]
    count: int = 1
    sources: Mapping[str, MediaSource] = {}
    extras: Mapping[str, Any] = {}
    idempotency_id: str | None = None
    # The client's names of this server's inputs.
    input_names: Mapping[str, str] = {}
    full_only: bool = False
    show: PreviewCallback | None = None


def resolve_model(model: str, name: Any) -> str:
    """Return the model for a name or an alias; raises `UnknownModel`."""
    requested = model if name is None or name == "" else name
    if not isinstance(requested, str):
        raise InvalidRequest("model must be a string", param="model")
    if requested == model or requested.startswith(MODEL_ALIASES[model]):
        return model
    if model == "ra2" and requested.startswith("custom:"):
        return requested
    raise UnknownModel(f"The model {requested[:100]!r} was not found for this endpoint: use {model}")


class RunUnfinished(errors.EngineFailed):
    """The run of a request did not end in time and was canceled."""


class Successes(msgspec.Struct, frozen=True):
    """The successful predictions of a request (at least one), and the reason if another one failed."""

    predictions: Sequence[Prediction]
    reason: errors.SixfoldError | None = None


def is_full_only(model: str, name: Any) -> bool:
    """Return whether preview engines must not serve a model that is requested by this name."""
    return model in FULL_ONLY and bool(name) and name not in (model, "default")


class MediaJobRunner:
    """Runs predictions and waits for them."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth

    async def run_once(
        self,
        request: Request,
        work: Callable[[Principal, str | None], Awaitable[Response]],
        error_format: ErrorFormat = openai_errors.dialect,
    ) -> Response:
        """Authenticate and return the response of `work`, only once for an `Idempotency-Key`."""
        principal = await self._auth.enter(request)
        raw = await request.body()

        async def answer(idempotency_id: str | None) -> Response:
            return await work(principal, idempotency_id)

        idempotent_request = IdempotentRequest(principal.replays, raw, error_format)
        return await self._services.idempotency.run(request, idempotent_request, answer)

    async def receive(self, name: str, kind: Any, data: bytes | memoryview) -> MediaSource:
        """Store an uploaded file as a media input; raises `InvalidInput`."""
        content_type = media_types.sniff(bytes(data[: media_types.HEAD_BYTES]))
        return await self._services.media.store_input(
            data, content_type, Descriptor(name, kind), fair_threads.owner.get()
        )

    async def run(self, job: MediaJobRequest) -> Successes:
        """Run a request and return its successful predictions, each of which is charged.

        Either all predictions are accepted or none. Predictions that are unfinished when the request ends are
        canceled, unless a repeated request with its Idempotency-Key can find them. Raises the reason if all
        predictions fail.
        """
        submitted: list[Prediction] = []
        try:
            submitted = await self._submit(job)
            with self._showing(submitted[0], job.show):
                reason = await self._wait_all(submitted, job.input_names)
            if job.idempotency_id is not None and isinstance(reason, errors.ShuttingDown):
                # The repeated request finds the predictions on the next server.
                raise reason
            succeeded = await self._collect(submitted)
        except asyncio.CancelledError:
            # The caller disconnected. Results made by then are charged and listed; with an Idempotency-Key,
            # the repeated request finds the predictions.
            if job.idempotency_id is None:
                await self._cancel(submitted)
            raise
        if not succeeded:
            raise reason or errors.EngineFailed
        return Successes(succeeded, reason)

    def _showing(
        self, prediction: Prediction, show: PreviewCallback | None
    ) -> contextlib.AbstractContextManager[None]:
        if show is None:
            return contextlib.nullcontext()
        return self._services.predictions.bus.showing(prediction.id, show)

    async def _wait_all(
        self, submitted: Sequence[Prediction], input_names: Mapping[str, str]
    ) -> errors.SixfoldError | None:
        """Wait for all predictions and return the reason if not all succeeded."""
        seconds = self._services.settings.inline_seconds
        waits = (
            self._services.predictions.wait(prediction, seconds, patient=True) for prediction in submitted
        )
        try:
            predictions = await asyncio.gather(*waits)
        except errors.SixfoldError as error:
            return error
        worst = min(predictions, key=lambda each: (each.is_terminal, each.state is PredictionState.SUCCEEDED))
        return self._reason(worst, input_names)

    async def _submit(self, job: MediaJobRequest) -> list[Prediction]:
        request = PredictionRequest(
            principal=job.principal,
            model=job.model,
            inputs=job.inputs,
            face="openai",
            request_id=job.request_id,
            idempotency_id=job.idempotency_id,
            sources=job.sources,
            extras=job.extras,
            full_only=job.full_only,
        )
        parts = [
            replace(request, idempotency_id=idempotency.part_id(job.idempotency_id, number))
            for number in range(job.count)
        ]
        try:
            return await self._services.predictions.submit_all(parts)
        except errors.UnknownModel:
            raise
        except errors.InvalidInput as error:
            raise with_client_names(error, job.input_names) from error
        except errors.NotFound as error:
            raise UnknownModel(f"The model {job.model[:100]!r} was not found") from error

    def _reason(self, prediction: Prediction, input_names: Mapping[str, str]) -> errors.SixfoldError | None:
        """Return the reason for the failure of a prediction, or None if it succeeded."""
        if not prediction.is_terminal:
            seconds = self._services.settings.inline_seconds
            timeout_message = (
                f"The request was canceled: it did not finish within {seconds:g} s (SIXFOLD_INLINE_SECONDS)"
            )
            return (
                errors.ShuttingDown()
                if self._services.predictions.draining
                else RunUnfinished(timeout_message)
            )
        name = next(iter(prediction.task.files), "input")
        name = input_names.get(name, name)
        unusable = InvalidRequest(prediction.error or f"{name} cannot be used", param=name)
        return failure_of(prediction, lambda: unusable, errors.EngineFailed(prediction.error or ""))

    async def _collect(self, submitted: Sequence[Prediction]) -> list[Prediction]:
        """Cancel unfinished predictions; return those that succeeded before or during the cancelation."""
        succeeded: list[Prediction] = []
        await self._cancel(submitted)
        for prediction in submitted:
            with contextlib.suppress(errors.SixfoldError):
                ended = await self._services.predictions.wait(
                    prediction, self._services.settings.inline_seconds
                )
                succeeded += [ended] if ended.state is PredictionState.SUCCEEDED else []
        return succeeded

    async def _cancel(self, submitted: Sequence[Prediction]) -> None:
        for prediction in submitted:
            with contextlib.suppress(errors.SixfoldError):
                await self._services.predictions.cancel(prediction.id, Tenant.of(prediction))

    async def data(self, prediction: Prediction) -> bytes:
        """Return the bytes of the output file; raises the errors of `pieces`."""
        return b"".join([piece async for piece in self.pieces(prediction)])

    async def pieces(self, prediction: Prediction) -> AsyncGenerator[bytes]:
        """Yield the output file in pieces; if it cannot be read, refund it and raise `StoreFailed`."""
        assert prediction.output is not None  # noqa: S101 - it succeeded
        unread = "the stored file could not be read"
        async with refunded_on_failure(self._services.predictions, prediction, unread):
            async for piece in self._services.blobs.stream(prediction.output.files[0].blob):
                yield piece


def output_data(prediction: Prediction, *names: str) -> Mapping[str, Any]:
    """Return the output data; raises `EngineFailed` if one of the names is missing."""
    data = prediction.output.data if prediction.output is not None else {}
    if any(name not in data for name in names):
        raise errors.EngineFailed(f"{prediction.engine} did not return {' and '.join(names)}")
    return data


def with_client_names(error: errors.InvalidInput, input_names: Mapping[str, str]) -> errors.InvalidInput:
    problems: list[errors.Problem] = []
    for problem in error.problems:
        name = input_names.get(problem.input, problem.input)
        rest = problem.message.removeprefix(f"{problem.input} ")
        message = problem.message if rest == problem.message else f"{name} {rest}"
        problems.append(errors.Problem(name, message, problem.kind))
    return errors.InvalidInput(problems)


def job_request(
    request: Request, principal: Principal, model: str, inputs: Mapping[str, Any], **options: Any
) -> MediaJobRequest:
    """Return a `MediaJobRequest`."""
    return MediaJobRequest(principal, requests.request_id(request), model, inputs, **options)


def choice(values: Mapping[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    """Return one of the choices or the default; raises `InvalidRequest`."""
    value = values.get(name)
    if value is None or value == "":
        return default
    if value not in choices:
        raise InvalidRequest(f"{name} must be one of {', '.join(choices)}", param=name)
    return value


def text(values: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string; raises `InvalidRequest` if it is missing and `default` is None."""
    value = values.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise InvalidRequest(f"{name} is required and must be a non-empty string", param=name)
    return value


def number(values: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """Return a number within bounds, also from a form field; raises `InvalidRequest`."""
    value = values.get(name)
    if value is None or value == "":
        return default
    try:
        parsed = float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        parsed = None
    if parsed is None or not low <= parsed <= high:
        raise InvalidRequest(f"{name} must be a number from {low:g} to {high:g}", param=name)
    return parsed


def count(values: Mapping[str, Any]) -> int:
    """Return the number of results `n`, from 1 to 10; raises `InvalidRequest`."""
    parsed = number(values, "n", 1, 1, 10)
    if parsed != int(parsed):
        raise InvalidRequest("n must be an integer from 1 to 10", param="n")
    return int(parsed)


def event(document: Mapping[str, Any]) -> bytes:
    """Return one event, whose name is its `type`."""
    return b"event: %s\ndata: %s\n\n" % (document["type"].encode(), responses.encode(document))


def reject_stream(values: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` if the request sets `stream`."""
    if values.get("stream") in (True, "true", "True", "1"):
        raise InvalidRequest("This endpoint does not stream: omit stream", param="stream")
