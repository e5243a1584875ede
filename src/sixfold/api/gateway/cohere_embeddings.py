"""Cohere's embeddings API, implemented by the endpoint of OpenAI's API, which charges the request.

Source: https://docs.cohere.com/reference/embed and the first version, https://docs.cohere.com/v1/reference/embed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import rerank
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.embeddings.routes import EmbeddingRoutes, read_vectors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

MAX_TEXTS = 2048
_FLOAT = "float"


class _Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class _Input(msgspec.Struct):
    content: list[_Part]


class _EmbedBody(msgspec.Struct):
    model: str
    texts: list[str] | None = None
    inputs: list[_Input] | None = None
    images: list[Any] | None = None
    embedding_types: list[str] | None = None
    output_dimension: int | None = None


_decoder = msgspec.json.Decoder(_EmbedBody)


class EmbedMetaSchema(TypedDict):
    """The version of the API and the number of tokens."""

    api_version: dict[str, str]
    billed_units: dict[str, int]


class EmbedSchema(TypedDict):
    """The vectors by their type, or a list of vectors in the first version without types."""

    id: str
    response_type: NotRequired[Literal["embeddings_floats", "embeddings_by_type"]]
    embeddings: dict[str, list[list[float]]] | list[list[float]]
    texts: list[str]
    meta: EmbedMetaSchema


class CohereEmbeddings:
    """`POST /v1/embed` and `POST /v2/embed`."""

    def __init__(self, services: WebServices, runner: MediaJobRunner, embeddings: EmbeddingRoutes) -> None:
        self._database = services.database
        self._runner = runner
        self._embeddings = embeddings

    async def first(self, request: Request) -> Response:
        """Return the response to `/v1/embed`."""
        return await self._embed(request, "1")

    async def second(self, request: Request) -> Response:
        """Return the response to `/v2/embed`."""
        return await self._embed(request, "2")

    async def _embed(self, request: Request, version: str) -> Response:
        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            body, texts = await bodies.parse(_parse, await request.body())
            fields: dict[str, Any] = {"model": body.model, "input": texts, "encoding_format": _FLOAT}
            if body.output_dimension is not None:
                fields["dimensions"] = body.output_dimension
            answer = await self._embeddings.answer(
                request, principal, fields, responses.encode(fields), idempotency_id
            )
            render = functools.partial(
                _render,
                request_id=requests.request_id(request),
                texts=texts,
                version=version,
                by_type=version == "2" or body.embedding_types is not None,
            )
            async with refunded_on_failure(self._database, requests.request_id(request)):
                content = await bodies.parse(render, bytes(answer.body))
            headers = {name: text for name, text in answer.headers.items() if name.startswith("x-sixfold-")}
            return Response(content, 200, headers, "application/json")

        return await self._runner.run_once(request, work, rerank.error_format)


def _parse(raw: bytes) -> tuple[_EmbedBody, list[str]]:
    """Return a request and its texts; raises `InvalidRequest`."""
    body: _EmbedBody = parsing.head(_decoder, raw)
    if body.images:
        raise InvalidRequest("images is not supported: this server embeds only text", param="images")
    if any(kind != _FLOAT for kind in body.embedding_types or ()):
        raise InvalidRequest('embedding_types must be ["float"]', param="embedding_types")
    texts = list(body.texts or ())
    for index, item in enumerate(body.inputs or ()):
        if any(part.type != "text" or part.text is None for part in item.content):
            raise InvalidRequest(f"inputs[{index}] must contain only parts of the type text", param="inputs")
        texts.append("\n".join(part.text or "" for part in item.content))
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidRequest(f"texts must have 1 to {MAX_TEXTS} items (got {len(texts)})", param="texts")
    return body, texts


def _render(raw: bytes, *, request_id: str, texts: Sequence[str], version: str, by_type: bool) -> bytes:
    rows, tokens = read_vectors(raw)
    vectors: Any = rows
    document: EmbedSchema = {
        "id": request_id,
        "embeddings": {_FLOAT: vectors} if by_type else vectors,
        "texts": list(texts),
        "meta": {"api_version": {"version": version}, "billed_units": {"input_tokens": tokens}},
    }
    if version == "1":
        document["response_type"] = "embeddings_by_type" if by_type else "embeddings_floats"
    return responses.encode(document)


def routes(
    services: WebServices, runner: MediaJobRunner, embeddings: EmbeddingRoutes
) -> tuple[RouteEntry, ...]:
    """Return the routes of Cohere's embeddings."""
    cohere, body = CohereEmbeddings(services, runner, embeddings), services.settings.inline_body_bytes
    return (
        RouteEntry("/v1/embed", {"POST": cohere.first}, body, access=rights.RUN),
        RouteEntry("/v2/embed", {"POST": cohere.second}, body, access=rights.RUN),
    )
