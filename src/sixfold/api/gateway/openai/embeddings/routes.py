"""OpenAI's embeddings API: texts or token ids to vectors, as numbers or in base64.

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

import array
import base64
import math
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.openai.embeddings import token_arrays
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.web import bodies, responses

MODEL = "embeddings"
_MAX_TEXTS = 2048
# The number of dimensions of all engines of this model.
DIMENSIONS = 384
# An estimate, as for model servers that report no usage.
_CHARS_PER_TOKEN = 3.5
_PREVIEW = (
    "Until then, the model `embeddings` returns preview vectors, which reflect spelling instead of meaning."
)


class VectorSchema(TypedDict, total=False):
    """A vector, as numbers or in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class VectorsSchema(TypedDict):
    """Response of `POST /v1/embeddings`: one vector for each text, in order."""

    object: Literal["list"]
    data: list[VectorSchema]
    model: str
    usage: dict[str, Any]


class EmbeddingRoutes:
    """`POST /v1/embeddings`."""

    def __init__(self, runner: MediaJobRunner, forwarding: UpstreamPassthrough) -> None:
        self._runner = runner
        self._forwarding = forwarding

    async def embed(self, request: Request) -> Response:
        """Return the vectors of one or more texts."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = await bodies.parse(bodies.parse_object, raw)
            return await self.answer(request, principal, body, raw, idempotency_id)

        return await self._runner.run_once(request, work)

    async def answer(
        self,
        request: Request,
        principal: Principal,
        body: dict[str, Any],
        raw: bytes,
        idempotency_id: str | None,
    ) -> Response:
        """Return the vectors for a request; `body` is the decoded form of `raw`."""
        if self._forwarding.serves(MODEL, body.get("model")):
            raw = await self._decoded_body(body, raw)
            expected = TokenUsage(tokens_of(len(raw)))
            forwarded_call = ForwardedCall(
                MODEL,
                MODEL,
                body["model"],
                raw,
                expected,
                dimensions=_dimensions(body),
                # A token has at least one byte.
                max_usage=TokenUsage(len(raw)),
            )
            return await self._forwarding.respond(request, principal, forwarded_call, idempotency_id)
        return await self._embed_locally(request, principal, body, idempotency_id)

    async def _decoded_body(self, body: dict[str, Any], raw: bytes) -> bytes:
        """Return the request with token ids decoded to text for a local server, which uses other ids."""
        if not token_arrays.is_tokens(body.get("input")) or not self._forwarding.is_local(body["model"]):
            return raw
        texts, _ = await token_arrays.decode(body["input"])
        return responses.encode({**body, "input": texts})

    async def _embed_locally(
        self, request: Request, principal: Principal, body: dict[str, Any], idempotency_id: str | None
    ) -> Response:
        """Return vectors from an engine of this server."""
        name = body.get("model")
        model = media_jobs.resolve_model(MODEL, name)
        texts, tokens = await _texts(body.get("input"))
        if body.get("dimensions") not in (None, DIMENSIONS):
            message = f"dimensions must be {DIMENSIONS} or omitted"
            raise InvalidRequest(message, param="dimensions")
        encoding = media_jobs.choice(body, "encoding_format", ("float", "base64"), "float")
        job = media_jobs.job_request(
            request,
            principal,
            model,
            {"texts": texts},
            idempotency_id=idempotency_id,
            full_only=media_jobs.is_full_only(model, name),
            input_names={"texts": "input"},
        )
        try:
            (prediction,) = (await self._runner.run(job)).predictions
        except errors.EngineUnavailable as error:
            if not job.full_only:
                raise
            local_model = self._forwarding.local_embeddings()
            alternative = (
                f" Alternatively, use `{local_model}` of a local model server." if local_model else ""
            )
            raise error.with_message(f"{error.message} {_PREVIEW}{alternative}") from error
        vectors = cast("list[list[float]]", media_jobs.output_data(prediction, MODEL)[MODEL])
        content = await PARSER.run(_content, body.get("model") or MODEL, vectors, tokens, encoding)
        headers = responses.result_headers(prediction)
        return Response(content, headers=headers, media_type="application/json")


class _Vector(msgspec.Struct):
    # Ten million numbers would take 320 MB, and half a second in one call of the decoder.
    embedding: msgspec.Raw


class _EmbeddingUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: _EmbeddingUsage = _EmbeddingUsage()


_vectors = msgspec.json.Decoder(_Vectors)


def read_vectors(raw: bytes) -> tuple[list[msgspec.Raw], int]:
    """Return the vectors of a response as JSON, and the number of their tokens; raises `EngineFailed`."""
    try:
        document = _vectors.decode(raw)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise errors.EngineFailed("The model server returned a response that cannot be parsed") from error
    vectors = [row.embedding for row in document.data]
    if not vectors or not all(bytes(memoryview(vector)[:1]) == b"[" for vector in vectors):
        raise errors.EngineFailed("The model server did not return vectors")
    return vectors, document.usage.prompt_tokens


def _dimensions(body: Mapping[str, Any]) -> int | None:
    """Return the requested length of the vectors; other values are left to the model server's checks."""
    value = body.get("dimensions")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


async def _texts(value: Any) -> tuple[list[str], int]:
    """Return the texts to embed, and the number of their tokens, counted or estimated."""
    texts, tokens = [value], 0
    if token_arrays.is_tokens(value):
        texts, tokens = await token_arrays.decode(value)
    elif isinstance(value, list):
        texts = cast("list[Any]", value)
    if not 0 < len(texts) <= _MAX_TEXTS:
        raise InvalidRequest(f"input must have 1 to {_MAX_TEXTS} strings (got {len(texts)})", param="input")
    if any(not isinstance(text, str) for text in texts):
        raise InvalidRequest("input must be a string, a list of strings, or token ids", param="input")
    if any(not text for text in texts):
        raise InvalidRequest("input must not contain empty strings", param="input")
    return texts, tokens or sum(math.ceil(len(text) / _CHARS_PER_TOKEN) for text in texts)


def _content(model: str, vectors: list[list[float]], tokens: int, encoding: str) -> bytes:
    """Return the response as JSON; each call of the encoder holds the GIL for one vector only."""
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    document: VectorsSchema = {"object": "list", "data": [], "model": model, "usage": usage}
    rows = (_row(index, vector, encoding) for index, vector in enumerate(vectors))
    head, tail = responses.encode(document).split(b"[]", 1)
    return b"".join((head, b"[", b",".join(responses.encode(row) for row in rows), b"]", tail))


def _row(index: int, vector: list[float], encoding: str) -> VectorSchema:
    embedding = _base64_vector(vector) if encoding == "base64" else vector
    return {"object": "embedding", "index": index, "embedding": embedding}


def _base64_vector(vector: list[float]) -> str:
    """Return the vector as base64 of little-endian 32-bit floats."""
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
