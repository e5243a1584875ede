"""Ollama's embeddings API, implemented by the endpoint of OpenAI's API, which charges the request.

Source: https://docs.ollama.com/api/embed and the older `/api/embeddings`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway.ollama import requests as ollama_requests
from sixfold.api.gateway.ollama import responses as ollama_responses
from sixfold.api.gateway.ollama.models import OllamaModels
from sixfold.api.gateway.openai.embeddings.routes import EmbeddingRoutes, read_vectors
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Database
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.web import bodies, requests, responses


class _Embed(msgspec.Struct):
    model: str
    input: str | list[str]
    dimensions: int | None = None


class _EmbedOne(msgspec.Struct):
    model: str
    prompt: str


_T = TypeVar("_T")
# Returns the response of vectors and the number of their tokens.
_Render = Callable[[Sequence[msgspec.Raw], int], dict[str, Any]]


class OllamaEmbeddings:
    """`POST /ollama/api/embed` and `/ollama/api/embeddings`."""

    def __init__(
        self, database: Database, models: OllamaModels, runner: MediaJobRunner, embeddings: EmbeddingRoutes
    ) -> None:
        self._database = database
        self._models = models
        self._runner = runner
        self._embeddings = embeddings

    async def many(self, request: Request) -> Response:
        """Return the vectors of one or more texts."""
        started_at = time.perf_counter()

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            body = await _parse(request, _Embed)
            fields: dict[str, Any] = {"input": body.input}
            if body.dimensions is not None:
                fields["dimensions"] = body.dimensions

            def render(vectors: Sequence[msgspec.Raw], tokens: int) -> dict[str, Any]:
                duration = ollama_responses.nanoseconds(started_at, time.perf_counter())
                counts = {"total_duration": duration, "prompt_eval_count": tokens}
                return {"model": body.model, "embeddings": vectors, **counts}

            return await self._answer(request, principal, body.model, fields, render, idempotency_id)

        return await self._runner.run_once(request, work, ollama_responses.error)

    async def one(self, request: Request) -> Response:
        """Return the vector of one text, as older clients request it."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            body = await _parse(request, _EmbedOne)
            fields = {"input": body.prompt}
            return await self._answer(
                request, principal, body.model, fields, lambda rows, _: {"embedding": rows[0]}, idempotency_id
            )

        return await self._runner.run_once(request, work, ollama_responses.error)

    async def _answer(
        self,
        request: Request,
        principal: Principal,
        model: str,
        fields: dict[str, Any],
        render: _Render,
        idempotency_id: str | None,
    ) -> Response:
        body = {"model": self._models.resolve(model), "encoding_format": "float", **fields}
        answer = await self._embeddings.answer(
            request, principal, body, responses.encode(body), idempotency_id
        )
        async with refunded_on_failure(self._database, requests.request_id(request)):
            content = await bodies.parse(functools.partial(_convert, render=render), bytes(answer.body))
        headers = {name: text for name, text in answer.headers.items() if name.startswith("x-sixfold-")}
        return Response(content, 200, headers, "application/json")


async def _parse(request: Request, kind: type[_T]) -> _T:
    return await bodies.parse(functools.partial(ollama_requests.read, kind=kind), await request.body())


def _convert(raw: bytes, *, render: _Render) -> bytes:
    """Convert a response of OpenAI's API to Ollama's format; raises `EngineFailed`."""
    return responses.encode(render(*read_vectors(raw)))
