"""OpenAI's moderations API: detection of harmful texts and images by a provider's model.

Source: https://platform.openai.com/docs/api-reference/moderations.
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import text_headers
from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.capabilities import MODERATION
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.core.input_limits import json_decoding, json_encoding
from sixfold.web import bodies, requests
from sixfold.web.services import WebServices

WIRE = "moderations"
_MAX_INPUTS = 1000
_UNLOCK = (
    "No configured model server supports moderation: set OPENAI_API_KEY or MISTRAL_API_KEY, or add a "
    "server with "
    "/moderations in sixfold.toml"
)


class ModerationSchema(TypedDict):
    """The result for one input; the model determines the categories."""

    flagged: bool
    categories: dict[str, Any]
    category_scores: dict[str, Any]


class ModerationsSchema(TypedDict):
    """Response of `POST /v1/moderations`: one result for each input."""

    id: str
    model: str
    results: list[ModerationSchema]


class ModerationRoutes:
    """`POST /v1/moderations`."""

    def __init__(
        self, services: WebServices, runner: MediaJobRunner, forwarding: UpstreamPassthrough
    ) -> None:
        self._database = services.database
        self._runner = runner
        self._forwarding = forwarding

    async def moderate(self, request: Request) -> Response:
        """Return the moderation results of a model server."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = await bodies.parse(bodies.parse_object, raw)
            _check_input(body.get("input"))
            name = media_jobs.text(body, "model", "") or self._forwarding.first_model(MODERATION)
            if not name or not self._forwarding.serves(WIRE, name):
                if self._forwarding.first_model(MODERATION):
                    raise errors.UnknownModel(
                        f"The model {name[:100]!r} was not found for this endpoint: use one that GET "
                        f"/v1/models lists with the capability `{MODERATION}`"
                    )
                raise errors.EngineUnavailable(_UNLOCK)
            usage = TokenUsage(chats.estimate_body(raw))
            # A token has at least one byte.
            call = ForwardedCall(WIRE, WIRE, name, raw, usage, max_usage=TokenUsage(len(raw)))
            reply = await self._forwarding.complete(request, principal, call, idempotency_id)
            async with refunded_on_failure(self._database, requests.request_id(request)):
                content = await bodies.parse(_with_flags, reply.raw or b"")
            return Response(content, 200, text_headers(reply), "application/json")

        return await self._runner.run_once(request, work)


def _check_input(value: Any) -> None:
    """Raise `InvalidRequest` unless the value is a non-empty string or a list of inputs."""
    count = len(cast("list[Any]", value)) if isinstance(value, list) else bool(value)
    if not isinstance(value, str | list) or not 1 <= count <= _MAX_INPUTS:
        raise InvalidRequest(
            f"input must be a non-empty string, or a list of 1 to {_MAX_INPUTS} inputs", param="input"
        )


def _with_flags(raw: bytes) -> bytes:
    """Return a response with `flagged`, which Mistral omits; it is set if any category is.

    Raises `EngineFailed`.
    """
    try:
        document: dict[str, Any] = json_decoding.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, errors.InputTooLarge) as error:
        raise errors.EngineFailed("The model server returned a response that cannot be parsed") from error
    for result in document["results"]:
        if isinstance(result, dict):
            row = cast("dict[str, Any]", result)
            categories = row.get("categories")
            if isinstance(categories, dict):
                row.setdefault("flagged", any(cast("dict[str, Any]", categories).values()))
    return json_encoding.encode(document)
