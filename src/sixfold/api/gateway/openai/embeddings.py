"""Embeddings: texts or token ids in, vectors out, as numbers or as base64.

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

import array
import base64
import math
import sys
from typing import Any, Literal, TypedDict, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.openai import media_jobs, token_arrays
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.usage import TokenUsage
from sixfold.web import bodies, responses

MODEL = "embeddings"
_MOST = 2048
_DIMENSIONS = 384  # of every engine of this model
_CHARS_PER_TOKEN = 3.5  # as where a model server does not count
_PREVIEW = "The model `embeddings` gives preview vectors, from spelling and not from meaning, without one."


class VectorSchema(TypedDict, total=False):
    """One vector, as numbers or in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class VectorsSchema(TypedDict):
    """The vectors of texts."""

    object: Literal["list"]
    data: list[VectorSchema]
    model: str
    usage: dict[str, Any]


class EmbeddingRoutes:
    """`POST /v1/embeddings`."""

    def __init__(self, maker: MediaJobRunner, elsewhere: UpstreamPassthrough) -> None:
        self._maker = maker
        self._elsewhere = elsewhere

    async def make(self, request: Request) -> Response:
        """The vectors of a text or of some."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = await bodies.parse(bodies.parse_object, raw)
            if self._elsewhere.makes(MODEL, body.get("model")):
                raw = await self._readable(body, raw)
                passed = ForwardedCall(MODEL, MODEL, body["model"], raw, TokenUsage(tokens_of(len(raw))))
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            return await self._own(request, principal, body, idempotency_id)

        return await self._maker.once(request, work)

    async def _readable(self, body: dict[str, Any], raw: bytes) -> bytes:
        """The request with text for token ids, which a local server would read as its own model's."""
        if not token_arrays.is_tokens(body.get("input")) or not self._elsewhere.is_local(body["model"]):
            return raw
        texts, _ = await token_arrays.decoded(body["input"])
        return responses.encode({**body, "input": texts})

    async def _own(
        self, request: Request, principal: Principal, body: dict[str, Any], idempotency_id: str | None
    ) -> Response:
        """The vectors of this server's own engines."""
        name = body.get("model")
        model = media_jobs.ours(MODEL, name)
        texts, used = await _texts(body.get("input"))
        if body.get("dimensions") not in (None, _DIMENSIONS):
            sentence = f"dimensions must be {_DIMENSIONS}, the length of every vector here, or left out"
            raise InvalidRequest(sentence, param="dimensions")
        encoding = media_jobs.choice(body, "encoding_format", ("float", "base64"), "float")
        order = media_jobs.asked(
            request,
            principal,
            model,
            {"texts": texts},
            idempotency_id=idempotency_id,
            full_only=media_jobs.is_full_only(model, name),
            words={"texts": "input"},
        )
        try:
            (prediction,) = (await self._maker.made(order)).kept
        except errors.EngineUnavailable as error:
            if not order.full_only:
                raise
            there = self._elsewhere.local_embeddings()
            instead = f" Or ask for `{there}`, which a local model server has." if there else ""
            raise errors.EngineUnavailable(f"{error.message} {_PREVIEW}{instead}") from error
        vectors = cast("list[list[float]]", media_jobs.told(prediction, MODEL)[MODEL])
        told = _told(body, vectors, used, encoding)
        return responses.json(told, headers=responses.result_headers(prediction))


async def _texts(given: Any) -> tuple[list[str], int]:
    """The texts to embed, and how many tokens they have, counted or estimated."""
    texts, used = [given], 0
    if token_arrays.is_tokens(given):
        texts, used = await token_arrays.decoded(given)
    elif isinstance(given, list):
        texts = cast("list[Any]", given)
    if not 0 < len(texts) <= _MOST:
        raise InvalidRequest(f"input must hold 1 to {_MOST} texts", param="input")
    if any(not isinstance(text, str) for text in texts):
        raise InvalidRequest("input must be a text, a list of texts, or token ids", param="input")
    if any(not text for text in texts):
        raise InvalidRequest("input must not hold empty texts", param="input")
    return texts, used or sum(math.ceil(len(text) / _CHARS_PER_TOKEN) for text in texts)


def _told(body: dict[str, Any], vectors: list[list[float]], used: int, encoding: str) -> VectorsSchema:
    rows: list[VectorSchema] = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(vector) if encoding == "base64" else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": rows,
        "model": body.get("model") or MODEL,
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }


def _packed(vector: list[float]) -> str:
    """Little-endian floats of 32 bits, as base64."""
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
