"""What the faces of pictures, sound and vectors share: an order on the road, and its results waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions import repository as work
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance.formats import media_types
from sixfold.errors import UnknownModel
from sixfold.web import requests
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.services import WebServices

# The models that these routes serve, and how else clients call them: names, and how names begin.
OURS: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("default", "text-embedding-", "all-minilm"),
    "ra2": ("default", "gpt-image-", "chatgpt-image-", "dall-e-"),
    "tts": ("default", "tts-1", "gpt-4o-mini-tts"),
    "stt": ("default", "whisper-", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"),
}
# Names of OpenAI's that `/v1/models` lists where the model can serve them.
LISTED: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"),
    "ra2": ("dall-e-2", "dall-e-3", "gpt-image-1", "gpt-image-1-mini"),
    "tts": ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
    "stt": ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"),
}
# Under a name of OpenAI's these refuse previews: a store of preview vectors has to be built again later.
FULL_ONLY = frozenset({"embeddings"})


@dataclass(frozen=True, slots=True)
class MediaJobRequest:
    """One request: who makes it, what is made, how often, and of which bytes that came with it."""

    principal: Principal
    request_id: str
    model: str
    inputs: Mapping[str, Any]
    count: int = 1
    sources: Mapping[str, MediaSource] = field(default_factory=dict[str, MediaSource])
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any])
    idempotency_id: str | None = None
    words: Mapping[str, str] = field(default_factory=dict[str, str])  # the client's own, of our inputs
    full_only: bool = False


def ours(model: str, name: Any) -> str:
    """The model that a client means by a name; raises `UnknownModel`."""
    said = model if name is None or name == "" else name
    if not isinstance(said, str):
        raise InvalidRequest("model must be a string", param="model")
    if said == model or said.startswith(OURS[model]):
        return model
    if model == "ra2" and said.startswith("custom:"):
        return said
    raise UnknownModel(f"There is no model {said[:100]!r} here that does this; {model} does")


@dataclass(frozen=True, slots=True)
class Successes:
    """The predictions of one request that succeeded, at least one, and why the others did not."""

    kept: Sequence[Prediction]
    reason: errors.SixfoldError | None = None


def is_full_only(model: str, name: Any) -> bool:
    """Whether a model that is asked for by this name may not be served by a preview engine."""
    return model in FULL_ONLY and bool(name) and name not in (model, "default")


class MediaJobRunner:
    """Has things made, and waits."""

    def __init__(self, services: WebServices, door: CachedKeyAuth) -> None:
        self._services = services
        self._door = door

    async def once(
        self, request: Request, work: Callable[[Principal, str | None], Awaitable[Response]]
    ) -> Response:
        """What `work` answers whoever has a key, once for an `Idempotency-Key`."""
        principal = await self._door.enter(request)
        raw = await request.body()

        async def answer(idempotency_id: str | None) -> Response:
            return await work(principal, idempotency_id)

        once = IdempotentRequest(principal.replays, raw, openai_errors.dialect)
        return await self._services.idempotency.run(request, once, answer)

    async def receive(self, name: str, kind: Any, data: bytes) -> MediaSource:
        """A file that came with the request, as a media input; raises `InvalidInput`."""
        content_type = media_types.sniff(data[: media_types.HEAD_BYTES])
        return await self._services.media.store_input(data, content_type, Descriptor(name, kind))

    async def made(self, asked: MediaJobRequest) -> Successes:
        """Those that succeeded, each paid for by itself; raises why where none did.

        They are accepted all or none; what has not ended when the request does is canceled.
        """
        ordered: list[Prediction] = []
        try:
            ordered = await self._order(asked)
            reason = await self._ended(ordered)
            # Under its key the first is found again by the server that answers next.
            again = asked.idempotency_id is not None and isinstance(reason, errors.ShuttingDown)
            kept = await self._close(ordered[1:] if again else ordered)
            if again and kept:
                kept = await self._close(ordered)
        except asyncio.CancelledError:  # the caller left: what was made by then is paid for and listed
            await self._cancel(ordered)
            raise
        if not kept:
            raise reason or errors.EngineFailed
        return Successes(kept, reason)

    async def _ended(self, ordered: Sequence[Prediction]) -> errors.SixfoldError | None:
        """Wait for the ends; gives why not all of them are successes."""
        seconds = self._services.settings.inline_seconds
        waiting = (self._services.pipeline.wait(each, seconds, patient=True) for each in ordered)
        try:
            ended = await asyncio.gather(*waiting)
        except errors.SixfoldError as error:
            return error
        worst = min(ended, key=lambda each: (each.is_terminal, each.state is PredictionState.SUCCEEDED))
        return self._reason(worst)

    async def _order(self, asked: MediaJobRequest) -> list[Prediction]:
        order = PredictionRequest(
            principal=asked.principal,
            model=asked.model,
            inputs=asked.inputs,
            face="openai",
            request_id=asked.request_id,
            idempotency_id=asked.idempotency_id,
            sources=asked.sources,
            extras=asked.extras,
            full_only=asked.full_only,
        )
        others = [replace(order, idempotency_id=None)] * (asked.count - 1)
        try:
            return await self._services.pipeline.submit_all([order, *others])
        except errors.UnknownModel:
            raise
        except errors.InvalidInput as error:
            raise _in_words(error, asked.words) from error
        except errors.NotFound as error:
            raise UnknownModel(f"There is no model {asked.model[:100]!r} here") from error

    def _reason(self, prediction: Prediction) -> errors.SixfoldError | None:
        """Why a prediction gave nothing; None where it succeeded."""
        if prediction.state is PredictionState.SUCCEEDED:
            return None
        if not prediction.is_terminal:
            seconds = self._services.settings.inline_seconds
            late = f"Not finished within {seconds:g} s (SIXFOLD_INLINE_SECONDS), so it was canceled"
            return errors.ShuttingDown() if self._services.pipeline.draining else errors.EngineFailed(late)
        if prediction.error_kind == work.UNUSABLE:
            name = next(iter(prediction.task.files), "input")
            return InvalidRequest(prediction.error or f"{name} cannot be used", param=name)
        return errors.EngineFailed(prediction.error or "")

    async def _close(self, ordered: Sequence[Prediction]) -> list[Prediction]:
        """Cancel what has not ended, and give what succeeded, also while it was being canceled."""
        kept: list[Prediction] = []
        await self._cancel(ordered)
        for each in ordered:
            with contextlib.suppress(errors.SixfoldError):
                ended = await self._services.pipeline.wait(each, self._services.settings.inline_seconds)
                kept += [ended] if ended.state is PredictionState.SUCCEEDED else []
        return kept

    async def _cancel(self, ordered: Sequence[Prediction]) -> None:
        for each in ordered:
            with contextlib.suppress(errors.SixfoldError):
                await self._services.pipeline.cancel(each.id, Tenant.of(each))

    async def data(self, prediction: Prediction) -> bytes:
        """The bytes of its one file; where they cannot be read, the result is withdrawn and refunded."""
        assert prediction.output is not None  # noqa: S101 - it succeeded
        try:
            return await self._services.blobs.get(prediction.output.files[0].blob)
        except (KeyError, OSError, errors.StoreFailed) as error:
            await self._services.pipeline.refund(prediction, "the file could not be read back")
            raise errors.StoreFailed from error


def told(prediction: Prediction, *wanted: str) -> Mapping[str, Any]:
    """What a run said, with all that is wanted of it; raises `EngineFailed` where an engine left it out."""
    data = prediction.output.data if prediction.output is not None else {}
    if any(name not in data for name in wanted):
        raise errors.EngineFailed(f"{prediction.engine} did not give {' and '.join(wanted)}")
    return data


def _in_words(error: errors.InvalidInput, words: Mapping[str, str]) -> errors.InvalidInput:
    """The refusal of our inputs, by the names that the client gave them."""
    told: list[errors.Problem] = []
    for problem in error.problems:
        word = words.get(problem.input, problem.input)
        rest = problem.message.removeprefix(f"{problem.input} ")
        message = problem.message if rest == problem.message else f"{word} {rest}"
        told.append(errors.Problem(word, message, problem.kind))
    return errors.InvalidInput(told)


def asked(
    request: Request, principal: Principal, model: str, inputs: Mapping[str, Any], **more: Any
) -> MediaJobRequest:
    """What one request has made."""
    return MediaJobRequest(principal, requests.request_id(request), model, inputs, **more)


def choice(values: Mapping[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    """One of some words; raises `InvalidRequest`."""
    value = values.get(name)
    if value is None or value == "":
        return default
    if value not in choices:
        raise InvalidRequest(f"{name} must be one of {', '.join(choices)}", param=name)
    return value


def text(values: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text; raises `InvalidRequest` where there is none and no default."""
    value = values.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise InvalidRequest(f"{name} is required and must be a text", param=name)
    return value


def number(values: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """A number within bounds, of a form's text too; raises `InvalidRequest`."""
    value = values.get(name)
    if value is None or value == "":
        return default
    try:
        found = float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError):
        found = None
    if found is None or not low <= found <= high:
        raise InvalidRequest(f"{name} must be a number from {low:g} to {high:g}", param=name)
    return found


def count(values: Mapping[str, Any]) -> int:
    """`n`, from 1 to 10; raises `InvalidRequest`."""
    found = number(values, "n", 1, 1, 10)
    if found != int(found):
        raise InvalidRequest("n must be a whole number from 1 to 10", param="n")
    return int(found)


def refuse_stream(values: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for a stream: these answers come whole."""
    if values.get("stream") in (True, "true", "True", "1"):
        raise InvalidRequest("This answer comes whole: leave stream out", param="stream")
