"""Reranking in the formats of Cohere and Jina: documents in the order of their relevance to a query.

Sources: https://docs.cohere.com/v2/reference/rerank, https://docs.cohere.com/v1/reference/rerank and
https://jina.ai/reranker.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import unsupported
from sixfold.api.gateway.chat_handler import text_headers
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import media_jobs, parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.capabilities import RERANK
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.pricing.usage import TokenUsage, Units
from sixfold.core.gateway.reranking import RankedDocument, parse_ranking, rank_vectors
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

# The built-in model that ranks documents, by the distance of vectors.
OWN_MODEL = "embeddings"
MAX_DOCUMENTS = 1000
# Each is looked up in each document.
MAX_RANK_FIELDS = 100
# Cohere's unit of price: one query with at most this many documents and tokens per document.
_SEARCH_DOCUMENTS, _SEARCH_TOKENS = 100, 500
# An upper estimate of the tokens with which models separate a query and a document.
_PAIR_TOKENS = 8
# Jina returns the documents unless the request disables it.
_JINA = "jina-"
_UNLOCK = (
    "No configured model server supports reranking: add one with /rerank (llama.cpp --reranking, vLLM, "
    "text-embeddings-inference, Cohere, Jina) to sixfold.toml; "
    f"the model `{OWN_MODEL}` of this server ranks by vector similarity, which is less exact."
)


class RerankErrorSchema(TypedDict):
    """An error: `message` for clients of Cohere, `detail` for those of Jina."""

    id: str
    message: str
    detail: str
    code: str


class RerankedTextSchema(TypedDict):
    """A document of the request."""

    text: str


class RerankResultSchema(TypedDict):
    """A document, by its position in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RerankedTextSchema]


class RerankSchema(TypedDict):
    """The ranking, most relevant documents first, with the usage in the formats of Jina and Cohere."""

    id: str
    model: str
    results: list[RerankResultSchema]
    usage: dict[str, int]
    meta: dict[str, Any]


class _RerankBody(msgspec.Struct):
    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None
    max_tokens_per_doc: int | None = None


_decoder = msgspec.json.Decoder(_RerankBody)
_encode = msgspec.json.Encoder().encode


class RerankRequest(msgspec.Struct, frozen=True):
    """A checked request; `body` is the request for a model server, without the model name."""

    query: str
    texts: tuple[str, ...]
    model: str
    max_results: int
    with_documents: bool
    body: bytes
    expected_usage: TokenUsage
    max_usage: TokenUsage


def error_format(error: errors.SixfoldError, request_id: str) -> Response:
    """Return an error that clients of Cohere and of Jina can read."""
    document: RerankErrorSchema = {
        "id": request_id,
        "message": error.message,
        "detail": error.message,
        "code": error.code,
    }
    return responses.json(document, error.status, responses.error_headers(error))


class RerankRoutes:
    """`POST /v1/rerank` and `POST /v2/rerank`."""

    def __init__(self, runner: MediaJobRunner, forwarding: UpstreamPassthrough) -> None:
        self._runner = runner
        self._forwarding = forwarding

    async def first(self, request: Request) -> Response:
        """Return the ranking in the first version of Cohere's format, which Jina's clients read too."""
        return await self._rerank(request, "1")

    async def second(self, request: Request) -> Response:
        """Return the ranking in the second version of Cohere's format."""
        return await self._rerank(request, "2")

    async def _rerank(self, request: Request, version: str) -> Response:
        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            rerank_request = await bodies.parse(parse, await request.body())
            name = rerank_request.model or self._forwarding.first_model(RERANK)
            if name == OWN_MODEL:
                ranking, headers = await self._rank_here(request, principal, rerank_request, idempotency_id)
                usage = rerank_request.expected_usage
            elif name and self._forwarding.serves(RERANK, name):
                call = ForwardedCall(
                    RERANK,
                    OWN_MODEL,
                    name,
                    rerank_request.body,
                    rerank_request.expected_usage,
                    max_usage=rerank_request.max_usage,
                )
                reply = await self._forwarding.complete(request, principal, call, idempotency_id)
                ranking = await bodies.parse(parse_ranking, reply.raw or b"")
                usage, headers = reply.usage, text_headers(reply)
            elif self._forwarding.first_model(RERANK):
                raise errors.UnknownModel(
                    f"The model {name[:100]!r} was not found: use one that GET /v1/models lists with the "
                    f"capability `{RERANK}`"
                )
            else:
                raise errors.EngineUnavailable(_UNLOCK)
            render = functools.partial(
                _render, rerank_request, usage, name, version, requests.request_id(request)
            )
            size = len(rerank_request.body) if rerank_request.with_documents else 0
            content = await PARSER.run_large(size, render, ranking)
            return Response(content, 200, headers, "application/json")

        return await self._runner.run_once(request, work, error_format)

    async def _rank_here(
        self,
        request: Request,
        principal: Principal,
        rerank_request: RerankRequest,
        idempotency_id: str | None,
    ) -> tuple[Sequence[RankedDocument], Mapping[str, str]]:
        """Rank by the similarity of vectors that this server computes."""
        job = media_jobs.job_request(
            request,
            principal,
            OWN_MODEL,
            {"texts": [rerank_request.query, *rerank_request.texts]},
            idempotency_id=idempotency_id,
            input_names={"texts": "documents"},
        )
        (prediction,) = (await self._runner.run(job)).predictions
        vectors = cast("list[list[float]]", media_jobs.output_data(prediction, OWN_MODEL)[OWN_MODEL])
        return await PARSER.run(rank_vectors, vectors), responses.result_headers(prediction)


def parse(raw: bytes) -> RerankRequest:
    """Parse a request; raises `InvalidRequest`, `BadRequest` and `InputTooLarge`."""
    body = cast("_RerankBody", parsing.head(_decoder, raw))
    if not body.query.strip():
        raise InvalidRequest("query must not be empty", param="query")
    if not 1 <= len(body.documents) <= MAX_DOCUMENTS:
        raise InvalidRequest(
            f"documents must have 1 to {MAX_DOCUMENTS} items (got {len(body.documents)})", param="documents"
        )
    for name, number in (("top_n", body.top_n), ("max_tokens_per_doc", body.max_tokens_per_doc)):
        if number is not None and number < 1:
            raise InvalidRequest(f"{name} must be at least 1 (got {number})", param=name)
    # A repeated name would repeat its text.
    rank_fields = list(dict.fromkeys(body.rank_fields or ()))
    if len(rank_fields) > MAX_RANK_FIELDS:
        raise InvalidRequest(
            f"rank_fields must have at most {MAX_RANK_FIELDS} names (got {len(rank_fields)})",
            param="rank_fields",
        )
    texts = tuple(_text(item, index, rank_fields) for index, item in enumerate(body.documents))
    fields: dict[str, Any] = {"query": body.query, "documents": texts}
    if body.max_tokens_per_doc is not None:
        fields["max_tokens_per_doc"] = body.max_tokens_per_doc
    chars = [len(text) + len(body.query) for text in texts]
    # A token has at least one byte.
    query_bytes = _size(body.query)
    sizes = [_size(text) + query_bytes for text in texts]
    with_documents = body.return_documents
    if with_documents is None:
        with_documents = (body.model or "").rpartition("/")[2].startswith(_JINA)
    return RerankRequest(
        query=body.query,
        texts=texts,
        model=body.model or "",
        max_results=body.top_n or len(texts),
        with_documents=with_documents,
        body=_encode(fields),
        expected_usage=_usage(map(tokens_of, chars)),
        max_usage=_usage(sizes),
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _usage(texts: Iterable[int]) -> TokenUsage:
    """Return the usage of documents, given the tokens of each with its query."""
    tokens = [text + _PAIR_TOKENS for text in texts]
    searches = math.ceil(sum(math.ceil(token / _SEARCH_TOKENS) for token in tokens) / _SEARCH_DOCUMENTS)
    return TokenUsage(sum(tokens), units=Units(searches=searches))


def _text(item: str | dict[str, Any], index: int, fields: Sequence[str]) -> str:
    """Return the text of a document: a string, or an object's `text` or the fields to rank by."""
    if isinstance(item, dict):
        values = [item.get(name) for name in (fields or ("text",))]
        item = "\n".join(value for value in values if isinstance(value, str))
    if not item.strip():
        place = f"documents[{index}]"
        raise InvalidRequest(
            f"{place} must be a non-empty string, or an object with a non-empty string in `text`", param=place
        )
    return item


def _render(
    rerank_request: RerankRequest,
    usage: TokenUsage,
    model: str,
    version: str,
    request_id: str,
    ranking: Sequence[RankedDocument],
) -> bytes:
    results: list[RerankResultSchema] = []
    # An index beyond the documents of the request is ignored.
    valid = [ranked for ranked in ranking if 0 <= ranked.index < len(rerank_request.texts)]
    for ranked in valid[: rerank_request.max_results]:
        row: RerankResultSchema = {"index": ranked.index, "relevance_score": ranked.score}
        if rerank_request.with_documents:
            row["document"] = {"text": rerank_request.texts[ranked.index]}
        results.append(row)
    searches = usage.units.searches if usage.units is not None else 0
    document: RerankSchema = {
        "id": request_id,
        "model": model,
        "results": results,
        "usage": {"prompt_tokens": usage.input, "total_tokens": usage.input},
        "meta": {
            "api_version": {"version": version},
            "billed_units": {"search_units": searches},
            "tokens": {"input_tokens": usage.input},
        },
    }
    return _encode(document)


def build_api(services: WebServices, auth: CachedKeyAuth, more: tuple[RouteEntry, ...]) -> ApiGroup:
    """Return the routes of Cohere's API, and `more` routes."""
    routes = RerankRoutes(MediaJobRunner(services, auth), UpstreamPassthrough(services))
    body = services.settings.inline_body_bytes
    return ApiGroup(
        "rerank",
        error_format,
        (
            RouteEntry("/v1/rerank", {"POST": routes.first}, body, access=rights.RUN),
            RouteEntry("/v2/rerank", {"POST": routes.second}, body, access=rights.RUN),
            *more,
        ),
        prefixes=("/v2/",),
        missing=unsupported.cohere_error,
    )
