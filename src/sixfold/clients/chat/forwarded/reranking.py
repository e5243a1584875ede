"""Reranking: a query and documents, which a model orders by relevance.

Cohere, Jina, vLLM, llama.cpp (`--reranking`) and others share one request, of which the fields that all of
them accept are sent; text-embeddings-inference (TEI) uses other names. Sources:
https://docs.cohere.com/reference/rerank, https://huggingface.github.io/text-embeddings-inference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sixfold.clients.chat.forwarded.media import MediaGeneration
from sixfold.core.gateway.pricing.usage import TokenUsage, Units, parse_token_count
from sixfold.core.gateway.reranking import parse_ranking

RERANK = "rerank"
_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _RerankTokens(msgspec.Struct):
    total_tokens: Any = None
    prompt_tokens: Any = None
    input_tokens: Any = None


class _BilledUnits(msgspec.Struct):
    search_units: Any = None


class _RerankMeta(msgspec.Struct):
    billed_units: _BilledUnits | None = None
    tokens: _RerankTokens | None = None


class _RerankReply(msgspec.Struct):
    usage: _RerankTokens | None = None
    meta: _RerankMeta | None = None


_read = msgspec.json.Decoder(_RerankReply).decode


class Reranking(MediaGeneration):
    """The protocol of `POST /rerank`; `documents` is the name of that field, `options` are further fields."""

    def __init__(self, documents: str = "documents", **options: Any) -> None:
        super().__init__(RERANK, "/rerank")
        self._documents = documents
        self._options = options

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name and field names."""
        fields = _raws(body)
        fields[self._documents] = fields.pop("documents")
        return _encode({"model": model, **fields, **self._options})

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        parse_ranking(body)
        if body.lstrip().startswith(b"["):
            return None, len(body)
        try:
            reply = _read(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError("the response is not valid JSON") from error
        meta = reply.meta or _RerankMeta()
        counted = reply.usage or meta.tokens or _RerankTokens()
        counts = (counted.total_tokens, counted.prompt_tokens, counted.input_tokens)
        tokens = next((parsed for count in counts if (parsed := parse_token_count(count))), 0)
        searches = parse_token_count((meta.billed_units or _BilledUnits()).search_units) or 0
        if not tokens and not searches:
            return None, len(body)
        units = Units(searches=searches) if searches else None
        return TokenUsage(tokens, reported=bool(tokens), units=units), len(body)
